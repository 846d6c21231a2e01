"""Open the view of a lesson's step: the page at an address, as the browser's Back would open it.

When the browser goes back in its history, Streamlit sets bound widgets to the values in the address, or to their
defaults where the address has none. A step needs exactly that, on another page and on the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.session import address, lesson_visit, selection, view_state

STAYING_PARAMETERS = (address.BENCHMARK, address.REPORT_TOKEN)  # parameters that stay in the address with every step
HOME = "home"  # what lessons call the page whose path is empty
_REQUESTED_VIEW_KEY = "_lesson_opening"


def request_view(page: str, view: Mapping[str, str]) -> None:
    """Open the page at this path with this view, at the next run of the script or in ``open_requested``."""
    st.session_state[_REQUESTED_VIEW_KEY] = ("" if page == HOME else page, dict(view))


def open_requested(page: str) -> None:
    """Early in a run of the page at this path: switch to the requested page, or open the view if it is on this page.

    The request stays until ``clear_request``: a visitor may interrupt a run before the page has all of its widgets.
    """
    request: tuple[str, dict[str, str]] | None = st.session_state.get(_REQUESTED_VIEW_KEY)
    if request is None:
        return
    target, view = request
    staying_query = {key: st.query_params[key] for key in STAYING_PARAMETERS if key in st.query_params}
    progress = lesson_visit.visit_query(lesson_visit.current_visit())
    if page != target:
        st.switch_page(f"screens/{target or HOME}.py", query_params=staying_query | progress)
    selection.clear_selection()
    view_state.forget_view()
    presentation_query = {address.PRESENTATION: "true"} if view_state.is_presenting() else {}
    context = get_script_run_ctx()
    if context is not None:
        with context.session_state.query_params() as parameters:
            parameters.populate_from_query_string(urlencode(view | staying_query | progress | presentation_query))
            parameters.set_initial_query_params_from_current()
        context.is_history_navigation = True
        st.query_params[address.LESSON] = lesson_visit.current_visit().lesson  # sends the whole address to the browser


def clear_request() -> None:
    """Note that the page was drawn with the requested view."""
    st.session_state.pop(_REQUESTED_VIEW_KEY, None)
