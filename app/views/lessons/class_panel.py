"""A class on the page Lessons: the field that joins it by its code, and the code, address and QR code to share."""

from __future__ import annotations

import re
from urllib.parse import urlencode, urlsplit

import streamlit as st

from app.page_text import safe_text
from app.reading import polls
from app.session import address, click_errors, lesson_visit
from app.widgets import qr_code
from merging.tasks.workers.certificates import is_this_machine
from merging.teaching.poll_counts import CODE_LENGTH

_HOSTED_CODE_KEY = "_class_begun"  # session key: the code of the class that this session started
# Session keys: the typed code, and a code without a class.
_TYPED_CODE_KEY, _UNKNOWN_CODE_KEY = "class_code", "_class_unknown"
WILDCARD_ADDRESSES = {"0.0.0.0", "::"}  # addresses to listen on, which other machines cannot open
MAX_CODE_LENGTH = 20  # characters of a typed code, which may have blanks
COUNTING_NOTE = (
    "The guesses and answers of every session that opens a lesson with your code are counted, step by step. Present a "
    "step to see the counts. Nothing else is stored, and the counts are deleted after a day."
)
JOINED_NOTE = "You are in class **{}**: your answers are counted, without your name."
UNKNOWN_CODE = (
    "This server has no class with the code “{}”. Compare it letter by letter. A class ends after a day, "
    "or when its teacher ends it."
)
LOCAL_ADDRESS_NOTE = (
    "Others cannot open this address: on any other computer it points to that computer. Start the server for your "
    "network as “A lecturer’s laptop” in docs/serving.md describes (`STREAMLIT_SERVER_ADDRESS=0.0.0.0` and your "
    "computer’s own address in `STREAMLIT_SERVER_ALLOWED_HOSTS`), open Mergescope at that address yourself, and begin "
    "the class there."
)


def draw_class() -> None:
    """Draw the field that joins a class, or the joined class, and the button that begins a class."""
    code = polls.class_code()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="class_row"):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small", width="content"):
            _draw_join_field(code)
        _draw_host_panel(code)
    if unknown := str(st.session_state.pop(_UNKNOWN_CODE_KEY, "")):
        st.warning(UNKNOWN_CODE.format(safe_text(unknown, MAX_CODE_LENGTH)), icon=":material/group_off:")


def _draw_join_field(code: str) -> None:
    """Draw the field that joins a class, or the joined class and the button that leaves it."""
    if not code:
        st.text_input(
            "Class code", key=_TYPED_CODE_KEY, max_chars=MAX_CODE_LENGTH, placeholder=f"{CODE_LENGTH} letters",
            width=180, on_change=_join_class,
            help="Your teacher’s code. Your guesses and answers are then counted in the class.",
        )  # fmt: skip
        st.button("Join the class", key="class_join", on_click=_join_class)
    elif st.session_state.get(_HOSTED_CODE_KEY) != code:
        st.markdown(JOINED_NOTE.format(code), width="content")
        st.button("Leave the class", key="class_leave", type="tertiary", on_click=_leave_class)


def _draw_host_panel(code: str) -> None:
    """Draw the button that begins a class, or its code and the address to share."""
    with st.popover("Teach a class", icon=":material/groups:", type="tertiary"):
        if not code:
            st.markdown(COUNTING_NOTE)
            st.button("Begin a class", key="class_begin", type="primary", on_click=_begin_class)
            return
        st.markdown(f"The code of your class is **{code}**. Students type it on this page, or open this address:")
        class_link = _class_link(code)
        st.code(class_link, language=None, wrap_lines=True)
        host = urlsplit(class_link).hostname or ""
        if is_this_machine(host) or host in WILDCARD_ADDRESSES:
            st.warning(LOCAL_ADDRESS_NOTE, icon=":material/wifi_off:")
        st.image(qr_code.qr_svg(class_link), caption="Scan to open this address", width=240)
        st.caption("Links of lessons that you open from this page contain the code, too.")
        if st.session_state.get(_HOSTED_CODE_KEY) == code:  # only the session that began the class may end it
            st.button("End the class", key="class_end", on_click=_end_class, help="Deletes the counts at once.")


def _class_link(code: str) -> str:
    return f"{(st.context.url or 'http://localhost:8501/lessons').split('?')[0]}?{urlencode({address.CLASS: code})}"


def _join_class() -> None:
    """Callback: join the class of the typed code; case, blanks and hyphens are ignored."""
    typed_code = str(st.session_state.get(_TYPED_CODE_KEY, ""))
    code = re.sub(r"[\s-]", "", typed_code).upper()
    if polls.server_polls().is_open(code):
        lesson_visit.current_visit().class_code = code
    elif code:
        st.session_state[_UNKNOWN_CODE_KEY] = typed_code


def _leave_class() -> None:
    lesson_visit.current_visit().class_code = ""


@click_errors.guard_callback
def _begin_class() -> None:
    if earlier := st.session_state.get(_HOSTED_CODE_KEY):  # a session has at most one class
        polls.server_polls().end(earlier)
    lesson_visit.current_visit().class_code = st.session_state[_HOSTED_CODE_KEY] = polls.server_polls().begin()


@click_errors.guard_callback
def _end_class() -> None:
    polls.server_polls().end(lesson_visit.current_visit().class_code)
    lesson_visit.current_visit().class_code = ""
