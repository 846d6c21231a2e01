"""One chart alone: on a projector with its question and its line of provenance, until Escape; or in a frame.

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

from app.page_text import plain_text, safe_text
from app.session import address, view_state
from app.widgets import window_style

if TYPE_CHECKING:
    import plotly.graph_objects as go

PRESENT_HELP = "Fill the window with one chart, for a projector. Escape leaves, b blanks the screen."
LARGE_CSS = "html:not(:has(.st-key-presented)) { font-size: 19px; }"  # of a page without a chart
MAX_CONTROLS = 4
# Height of the chart, in units of ``window_style``, on a projector and in a frame.
CHART_LINES, BARE_CHART_LINES = 444, 418
FRAME_PX = 540  # px: assumed height of a frame, until the browser sends its height
SCREEN_RATIO = 4 / 3  # assumed width of a window over its height, until the browser sends it
# In the session: the chart, and whether it was just chosen or left.
_CHART_KEY, _CHANGED_KEY = "_presented", "_presented_changed"
_WORDS_KEY = "_presented_words"  # in the session: the words above the chart
_STAGED_KEY = "_presented_staged"  # in the session: whether the page has drawn the chart


def begin_page() -> None:
    """At the start of a page: enlarge it. Its first chart, or the chart in the address, will fill the window.

    This function writes the address, not the callbacks: if a part of the page is redrawn alone and then the whole page,
    the browser may never receive the change from the callback.
    """
    st.session_state.pop(_CHANGED_KEY, None)
    st.session_state[_STAGED_KEY] = False
    st.session_state[_CHART_KEY] = view_state.value_from_link(address.SINGLE_CHART) or st.session_state.get(
        _CHART_KEY, ""
    )
    view_state.write_parameter(
        address.SINGLE_CHART, st.session_state[_CHART_KEY] if view_state.is_single_chart() else ""
    )
    if view_state.is_single_chart():
        bare = view_state.is_framed()
        css = window_style.window_css(bare, bare and view_state.has_clear_background(), control_keys())
        css += f":root {{ --mergescope-ground: {'#12161B' if view_state.has_dark_ground() else 'white'}; }}"
        st.html(f"<style>{css}{'' if bare else LARGE_CSS}</style>")


def end_page() -> None:
    """At the end of a page: in a frame, report a missing chart."""
    if view_state.is_framed() and not st.session_state.get(_STAGED_KEY):
        chart_key = safe_text(st.session_state.get(_CHART_KEY, ""), 60)
        with st.container(key="absent"):
            st.info(f"This view has no chart called “{chart_key}”." if chart_key else "This view has no chart.")


def control_keys() -> list[str]:
    """The keys in the address whose controls stay visible with a single chart."""
    names = [name.strip() for name in st.query_params.get(address.CONTROLS, "").split(",")]
    return list(dict.fromkeys(name for name in names if name in address.KEYS))[:MAX_CONTROLS]


def choose_chart(key: str) -> None:
    """Present this chart; an empty key presents the page's first chart."""
    st.session_state[_CHART_KEY] = key


def set_words(words: str) -> None:
    """Set the words (Markdown) above the chart, instead of its question; empty words leave the question."""
    st.session_state[_WORDS_KEY] = words


def draw_words(stage: ChartStage) -> bool:
    """Draw the words above the chart; returns whether there are any."""
    if words := str(st.session_state.get(_WORDS_KEY, "")):
        with st.container(key="presented_words", height=stage.words, border=False):
            st.markdown(words)
    return bool(words)


def rerun_if_changed() -> None:
    """In a part of the page that is redrawn alone: redraw the whole page if a chart was just presented or left."""
    if st.session_state.pop(_CHANGED_KEY, False):
        st.rerun()


def redraw_page() -> None:
    """Callback: redraw the whole page, although the click is in a part of it that is redrawn alone."""
    st.session_state[_CHANGED_KEY] = True


def is_single_chart(key: str) -> bool:
    """Whether the chart ``key`` is presented; if the session names none, the first chart of the page is."""
    if not st.session_state.get(_CHART_KEY):
        st.session_state[_CHART_KEY] = key
        view_state.write_parameter(address.SINGLE_CHART, key)
    return bool(st.session_state[_CHART_KEY] == key)


def is_other_presented(key: str) -> bool:
    """Whether a chart is presented, but not this one; also if the page's first chart is, and none is chosen yet."""
    return view_state.is_single_chart() and st.session_state.get(_CHART_KEY) != key


def draw_present_button(key: str) -> None:
    """The button that presents the chart ``key``."""
    st.button(
        "Present", key=f"present_{key}", type="tertiary", icon=":material/slideshow:", on_click=_present_chart,
        args=(key,),
        help=PRESENT_HELP,
    )  # fmt: skip


def _present_chart(key: str) -> None:
    st.session_state[_CHART_KEY], st.session_state[_CHANGED_KEY] = key, True
    st.session_state[address.PRESENTATION] = True


@cache
def _window_component() -> Any:
    """The component that sends the height of the window, registered once."""
    return st.components.v2.component("mergescope_window", js=(window_style.FOLDER / "window.js").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class ChartStage:
    """The area of a single chart; ``factor`` scales all its lengths.

    ``height`` is the chart's height and ``words`` the height of the text above it, in px. ``bare`` is True in a frame,
    ``clear`` in a frame without a background.
    """

    factor: float
    height: int
    words: int
    bare: bool
    clear: bool

    def fit_figure(self, figure: go.Figure) -> go.Figure:
        """The figure in this size."""
        from viz import theme

        large = theme.enlarge_figure(figure, self.factor)
        large.layout.height = self.height
        large = theme.add_toolbar_strip(large, grow=False)
        return theme.remove_ground(large) if self.clear else large


@contextlib.contextmanager
def draw_stage() -> Iterator[ChartStage]:
    """The chart that is drawn inside fills the window, with a button that leaves, except in a frame."""
    st.session_state[_STAGED_KEY] = True
    bare, has_controls = view_state.is_framed(), bool(control_keys())
    with st.container(key="presented"):
        min_line_px = round(window_style.MIN_LINE_PX * window_style.BARE_LINES)
        data = {"bare": bare, "least": min_line_px, "figure": st.session_state.get(_CHART_KEY, "")}
        window = _window_component()(
            key="window", data=data, on_height_change=lambda: None, on_width_change=lambda: None, height=0
        )
        window_height = float(window.height or (FRAME_PX if bare else 2 * window_style.window_lines(bare)))
        factor = max(window_height / window_style.window_lines(bare), window_style.MIN_LINE_PX if bare else 0.0)
        width_lines = float(window.width or SCREEN_RATIO * window_height) / factor
        words = window_style.words_height(plain_text(str(st.session_state.get(_WORDS_KEY, ""))), width_lines)
        if bare:
            height = window_height - factor * (
                window_style.BARE_LINES - BARE_CHART_LINES + (window_style.BARE_CONTROL_LINES if has_controls else 0)
            )
        else:
            height = factor * (
                CHART_LINES
                - (window_style.CONTROL_LINES if has_controls else 0)
                - max(words - window_style.QUESTION_LINES, 0)
            )
        yield ChartStage(
            factor, round(height), round(factor * words) or 1, bare, bare and view_state.has_clear_background()
        )
        if not bare:
            st.button("Leave", key="leave", type="tertiary", on_click=leave_chart, shortcut="Escape")


def leave_chart() -> None:
    """Show the page again."""
    st.session_state[address.PRESENTATION] = False
    st.session_state.pop(_CHART_KEY, None)
    st.session_state[_CHANGED_KEY] = True
