"""Errors in callbacks, pages and their parts become a sentence and a button to continue."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st

from app.page_text import safe_text
from merging.base.errors import MergingError

PROBLEM_KEY, AFTER_FRAGMENT_KEY = "_click_problem", "_after_parts"
REDRAW_LABEL = "Draw the page again"
CHANGED_HINT = "It may have been deleted or changed in another tab since this page was drawn."
P = ParamSpec("P")


def guard_callback(callback: Callable[P, object]) -> Callable[P, None]:
    """The callback with MergingErrors caught; ``take_problem`` then returns the error's text."""

    @functools.wraps(callback)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except MergingError as error:
            st.session_state[PROBLEM_KEY] = str(error)

    return call


def take_problem() -> str:
    """The problem of the last click, once; empty if there was none."""
    return str(st.session_state.pop(PROBLEM_KEY, ""))


def rerun_for_problem() -> None:
    """In a part of the page that is redrawn alone: redraw the whole page if it has to show a problem."""
    if PROBLEM_KEY in st.session_state:
        st.rerun()


def guarded_fragment(draw: Callable[P, None], run_every: float | None = None) -> Callable[P, None]:
    """A part of a page that is redrawn alone, with the same handling of errors as the page."""

    @functools.wraps(draw)
    def draw_guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            draw(*args, **kwargs)
        except MergingError as error:
            draw_error(error, f"{draw.__module__}.{draw.__qualname__}")
        if call := st.session_state.get(AFTER_FRAGMENT_KEY):
            call()

    return st.fragment(draw_guarded, run_every=run_every)


def call_after_fragments(call: Callable[[], None] | None) -> None:
    """Set the function to call after a part of the page is redrawn alone; None while the whole page is drawn."""
    st.session_state[AFTER_FRAGMENT_KEY] = call


def draw_error(error: MergingError, part: str) -> None:
    """Draw the error, and a button that draws the whole page again from the current store."""
    st.error(safe_text(error, 1000), icon=":material/error:")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.button(REDRAW_LABEL, key=f"again_{part}", icon=":material/refresh:"):
            st.rerun()
        st.caption(CHANGED_HINT)
