"""What the page says about all of its charts, such as that two runs merge different experts.

It goes with each chart into the report. The page notes it again each time that it is drawn; a part of the page that is
redrawn alone finds what the page noted last.
"""

from __future__ import annotations

import streamlit as st

_NOTED = "_cautions"


def clear() -> None:
    """Forget the cautions of the page that was drawn before."""
    st.session_state[_NOTED] = []


def note(sentence: str) -> None:
    """Note a caution on all charts that are drawn from now on; trusted Markdown."""
    noted: list[str] = st.session_state.setdefault(_NOTED, [])
    if sentence not in noted:
        noted.append(sentence)


def noted() -> str:
    """All cautions on the page, as one text."""
    return " ".join(st.session_state.get(_NOTED, []))
