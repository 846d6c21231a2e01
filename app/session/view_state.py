"""The state of a session's views, and how it is written into the address."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import streamlit as st

from app.session import address, polled_pickers
from app.session.draft import Draft
from app.session.report_keeper import without_token
from merging.base.files.short_digest import resolve_prefix

_DRAFT_KEY = "_draft"
_WATCHED_RUN_KEY = "_watched"
_MODELS_KEY = f"_{address.MODELS}"  # this and the next two: as ``resolve_available`` finds the chosen values
_SWEEP_KEY = f"_{address.SWEEP}"
_EDIT_KEY = f"_{address.EDIT}"
_POINT_KEY = f"_{address.POINT}"
_STARTED_KEY = "_started"
MAX_STARTED = 3  # started runs that the address names
_PAGE_KEY = "_page"
_ENTERED_KEY = "_entered"
_PICKED_PREFIX = "_picked_"
_IMPLIED_KEY = "_implied"  # values that the page shows and the address leaves out
# Parameters of presentation, not of content.
DISPLAY_KEYS = (address.PRESENTATION, address.FRAME, address.CONTROLS, address.BACKGROUND)
LINK_COLORS = {False: "#0B6AA8", True: "#6DB3E3"}  # the color of links and of focus on a light and on a dark ground


def is_presenting() -> bool:
    """Whether pages are shown on a projector."""
    return bool(st.session_state.get(address.PRESENTATION, False))


def is_framed() -> bool:
    """Whether one chart is shown alone, for a frame on another page."""
    return str(st.query_params.get(address.FRAME, "")) in ("1", "true")


def is_single_chart() -> bool:
    """Whether one chart is shown alone, on a projector or in a frame."""
    return is_framed() or is_presenting()


def has_dark_ground() -> bool:
    """Whether the browser shows pages on a dark ground. A frame with a clear background counts as light."""
    return st.context.theme.type == "dark" and not (is_framed() and has_clear_background())


def has_clear_background() -> bool:
    """Whether the frame has a transparent background."""
    return str(st.query_params.get(address.BACKGROUND, "")) == "clear"


def enter_page(page: str) -> None:
    """Note the shown page, by its path. The address counts when a page is entered, afterwards the session.

    Between two clicks the browser may still send the address from before the first click.
    """
    st.session_state[_ENTERED_KEY] = st.session_state.get(_PAGE_KEY) != page
    st.session_state[_PAGE_KEY] = page
    st.session_state[_IMPLIED_KEY] = {}


def is_entered() -> bool:
    """Whether the page was entered just now."""
    return bool(st.session_state.get(_ENTERED_KEY, True))


def is_on_page(path: str) -> bool:
    """Whether the page with this path is the one that is drawn."""
    return path == f"screens/{st.session_state.get(_PAGE_KEY) or 'home'}.py"


def forget_view() -> None:
    """Forget the page's view: the address counts, as when the page is entered."""
    st.session_state[_PAGE_KEY] = None
    for key in [name for name in st.session_state if isinstance(name, str) and name.startswith(_PICKED_PREFIX)]:
        del st.session_state[key]


def value_from_link(key: str) -> str:
    """The value of ``key`` in the link that was just opened."""
    return st.query_params.get(key, "") if is_entered() else ""


def write_parameter(key: str, value: str) -> None:
    """Write ``value`` into the address; an empty value removes ``key``."""
    if value and st.query_params.get(key) != value:
        st.query_params[key] = value
    elif not value and key in st.query_params:
        del st.query_params[key]


def imply_parameter(key: str, value: str) -> None:
    """Leave ``key`` out of the address, because its value was not chosen; links that restore the view still have it."""
    write_parameter(key, "")
    st.session_state[_IMPLIED_KEY] = implied_query() | {key: value}


def implied_query() -> dict[str, str]:
    """The values that the page shows and the address leaves out."""
    implied: dict[str, str] = st.session_state.get(_IMPLIED_KEY, {})
    return implied


def view_query() -> dict[str, str | list[str]]:
    """The keys and values that restore this view, without the report's token; several values of a key as a list."""
    lists = {key: st.query_params.get_all(key) for key in st.query_params}
    return without_token(implied_query() | {key: values if values[1:] else values[0] for key, values in lists.items()})


def resolve_available(key: str, available: Sequence[str], first: str) -> tuple[str, str]:
    """The value from the link or the session, else ``first``; and the requested value if it is not available."""
    session_key = f"_{key}"
    requested = resolve_prefix(value_from_link(key) or st.session_state.get(session_key) or first, available)
    chosen = requested if requested in available else first
    st.session_state[session_key] = chosen
    write_parameter(key, chosen)
    return chosen, "" if requested in available else requested


def pick_available(key: str, value: str) -> None:
    """Show this value from now on; see ``resolve_available``."""
    st.session_state[f"_{key}"] = value
    write_parameter(key, value)


def pick_available_from(key: str, widget: str) -> None:
    """Callback of a picker: show the value of the widget; a second click on the same value changes nothing."""
    if value := st.session_state[widget]:
        pick_available(key, value)


