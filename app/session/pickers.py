"""Pickers that a page sets itself while it polls: what a browser says that has not seen the change yet is no choice."""

from __future__ import annotations

import streamlit as st


def key(name: str, shown: str) -> str:
    """The key of a picker that shows this: another one whenever the page, not the visitor, changes what is shown.

    A request that the browser sent before it saw the change still has the old value, under the old key.
    """
    count = st.session_state.get(f"_{name}", 0)
    if st.session_state.get(f"{name}_{count}") != shown:
        count += 1
        st.session_state[f"_{name}"] = count
        st.session_state[f"{name}_{count}"] = shown
    return f"{name}_{count}"


def is_current(widget: str) -> bool:
    """Whether it is the last key of its picker."""
    name, _, count = widget.rpartition("_")
    return str(st.session_state.get(f"_{name}")) == count
