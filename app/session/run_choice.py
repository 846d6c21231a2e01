"""The runs that pages show: those in hand, of which the first is in focus, and a second one to compare with.

A run is chosen, and thereby in hand, if a link names it or the visitor picks it. Every page shows the run in focus, and
pages with several runs show all in hand; a picker adds to them. With one run in hand, pages with several runs add their
own first runs. A run that a page shows because none is chosen is remembered, but not chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app.session import address, run_styles
from app.session.view_state import imply_parameter, value_from_link, write_parameter
from merging.base.files.short_digest import resolve_prefix

_SHOWN_RUN, _SHOWN_RUNS, _RUN_B, _SELECTED_RUNS = "_run", "_runs", "_other", "_chosen"
_CHOSEN_RUN = "_chosen_run"
_ADDED_RUN = "_added_run"  # the chosen run, until it is among the several chosen ones
_NAMED_RUN = "_named_run"  # the first of several chosen runs: pages with one run show it if no other is chosen
_FRESH_PICK = "_fresh"  # a run was just picked on the page: the view starts with that run's own values
_LINKED_IDS = "_linked_runs"  # ids in a link whose runs no page could show so far
_OWN_PARAMETERS = "_own_run_parameters"  # the parameters that this program, not a link, writes into the address
_RUN_KEYS = (_SHOWN_RUN, _SHOWN_RUNS, _RUN_B, _SELECTED_RUNS, _CHOSEN_RUN, _ADDED_RUN, _NAMED_RUN)
MAX_IN_HAND = 6
FULL_NOTE = "At most six runs are in hand, so the last one was put down."
_RUN_PARAMETERS = (address.RUN, address.RUNS, address.RUN_B, address.SELECTED_RUNS)


@dataclass(frozen=True, slots=True)
class PickedRun:
    """The run that a page shows; ``missing`` is the chosen id if this machine lacks that run."""

    run_id: str | None
    missing: str | None = None
    fresh: bool = False


def enter_page() -> None:
    """Take the runs in the link that was just opened in hand, and write those in hand into the address of the page."""
    st.session_state[_OWN_PARAMETERS] = {key for key in (address.RUN, address.RUNS) if not value_from_link(key)}
    if value_from_link(address.RUNS):
        _follow_several(_read_link_ids(address.RUNS))
    follow_link()
    if len(runs_in_hand()) > 1:
        write_parameter(address.RUNS, ",".join(st.session_state.get(_SHOWN_RUNS, ())))
    if chosen_run():
        write_parameter(address.RUN, chosen_run())


def follow_link() -> None:
    """Choose the run in the link that was just opened, on any page."""
    run_id = "".join(_read_link_ids(address.RUN))
    if run_id and run_id != chosen_run():
        if chosen_run() and not (_SHOWN_RUNS in st.session_state or value_from_link(address.LESSON)):
            st.session_state[_SHOWN_RUNS] = [chosen_run()]
        st.session_state[_CHOSEN_RUN] = st.session_state[_ADDED_RUN] = run_id
    if run_id:
        st.session_state[_SHOWN_RUN] = run_id


def _follow_several(linked_ids: Sequence[str]) -> None:
    """Take the several runs of a link in hand; the first is in focus if the link names no other."""
    st.session_state[_SHOWN_RUNS] = list(dict.fromkeys(linked_ids))
    st.session_state[_NAMED_RUN] = linked_ids[0]
    _forget(_ADDED_RUN)
    if not value_from_link(address.RUN):
        _forget(*(key for key in (_SHOWN_RUN, _CHOSEN_RUN) if st.session_state.get(key) not in linked_ids))


def runs_in_hand() -> list[str]:
    """The ids of the runs in hand, in order; the first is in focus."""
    return _chosen_ids()[:MAX_IN_HAND]


def _chosen_ids() -> list[str]:
    """The ids of all chosen runs, of which the first ones are in hand."""
    first = [chosen_run() or st.session_state.get(_NAMED_RUN, "")]
    ids = dict.fromkeys([*first, *st.session_state.get(_SHOWN_RUNS, ())])
    return [run_id for run_id in ids if run_id]


def put_down(run_id: str) -> None:
    """Callback: take this run out of the hand; the next one is then in focus."""
    remaining = [other_id for other_id in _chosen_ids() if other_id != run_id]
    _forget(_SHOWN_RUN, _CHOSEN_RUN, _ADDED_RUN, _NAMED_RUN, _SHOWN_RUNS)
    write_parameter(address.RUNS, "")
    write_parameter(address.RUN, "")
    if len(remaining) > 1:
        pick_runs(remaining)
    if remaining:
        pick_run(remaining[0])


def forget_runs() -> None:
    """Forget all chosen and pinned runs, for the switch to another benchmark, which has its own."""
    _forget(*_RUN_KEYS)
    run_styles.forget_pins()


def clear_link() -> None:
    """Forget the runs that a link named."""
    for key in _RUN_PARAMETERS:
        write_parameter(key, "")
    _forget(*_RUN_KEYS)


def drop_runs(run_ids: Sequence[str]) -> None:
    """Remove these deleted runs from all choices."""

    def remaining(ids: Sequence[str]) -> list[str]:
        return [run_id for run_id in ids if resolve_prefix(run_id, run_ids) not in run_ids]

    for key in (_SHOWN_RUN, _RUN_B, _CHOSEN_RUN, _ADDED_RUN, _NAMED_RUN):
        if not remaining([st.session_state.get(key, "")]):
            _forget(key)
    for key in (_SHOWN_RUNS, _SELECTED_RUNS):
        if key in st.session_state:
            st.session_state[key] = remaining(st.session_state[key])
    if st.session_state.get(_SHOWN_RUNS) == []:
        _forget(_SHOWN_RUNS)
    for key in _RUN_PARAMETERS:
        write_parameter(key, ",".join(remaining(st.query_params.get(key, "").split(","))))


def is_of_link(run_id: str) -> bool:
    """Whether a link named that id and no page could show its run since then."""
    return run_id in st.session_state.get(_LINKED_IDS, ())


def _read_link_ids(key: str) -> list[str]:
    """The ids in the link that was just opened."""
    if key in st.session_state.get(_OWN_PARAMETERS, ()):
        return []
    ids = [run_id for run_id in value_from_link(key).split(",") if run_id]
    st.session_state[_LINKED_IDS] = {*st.session_state.get(_LINKED_IDS, ()), *ids}
    return ids


def _note_found(run_id: str) -> None:
    """Note that a page shows the run; if it is missing later, the link is not the reason."""
    st.session_state[_LINKED_IDS] = {
        one for one in st.session_state.get(_LINKED_IDS, ()) if resolve_prefix(one, [run_id]) != run_id
    }


def _forget(*keys: str) -> None:
    for key in keys:
        st.session_state.pop(key, None)


# One run


def chosen_run() -> str:
    """The id of the chosen run as it was written, maybe only its first digits; empty if none is chosen."""
    return str(st.session_state.get(_CHOSEN_RUN, ""))


def resolve_run(run_ids: Sequence[str], first: str, ready: Sequence[str] | None = None) -> PickedRun:
    """The chosen run, else the last page's run if it is ``ready`` (by default all runs are), else ``first``.

    The address names the run only if it is chosen, because opening an address chooses the run that it names.
    """
    follow_link()
    shown = st.session_state.get(_SHOWN_RUN, "")
    if shown != chosen_run() and shown not in (run_ids if ready is None else ready):
        shown = ""
    named = resolve_prefix(st.session_state.get(_NAMED_RUN, ""), run_ids)
    requested = resolve_prefix(shown, run_ids) or named
    if requested and requested not in run_ids:
        st.session_state[_SHOWN_RUN] = requested
        return PickedRun(None, missing=requested)
    run_id = requested or first
    if resolve_prefix(chosen_run(), run_ids) == run_id:
        st.session_state[_CHOSEN_RUN] = run_id  # a link may have only the first digits
    st.session_state[_SHOWN_RUN] = run_id
    (write_parameter if run_id in (chosen_run(), named) else imply_parameter)(address.RUN, run_id)
    _note_found(run_id)
    return PickedRun(run_id, fresh=bool(st.session_state.pop(_FRESH_PICK, False)))


def resolve_focused_run(run_ids: Sequence[str], ready: Sequence[str]) -> str:
    """The run in focus among several: the chosen one, else the last page's if it is ``ready``, else the last ready one.

    A chosen run that is not among them stays chosen and in the address, for other pages.
    """
    follow_link()
    chosen, shown = (resolve_prefix(st.session_state.get(key, ""), run_ids) for key in (_CHOSEN_RUN, _SHOWN_RUN))
    focus = chosen if chosen in run_ids else shown if shown in ready else ready[-1]
    if not chosen:
        st.session_state[_SHOWN_RUN] = focus
        imply_parameter(address.RUN, focus)
    else:
        write_parameter(address.RUN, chosen)
    _note_found(focus)
    return focus


def pick_run(run_id: str) -> None:
    """Choose this run: it is first in hand, before those that are already there."""
    if others := [other_id for other_id in _chosen_ids() if other_id != run_id]:
        largest = max(MAX_IN_HAND, len(st.session_state.get(_SHOWN_RUNS, ())))
        if len(others) >= largest:
            st.toast(FULL_NOTE, icon=":material/front_hand:")
        pick_runs([run_id, *others][:largest])
    st.session_state[_SHOWN_RUN] = st.session_state[_CHOSEN_RUN] = st.session_state[_ADDED_RUN] = run_id
    write_parameter(address.RUN, run_id)


def pick_run_from(widget: str) -> None:
    """Callback of a run picker: choose the picked run, and show it with its own values."""
    st.session_state[_FRESH_PICK] = True
    pick_run(st.session_state[widget])


# A second run


def resolve_run_b(run_ids: Sequence[str]) -> tuple[str, str]:
    """The second run from the link or the session, and its id if this machine lacks it; otherwise empty texts."""
    requested = resolve_prefix("".join(_read_link_ids(address.RUN_B)) or st.session_state.get(_RUN_B, ""), run_ids)
    pick_run_b(requested)
    return (requested, "") if requested in run_ids else ("", requested)


def pick_run_b(run_id: str = "") -> None:
    """Choose the second run; the empty id chooses none."""
    st.session_state[_RUN_B] = run_id
    write_parameter(address.RUN_B, run_id)


def pick_run_b_from(widget: str) -> None:
    """Callback of the picker of the second run."""
    pick_run_b(st.session_state[widget] or "")


def swap_runs(run_a: str, run_b: str) -> None:
    """Callback: swap the two runs."""
    pick_run(run_b)
    pick_run_b(run_a)


# Several runs


def _resolve_link_ids(key: str, available: Sequence[str]) -> list[str]:
    return [resolve_prefix(written, available) for written in _read_link_ids(key)]


def _resolve_many(key: str, name: str, available: Sequence[str], first: Sequence[str]) -> tuple[list[str], list[str]]:
    """The distinct runs that the link or the session names: the available ids, and the ids that are not available."""
    linked_ids = _resolve_link_ids(key, available)
    session_ids = [resolve_prefix(run_id, available) for run_id in st.session_state.get(name, first)]
    ids = list(dict.fromkeys(linked_ids or session_ids))
    chosen = bool(linked_ids) or name in st.session_state
    if chosen:
        st.session_state[name] = ids
    (write_parameter if chosen or not ids else imply_parameter)(key, ",".join(ids))
    available_ids = [run_id for run_id in ids if run_id in available]
    for run_id in available_ids:
        _note_found(run_id)
    return available_ids, [run_id for run_id in ids if run_id not in available]


def resolve_runs(available: Sequence[str], default: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs to compare, the chosen one first, and the ids among them that are not available.

    Each page has its own ``default``, which does not follow the visitor to other pages. The address leaves the default
    out and names the chosen run only, because opening an address chooses the first run that it names.
    """
    if linked_ids := _resolve_link_ids(address.RUNS, available):
        _follow_several(linked_ids)
    added = resolve_prefix(st.session_state.get(_ADDED_RUN, ""), available)
    if added and _SHOWN_RUNS in st.session_state:
        _forget(_ADDED_RUN)
        st.session_state[_SHOWN_RUNS] = [added, *st.session_state[_SHOWN_RUNS]]
    if added:
        write_parameter(address.RUN, added)
    return _resolve_many(address.RUNS, _SHOWN_RUNS, available, [added, *default] if added else default)


def pick_runs(run_ids: Sequence[str]) -> None:
    """Choose the runs to compare."""
    st.session_state[_SHOWN_RUNS] = list(run_ids)
    st.session_state[_NAMED_RUN] = next(iter(run_ids), "")
    shown = st.session_state.get(_SHOWN_RUN)
    if shown != chosen_run() and shown not in run_ids:
        _forget(_SHOWN_RUN)
    _forget(_ADDED_RUN)
    write_parameter(address.RUNS, ",".join(run_ids))


def pick_runs_from(widget: str, not_offered: Sequence[str] = ()) -> None:
    """Callback of a picker of several runs; the runs in hand that are ``not_offered`` stay there."""
    pick_runs([*st.session_state[widget], *(run_id for run_id in not_offered if run_id in runs_in_hand())])


def resolve_selected_runs(available: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs selected for an action, and the ids in the link that this machine lacks."""
    return _resolve_many(address.SELECTED_RUNS, _SELECTED_RUNS, available, ())


def select_runs(run_ids: Sequence[str]) -> None:
    """Select these runs for an action."""
    st.session_state[_SELECTED_RUNS] = list(run_ids)
    write_parameter(address.SELECTED_RUNS, ",".join(run_ids))