def resolve_value(key: str, available: Sequence[str], first: str) -> str:
    """The value from the link or the session, else ``first``, which the address leaves out."""
    session_key = f"{_PICKED_PREFIX}{key}"
    requested = value_from_link(key) or st.session_state.get(session_key, first)
    value = requested if requested in available else first
    st.session_state[session_key] = value
    write_parameter(key, "" if value == first else value)
    return str(value)


def pick_value(key: str, value: str) -> None:
    """Show this value from now on; see ``resolve_value``."""
    st.session_state[f"{_PICKED_PREFIX}{key}"] = value


def pick_value_from(key: str, widget: str) -> None:
    """Callback of a picker: show the value of the widget."""
    pick_value(key, st.session_state[widget])


def resolve_set(set_ids: Sequence[str]) -> tuple[str, str]:
    """The user's set of models from the link or the session, "" for the bundled models.

    The second text is the requested set if it does not exist, else empty.
    """
    return resolve_available(address.MODELS, set_ids, "")


def pick_set(set_id: str) -> None:
    """Merge the models of this set from now on."""
    st.session_state[_MODELS_KEY] = set_id


def resolve_sweep(sweep_ids: Sequence[str], first: str) -> tuple[str, str]:
    """The sweep from the link or the session, else ``first``; and the requested sweep if this machine lacks it.

    The session remembers it, with its point from the link or from an earlier choice.
    """
    previous = st.session_state.get(_SWEEP_KEY)
    chosen, missing = resolve_available(address.SWEEP, sweep_ids, first)
    pick_point(value_from_link(address.POINT) or (st.session_state.get(_POINT_KEY, "") if chosen == previous else ""))
    return chosen, missing


def pick_sweep(sweep_id: str) -> None:
    """Show this sweep from now on, at its best point; the empty id shows none."""
    pick_available(address.SWEEP, sweep_id)
    pick_point("")


def pick_sweep_from(widget: str) -> None:
    """Callback of a picker of sweeps, whose key is from ``polled_pickers``."""
    if polled_pickers.is_current(widget):
        pick_sweep(st.session_state[widget])


def picked_point(points: Sequence[str], best: str) -> str:
    """The chosen point of the sweep, else the best one."""
    requested = st.session_state.get(_POINT_KEY, "")
    return requested if requested in points else best


def pick_point(point: str) -> None:
    """Choose this point of the sweep; an empty text stands for the best point."""
    pick_available(address.POINT, point)


def pick_point_from(widget: str) -> None:
    """Callback of a picker of points, whose key is from ``polled_pickers``."""
    if polled_pickers.is_current(widget):
        pick_point(st.session_state[widget])


def leave_benchmark() -> None:
    """Forget the chosen sweep and models, for the switch to another benchmark, which has its own."""
    for key in (_SWEEP_KEY, _POINT_KEY, _EDIT_KEY, _MODELS_KEY, _WATCHED_RUN_KEY, _STARTED_KEY):
        st.session_state.pop(key, None)


def draft() -> Draft | None:
    """The recipe under construction; None if this session has none."""
    stored = st.session_state.get(_DRAFT_KEY)
    return stored if isinstance(stored, Draft) else None


def store_draft(new: Draft) -> None:
    """Store this recipe as the one under construction."""
    st.session_state[_DRAFT_KEY] = new


def linked_chain() -> tuple[str, list[str]] | None:
    """Chain and experts of the link that was just opened, None if it has no chain."""
    chain = value_from_link(address.CHAIN)
    return (chain, [name for name in value_from_link(address.EXPERTS).split(",") if name]) if chain else None


def link_chain(chain: str, experts: Sequence[str]) -> None:
    """Write the recipe under construction into the address; ``experts`` is empty if all are merged."""
    write_parameter(address.CHAIN, chain)
    write_parameter(address.EXPERTS, ",".join(experts))


def relative_address() -> str:
    """The path of the page and the query that restores this view, as in a link, without the server's address."""
    shown = {key: value for key, value in view_query().items() if key not in DISPLAY_KEYS}
    query = urlencode(shown, doseq=True, safe=",:;")
    page = st.session_state.get(_PAGE_KEY, "")
    return f"{page}?{query}" if query else page


def watch_run(run_id: str) -> None:
    """Follow this run, which was started."""
    st.session_state[_WATCHED_RUN_KEY] = run_id
    _note_started(list(dict.fromkeys([run_id, *st.session_state.get(_STARTED_KEY, ())])))


def resolve_started() -> list[str]:
    """The ids of the runs started last, the newest first, from the link or the session; their jobs may be gone."""
    linked_ids = [run_id for run_id in value_from_link(address.STARTED).split(",") if run_id]
    return _note_started(st.session_state.get(_STARTED_KEY) or linked_ids)


def _note_started(run_ids: Sequence[str]) -> list[str]:
    st.session_state[_STARTED_KEY] = list(run_ids[:MAX_STARTED])
    write_parameter(address.STARTED, ",".join(run_ids[:MAX_STARTED]))
    return list(run_ids[:MAX_STARTED])


def watched_run() -> str | None:
    """The run that this session follows until it is done."""
    return st.session_state.get(_WATCHED_RUN_KEY)
