"""Pickers that a page changes while it polls. Requests from before the change are not choices of the visitor."""

from __future__ import annotations

import streamlit as st


def picker_key(name: str, value: str) -> str:
    """The widget key of a picker that shows ``value``; a new one whenever the page, not the visitor, changes the value.

    A request that the browser sent before it received the change still has the old value, under the old key.
    """
    count = st.session_state.get(f"_{name}", 0)
    if st.session_state.get(f"{name}_{count}") != value:
        count += 1
        st.session_state[f"_{name}"] = count
        st.session_state[f"{name}_{count}"] = value
    return f"{name}_{count}"


def is_current(widget: str) -> bool:
    """Whether a widget key is the latest one of its picker."""
    name, _, count = widget.rpartition("_")
    return str(st.session_state.get(f"_{name}")) == count
