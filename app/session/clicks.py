"""Callbacks of widgets: what goes wrong in one becomes a sentence on the page that is drawn next."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st

from merging.errors import MergingError

PROBLEM = "_click_problem"
P = ParamSpec("P")


def guarded(act: Callable[P, object]) -> Callable[P, None]:
    """The same callback; a MergingError in it is what ``problem`` then gives."""

    @functools.wraps(act)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except MergingError as error:
            st.session_state[PROBLEM] = str(error)

    return call


def problem() -> str:
    """The problem of the last click, once; empty if there was none."""
    return str(st.session_state.pop(PROBLEM, ""))


def show_soon() -> None:
    """In a part of the page that is redrawn alone: redraw all of it, if a problem is to be shown there."""
    if PROBLEM in st.session_state:
        st.rerun()
