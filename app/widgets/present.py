"""One chart on a projector: it fills the window with its question and one line on where it is from; Escape leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import streamlit as st

from app.session import address, state
from viz.theme import PRESENTED_LINES as LINES

HELP = "Fill the window with one chart, for a projector. Escape leaves."
ONE = "html:has(.st-key-presented)"
STYLE = f"""<style>
html:not(:has(.st-key-presented)) {{ font-size: 19px; }}
{ONE} [data-testid="stApp"] * {{ visibility: hidden; }}
{ONE} .st-key-presented, {ONE} .st-key-presented * {{ visibility: visible; }}
.st-key-presented {{
  --line: calc(100vh / {LINES}); position: fixed; inset: 0; z-index: 1000000; box-sizing: border-box; background: white;
  width: 100vw; height: 100vh; overflow: hidden; padding: calc(12 * var(--line)) calc(20 * var(--line)) 0;
  gap: calc(4 * var(--line));
}}
.st-key-presented h2 {{ font-size: calc(20 * var(--line)); line-height: 1.3; padding: 0; }}
.st-key-presented [data-testid="stCaptionContainer"] p {{ font-size: calc(12 * var(--line)); }}
.st-key-presented .st-key-leave {{ position: absolute; right: 1vw; bottom: 0.5vh; width: auto; }}
.st-key-presented .st-key-leave button, .st-key-presented .st-key-leave button * {{
  font-size: calc(12 * var(--line)); min-height: 0;
}}
</style>"""
HEIGHT = """export default ({ setStateValue }) => {
  let timer;
  const tell = () => setStateValue("height", window.innerHeight);
  const later = () => { clearTimeout(timer); timer = setTimeout(tell, 300); };
  tell();
  window.addEventListener("resize", later);
  return () => { clearTimeout(timer); window.removeEventListener("resize", later); };
};"""
_KEY, _CHANGED = "_presented", "_presented_changed"  # in the session: the chart, and whether it was just chosen or left


def enter() -> None:
    """At the start of a page: enlarge it; its first chart, or the one that the address names, will fill the window.

    The address is written here and not in callbacks: where a part of the page is redrawn alone and then all of it, the
    browser may never hear what the callback wrote.
    """
    st.session_state.pop(_CHANGED, None)
    st.session_state[_KEY] = state.linked(address.FIGURE) or st.session_state.get(_KEY, "")
    state.write(address.FIGURE, st.session_state[_KEY] if state.present() else "")
    if state.present():
        st.html(STYLE)


def follow() -> None:
    """In a part of the page that is redrawn alone: redraw all of it, if a chart was just presented or left."""
    if st.session_state.pop(_CHANGED, False):
        st.rerun()


def takes(key: str) -> bool:
    """Whether the chart ``key`` is the one to present; the first that asks is, if none is named."""
    if not st.session_state.get(_KEY):
        st.session_state[_KEY] = key
        state.write(address.FIGURE, key)
    return bool(st.session_state[_KEY] == key)


def button(key: str) -> None:
    """The button that presents the chart ``key``."""
    st.button(
        "Present", key=f"present_{key}", type="tertiary", icon=":material/slideshow:", on_click=_present, args=(key,),
        help=HELP,
    )  # fmt: skip


def _present(key: str) -> None:
    st.session_state[_KEY], st.session_state[_CHANGED] = key, True
    st.session_state[address.PRESENT] = True


@cache
def _window() -> Any:
    """The part of the page that says how high the window is, registered once."""
    return st.components.v2.component("mergescope_window", js=HEIGHT)


@contextlib.contextmanager
def stage() -> Iterator[float]:
    """What is drawn inside fills the window, with a button that leaves; gives the factor of all its lengths."""
    with st.container(key="presented"):
        window = _window()(key="window", on_height_change=lambda: None, height=0)
        yield float(window.height or 2 * LINES) / LINES
        st.button("Leave", key="leave", type="tertiary", on_click=leave, shortcut="Escape")


def leave() -> None:
    """Show the page again."""
    st.session_state[address.PRESENT] = False
    st.session_state.pop(_KEY, None)
    st.session_state[_CHANGED] = True
