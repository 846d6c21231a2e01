"""The runs that pages show: one in focus, several side by side, and a second one to compare with.

A run is chosen if a link names it or the visitor picks it: every page shows it until another one is chosen, and pages
with several runs show it first. A run that a page shows because none is chosen is remembered, but not chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app.session import address
from app.session.view_state import imply_parameter, value_from_link, write_parameter
from merging.base.files.short_digest import resolve_prefix

_CURRENT, _CURRENT_MANY, _OTHER, _MARKED = "_run", "_runs", "_other", "_chosen"
_CHOSEN = "_chosen_run"
_ADDED = "_added_run"  # the chosen run, until it is among the several chosen ones
_NAMED = "_named_run"  # the first of several chosen runs: pages with one run show it if no other is chosen
_FRESH = "_fresh"  # a run was just picked on the page: the view starts with that run's own values
_LINKED = "_linked_runs"  # ids in a link whose runs no page could show so far
_KEYS = (_CURRENT, _CURRENT_MANY, _OTHER, _MARKED, _CHOSEN, _ADDED, _NAMED)
_WRITTEN = (address.RUN, address.RUNS, address.RUN_B, address.SELECTED_RUNS)


@dataclass(frozen=True, slots=True)
class PickedRun:
    """The run that a page shows; ``missing`` is the chosen id if this machine lacks that run."""

    run_id: str | None
    missing: str | None = None
    fresh: bool = False


def follow_link() -> None:
    """Choose the run in the link that was just opened, on whatever page it is."""
    written = "".join(_ids_of_link(address.RUN))
    if written and written != chosen_run():
        st.session_state[_CHOSEN] = st.session_state[_ADDED] = written
    if written:
        st.session_state[_CURRENT] = written


def forget_runs() -> None:
    """Forget all chosen runs, for the switch to another benchmark, which has its own."""
    _forget(*_KEYS)


def clear_link() -> None:
    """Forget the runs that a link named."""
    for key in _WRITTEN:
        write_parameter(key, "")
    forget_runs()


def drop_runs(run_ids: Sequence[str]) -> None:
    """Remove these deleted runs from all choices."""

    def left(ids: Sequence[str]) -> list[str]:
        return [one for one in ids if resolve_prefix(one, run_ids) not in run_ids]

    for key in (_CURRENT, _OTHER, _CHOSEN, _ADDED, _NAMED):
        if not left([st.session_state.get(key, "")]):
            _forget(key)
    for key in (_CURRENT_MANY, _MARKED):
        if key in st.session_state:
            st.session_state[key] = left(st.session_state[key])
    if st.session_state.get(_CURRENT_MANY) == []:
        _forget(_CURRENT_MANY)
    for key in _WRITTEN:
        write_parameter(key, ",".join(left(st.query_params.get(key, "").split(","))))


def is_of_link(run_id: str) -> bool:
    """Whether a link named that id and no page could show its run since then."""
    return run_id in st.session_state.get(_LINKED, ())


def _ids_of_link(key: str) -> list[str]:
    """The ids in the link that was just opened."""
    ids = [one for one in value_from_link(key).split(",") if one]
    st.session_state[_LINKED] = {*st.session_state.get(_LINKED, ()), *ids}
    return ids


def _note_found(run_id: str) -> None:
    """Note that a page shows the run; if it is missing later, the link is not the reason."""
    st.session_state[_LINKED] = {
        one for one in st.session_state.get(_LINKED, ()) if resolve_prefix(one, [run_id]) != run_id
    }


def _forget(*keys: str) -> None:
    for key in keys:
        st.session_state.pop(key, None)


# One run


def chosen_run() -> str:
    """The id of the chosen run as it was written, maybe only its first digits; empty if none is chosen."""
    return str(st.session_state.get(_CHOSEN, ""))


def picked_run(run_ids: Sequence[str], first: str, ready: Sequence[str] | None = None) -> PickedRun:
    """The chosen run, else the last page's if it is ``ready`` (by default all are), else ``first``.

    The address names the run only if it is chosen, because opening an address chooses the run that it names.
    """
    follow_link()
    shown = st.session_state.get(_CURRENT, "")
    if shown != chosen_run() and shown not in (run_ids if ready is None else ready):
        shown = ""
    named = resolve_prefix(st.session_state.get(_NAMED, ""), run_ids)
    requested = resolve_prefix(shown, run_ids) or named
    if requested and requested not in run_ids:
        st.session_state[_CURRENT] = requested
        return PickedRun(None, missing=requested)
    run_id = requested or first
    if resolve_prefix(chosen_run(), run_ids) == run_id:
        st.session_state[_CHOSEN] = run_id  # a link may have only the first digits
    st.session_state[_CURRENT] = run_id
    (write_parameter if run_id in (chosen_run(), named) else imply_parameter)(address.RUN, run_id)
    _note_found(run_id)
    return PickedRun(run_id, fresh=bool(st.session_state.pop(_FRESH, False)))


def focused_run(run_ids: Sequence[str], ready: Sequence[str]) -> str:
    """The run in focus among several: the chosen one, else the last page's if it is ``ready``, else the last ready one.

    A chosen run that is not among them stays chosen and in the address, for other pages.
    """
    follow_link()
    chosen, shown = (resolve_prefix(st.session_state.get(key, ""), run_ids) for key in (_CHOSEN, _CURRENT))
    focus = chosen if chosen in run_ids else shown if shown in ready else ready[-1]
    if not chosen:
        st.session_state[_CURRENT] = focus
        imply_parameter(address.RUN, focus)
    else:
        write_parameter(address.RUN, chosen)
    _note_found(focus)
    return focus


def pick_run(run_id: str) -> None:
    """Choose this run."""
    st.session_state[_CURRENT] = st.session_state[_CHOSEN] = st.session_state[_ADDED] = run_id
    write_parameter(address.RUN, run_id)


def pick_run_from(widget: str) -> None:
    """Callback of a run picker: choose the picked run, and show it with its own values."""
    st.session_state[_FRESH] = True
    pick_run(st.session_state[widget])


# A second run


def picked_run_b(run_ids: Sequence[str]) -> tuple[str, str]:
    """The second run from the link or the session, and its id if this machine lacks it; otherwise empty texts."""
    requested = resolve_prefix("".join(_ids_of_link(address.RUN_B)) or st.session_state.get(_OTHER, ""), run_ids)
    pick_run_b(requested)
    return (requested, "") if requested in run_ids else ("", requested)


def pick_run_b(run_id: str = "") -> None:
    """Choose the second run; the empty id chooses none."""
    st.session_state[_OTHER] = run_id
    write_parameter(address.RUN_B, run_id)


def pick_run_b_from(widget: str) -> None:
    """Callback of the picker of the second run."""
    pick_run_b(st.session_state[widget] or "")


def swap_runs(first: str, other: str) -> None:
    """Callback: swap the two runs."""
    pick_run(other)
    pick_run_b(first)


# Several runs


def _linked_ids(key: str, available: Sequence[str]) -> list[str]:
    return [resolve_prefix(written, available) for written in _ids_of_link(key)]


def _picked_many(key: str, name: str, available: Sequence[str], first: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs that the link or the session names, each once, and those of them that are not available."""
    linked_ids = _linked_ids(key, available)
    ids = list(dict.fromkeys(linked_ids or st.session_state.get(name, first)))
    chosen = bool(linked_ids) or name in st.session_state
    if chosen:
        st.session_state[name] = ids
    (write_parameter if chosen or not ids else imply_parameter)(key, ",".join(ids))
    available_ids = [run_id for run_id in ids if run_id in available]
    for run_id in available_ids:
        _note_found(run_id)
    return available_ids, [run_id for run_id in ids if run_id not in available]


