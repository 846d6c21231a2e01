"""One chart alone: on a projector with its question and one line on where it is from, until Escape; or in a frame.

``presentation=true`` fills a projector's screen. ``frame=1`` is for frames on other pages, without menu, heading or
padding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.session import address, state
from app.text import plain, safe_text
from app.widgets import window_style

if TYPE_CHECKING:
    import plotly.graph_objects as go

HELP = "Fill the window with one chart, for a projector. Escape leaves, b blanks the screen."
LARGE = "html:not(:has(.st-key-presented)) { font-size: 19px; }"  # of a page without a chart
MOST_CONTROLS = 4
HEIGHT, BARE_HEIGHT = 444, 418  # lines of the chart
FRAME = 540  # px: a frame's height until the browser says it
SCREEN = 4 / 3  # width of a window, of its height, until the browser says it
_KEY, _CHANGED = "_presented", "_presented_changed"  # in the session: the chart, and whether it was just chosen or left
_WORDS = "_presented_words"  # in the session: what stands above the chart
_STAGED = "_presented_staged"  # in the session: whether the page has drawn it


def enter() -> None:
    """At the start of a page: enlarge it; its first chart, or the one that the address names, will fill the window.

    The address is written here and not in callbacks: where a part of the page is redrawn alone and then all of it, the
    browser may never hear what the callback wrote.
    """
    st.session_state.pop(_CHANGED, None)
    st.session_state[_STAGED] = False
    st.session_state[_KEY] = state.linked(address.SINGLE_CHART) or st.session_state.get(_KEY, "")
    state.write(address.SINGLE_CHART, st.session_state[_KEY] if state.alone() else "")
    if state.alone():
        bare = state.bare()
        sheet = window_style.style(bare, bare and state.clear(), controls())
        sheet += f":root {{ --mergescope-ground: {'#12161B' if state.dark() else 'white'}; }}"
        st.html(f"<style>{sheet}{'' if bare else LARGE}</style>")


def settle() -> None:
    """At the end of a page: in a frame, say that the chart is not there if it is not."""
    if state.bare() and not st.session_state.get(_STAGED):
        named = safe_text(st.session_state.get(_KEY, ""), 60)
        with st.container(key="absent"):
            st.info(f"This view has no chart called “{named}”." if named else "This view has no chart.")


def controls() -> list[str]:
    """The keys of the address whose controls stay beside a chart that is alone."""
    named = [name.strip() for name in st.query_params.get(address.CONTROLS, "").split(",")]
    return list(dict.fromkeys(name for name in named if name in address.KEYS))[:MOST_CONTROLS]


def choose(key: str) -> None:
    """Present this chart from now on; the empty key stands for the first one of the page."""
    st.session_state[_KEY] = key


def say(words: str) -> None:
    """Let these words, which are Markdown, stand above the chart in place of its question; none if they are empty."""
    st.session_state[_WORDS] = words


def words(stage: Stage) -> bool:
    """Draw the words above the chart; returns whether there are any."""
    if said := str(st.session_state.get(_WORDS, "")):
        with st.container(key="presented_words", height=stage.words, border=False):
            st.markdown(said)
    return bool(said)


def follow() -> None:
    """In a part of the page that is redrawn alone: redraw all of it, if a chart was just presented or left."""
    if st.session_state.pop(_CHANGED, False):
        st.rerun()


def takes(key: str) -> bool:
    """Whether the chart ``key`` is the one to present; the first that asks is, if none is named."""
    if not st.session_state.get(_KEY):
        st.session_state[_KEY] = key
        state.write(address.SINGLE_CHART, key)
    return bool(st.session_state[_KEY] == key)


def button(key: str) -> None:
    """The button that presents the chart ``key``."""
    st.button(
        "Present", key=f"present_{key}", type="tertiary", icon=":material/slideshow:", on_click=_present, args=(key,),
        help=HELP,
    )  # fmt: skip


def _present(key: str) -> None:
    st.session_state[_KEY], st.session_state[_CHANGED] = key, True
    st.session_state[address.PRESENTATION] = True


@cache
def _window() -> Any:
    """The part of the page that says how high the window is, registered once."""
    return st.components.v2.component("mergescope_window", js=(window_style.HERE / "window.js").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Stage:
    """What a chart that is alone fills; ``factor`` is that of all its lengths.

    ``height`` is the chart's in px, ``words`` that of the words above it, in place of its question.
    """

    factor: float
    height: int
    words: int
    bare: bool
    clear: bool

    def fitted(self, figure: go.Figure) -> go.Figure:
        """The figure in this size."""
        from viz import theme

        large = theme.enlarged(figure, self.factor)
        large.layout.height = self.height
        large = theme.with_bar(large, grow=False)
        return theme.transparent(large) if self.clear else large


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """What is drawn inside fills the window, with a button that leaves unless it is in a frame."""
    st.session_state[_STAGED] = True
    bare, row = state.bare(), bool(controls())
    with st.container(key="presented"):
        least = round(window_style.LEAST * window_style.BARE_LINES)
        data = {"bare": bare, "least": least, "figure": st.session_state.get(_KEY, "")}
        window = _window()(
            key="window", data=data, on_height_change=lambda: None, on_width_change=lambda: None, height=0
        )
        high = float(window.height or (FRAME if bare else 2 * window_style.lines(bare)))
        factor = max(high / window_style.lines(bare), window_style.LEAST if bare else 0.0)
        wide = float(window.width or SCREEN * high) / factor
        said = window_style.words_height(plain(str(st.session_state.get(_WORDS, ""))), wide)
        if bare:
            height = high - factor * (window_style.BARE_LINES - BARE_HEIGHT + (window_style.BARE_CONTROL if row else 0))
        else:
            height = factor * (HEIGHT - (window_style.CONTROL if row else 0) - max(said - window_style.QUESTION, 0))
        yield Stage(factor, round(height), round(factor * said) or 1, bare, bare and state.clear())
        if not bare:
            st.button("Leave", key="leave", type="tertiary", on_click=leave, shortcut="Escape")


def leave() -> None:
    """Show the page again."""
    st.session_state[address.PRESENTATION] = False
    st.session_state.pop(_KEY, None)
    st.session_state[_CHANGED] = True
