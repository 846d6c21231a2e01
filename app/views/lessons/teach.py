"""The button on the page Lessons that begins a class, and the code and the address that a lecturer gives out."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.reading.lessons import polls
from app.session import address, clicks
from app.session.lessons import visit

_MINE = "_class_begun"  # in the session: the code of the class that was begun in it
ABOUT = (
    "Guesses and answers in every session that opens a lesson with your code are counted, step by step. Present a "
    "step to see them. Nothing else is kept, and the counts are gone after a day."
)


def host() -> None:
    """On the page Lessons: the button that begins a class, or its code and the address to give out."""
    with st.popover("Teach a class", icon=":material/groups:", type="tertiary"):
        code = polls.code()
        if not code:
            st.markdown(ABOUT)
            st.button("Begin a class", key="class_begin", type="primary", on_click=_begin)
            return
        st.markdown(f"The code of your class is **{code}**. Its address:")
        st.code(_link(code), language=None, wrap_lines=True)
        st.caption("Links of lessons that you open from here carry the code, too.")
        if st.session_state.get(_MINE) == code:  # whoever else has the code may not
            st.button("End the class", key="class_end", on_click=_end, help="Forgets the counts at once.")


def _link(code: str) -> str:
    return f"{(st.context.url or 'http://localhost:8501/lessons').split('?')[0]}?{urlencode({address.CLASS: code})}"


@clicks.guarded
def _begin() -> None:
    if earlier := st.session_state.get(_MINE):  # a session has one class
        polls.polls().end(earlier)
    visit.current().poll = st.session_state[_MINE] = polls.polls().begin()


@clicks.guarded
def _end() -> None:
    polls.polls().end(visit.current().poll)
    visit.current().poll = ""