def picked_runs(available: Sequence[str], default: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs to compare, the chosen one first, and the ids among them that are not available.

    Each page has its own ``default``, which does not follow the visitor to other pages. The address leaves the default
    out and names the chosen run only, because opening an address chooses the first run that it names.
    """
    if several := _linked_ids(address.RUNS, available):
        st.session_state[_NAMED] = several[0]
        _forget(_ADDED)
        if not value_from_link(address.RUN):
            _forget(*(key for key in (_CURRENT, _CHOSEN) if st.session_state.get(key) not in several))
    added = resolve_prefix(st.session_state.get(_ADDED, ""), available)
    if added and _CURRENT_MANY in st.session_state:
        _forget(_ADDED)
        st.session_state[_CURRENT_MANY] = [added, *st.session_state[_CURRENT_MANY]]
    if added:
        write_parameter(address.RUN, added)
    return _picked_many(address.RUNS, _CURRENT_MANY, available, [added, *default] if added else default)


def pick_runs(run_ids: Sequence[str]) -> None:
    """Choose the runs to compare."""
    st.session_state[_CURRENT_MANY] = list(run_ids)
    st.session_state[_NAMED] = next(iter(run_ids), "")
    shown = st.session_state.get(_CURRENT)
    if shown != chosen_run() and shown not in run_ids:
        _forget(_CURRENT)
    _forget(_ADDED)
    write_parameter(address.RUNS, ",".join(run_ids))


def pick_runs_from(widget: str) -> None:
    """Callback of a picker of several runs."""
    pick_runs(st.session_state[widget])


def selected_runs(available: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs selected for an action, and the ids in the link that this machine lacks."""
    return _picked_many(address.SELECTED_RUNS, _MARKED, available, ())


def select_runs(run_ids: Sequence[str]) -> None:
    """Select these runs for an action."""
    st.session_state[_MARKED] = list(run_ids)
    write_parameter(address.SELECTED_RUNS, ",".join(run_ids))
