"""Pieces of every page: its heading, links to other pages, empty states, and the address of the view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app.reading import glossary
from app.session import address, benchmark_choice, explained_words, pages, run_choice, view_state

SAME_ADDRESS_NOTE = "This is also the address of this page."
TOKEN_NOTE = "The address of this page also opens your report, for reading and for changes; this link leaves that out."
_CAUTIONS_KEY = "_cautions"
ROW_PX = 35  # height of a row of a table
READABLE_CSS = """<style>
[data-testid="stCaptionContainer"], [data-testid="stImageCaption"], [data-testid="stExpander"] summary { opacity: 0.8; }
[class*="st-key-preview_result_"] [data-stale="true"], [class*="st-key-preview_earlier_"] { opacity: 0.45 !important; }
a[href^="methods?word="] { color: inherit; text-decoration: underline dotted; text-underline-offset: 0.2em; }
a[href^="methods?word="]:focus-visible { position: relative; }
a[href^="methods?word="]:focus-visible::after {
  content: attr(title); position: absolute; left: 0; top: 1.7em; z-index: 9; width: max-content; max-width: 20rem;
  padding: 0.4rem 0.6rem; border-radius: 0.25rem; background: INK; color: GROUND; font-size: 0.875rem;
}
@media (max-width: 1100px) {
  [data-testid="stMainBlockContainer"] { padding-left: 2rem !important; padding-right: 2rem !important; }
}
@media (max-width: 640px) {
  :is(WIDE) { overflow-x: auto; }
  :is(WIDE) > div { min-width: 640px; }
}
[data-testid="stMainBlockContainer"]:has(.st-key-one_screen) { padding: 1.5rem 2.5rem 0.5rem; }
:has(.st-key-one_screen) > [data-testid="stVerticalBlock"] { gap: 0.6rem; }
.st-key-one_screen [data-testid="stWidgetLabel"] { display: none; }
.st-key-story li { font-size: 0.875rem; line-height: 1.4; }
[class*="st-key-small_of_"] a p { white-space: normal; line-height: 1.2; }
[data-testid="stSidebarContent"] { display: flex; flex-direction: column; }
[data-testid="stSidebarContent"] > * { flex-shrink: 0; }
[data-testid="stSidebarUserContent"] { order: 1; padding-top: 0; padding-bottom: 0.5rem; }
[data-testid="stSidebarNav"] { order: 2; }
[data-testid="stSidebarUserContent"] .st-key-jobs { max-height: 15rem; overflow-y: auto; flex-wrap: nowrap; }
[data-testid="stSidebarUserContent"] .st-key-jobs > * { flex-shrink: 0; }
[class*="st-key-hand_row_"] { flex-wrap: nowrap; }
[class*="st-key-hand_row_"] :is(button, a) *, .st-key-jobs a * { white-space: normal; height: auto; }
[class*="st-key-hand_row_"] :is(button, a), .st-key-jobs a { text-align: left; min-height: 1.5rem; padding: 0; }
[class*="st-key-hand_row_"] button, [class*="st-key-hand_row_"] button * { justify-content: start; }
.katex-display { overflow-y: hidden; padding: 0.3em 0.2em; }
.katex-display > .katex { white-space: normal; }
kbd { color: inherit !important; opacity: 1 !important; }
:focus-visible, label:has(input:focus-visible) { outline: 2px solid MARK !important; outline-offset: 1px; }
@media (prefers-reduced-motion: reduce) {
  *, *::before, *::after {
    animation-duration: 0.01ms !important; animation-iteration-count: 1 !important;
    transition-duration: 0.01ms !important;
    scroll-behavior: auto !important;
  }
}
</style>"""
# Charts with a column for each block or model: on a phone they scroll sideways.
WIDE_CHARTS = ("network_map", "feature_map", "saliency_matrix", "sign_layers", "drift_layers", "revert_map")
LIGHT_COLORS = {"INK": "#1F2933", "GROUND": "white", "MARK": view_state.LINK_COLORS[False]}
DARK_COLORS = {"INK": "#E8EDF2", "GROUND": "#12161B", "MARK": view_state.LINK_COLORS[True]}
PRIMARY_TEXT_CSS = """<style>
[data-tag], [data-tag] *, [data-testid="stBaseButton-primary"], [data-testid="stBaseButton-primary"] *,
[data-testid="stBaseButton-primaryFormSubmit"], [data-testid="stBaseButton-primaryFormSubmit"] * {
  color: #12161B !important;
}
</style>"""  # the primary color of the dark theme is light, and Streamlit writes white on it
# Streamlit's captions and folded lines have a contrast of 4.1, and its focus on links is a gray ground. The numbers
# of an earlier preview are faint until the next ones come. Its wide margins waste a narrow window.
# Formulas break at their signs instead of needing a scroll bar, which no key reaches in some browsers.
# The menu fills a low window, so the runs in hand and the jobs are above it.


def draw_heading(title: str, sentence: str = "") -> None:
    """Draw the page's title and its purpose, unless the page speaks for itself; both are trusted Markdown."""
    st.title(title, anchor=False, width="content")
    explained_words.begin_page()
    if sentence:
        st.markdown(explain_words(sentence, "heading"))


def explain_words(markdown: str, position: str) -> str:
    """The Markdown with links from glossary words to their explanation, where the page first uses a word.

    ``position`` names the text's position on the page, so that a part that is redrawn alone links the same words again.
    """
    explained = explained_words.words_in_other_positions(position)
    linked, used = glossary.link_words(markdown, explained)
    explained_words.note_explained(position, used)
    return linked


def draw_style() -> None:
    """Make captions, and the outline of the element with the keyboard's focus, clearly visible."""
    css = READABLE_CSS
    for word, color in (DARK_COLORS if view_state.has_dark_ground() else LIGHT_COLORS).items():
        css = css.replace(word, color)
    css = css.replace("WIDE", ", ".join(f".st-key-chart_{key}" for key in WIDE_CHARTS))
    st.html(css + (PRIMARY_TEXT_CSS if view_state.has_dark_ground() else ""))


def draw_page_link(path: str, label: str, icon: str, width: Any = "content", **query: str | list[str]) -> None:
    """Draw a link to a page with state; it can be opened in a new tab like any other link."""
    query |= benchmark_choice.link_query()
    sign = f":material/{icon}:" if icon else None
    st.page_link(path, label=label, icon=sign, query_params=query or None, width=width)


def draw_run_link(run_id: str, label: str, position: str, width: Any = "stretch") -> None:
    """Draw a run's name as a link to its page; on that page, which reads no second link, as a button that picks it."""
    if not view_state.is_on_page(pages.RUN):
        draw_page_link(pages.RUN, label, "", width, run=run_id)
    else:
        key = f"{position}_{run_id}"
        if st.button(label, key=key, on_click=run_choice.pick_run, args=(run_id,), type="tertiary", width=width):
            st.rerun()  # the tray is drawn apart from the page


def pick_label(label: str, values: Mapping[str, str], key: str, **options: Any) -> str:
    """Draw a picker, whose label is in the address under ``key``; returns the value of the chosen label."""
    return values[st.selectbox(label, values, key=key, bind=address.BIND, **options)]


def pick_button(label: str, choices: Sequence[str] | Mapping[str, Any], key: str, **options: Any) -> str:
    """Draw buttons of which one is pressed, at first the first one; the choice is in the address under ``key``."""
    return st.segmented_control(
        label, choices, default=next(iter(choices)), key=key, bind=address.BIND, required=True, **options
    )


def draw_table(table: Any, alt: str, columns: Mapping[Any, Any] | None = None, height: Any = "content") -> None:
    """Draw a table without its index, ``height`` px high or as high as its rows; ``columns`` are their settings."""
    st.dataframe(table, hide_index=True, height=height, column_config=columns, alt=alt, placeholder="—")


def table_height(rows: int, max_height: int) -> int:
    """Height in px of a table: all of its rows, at most ``max_height``."""
    return min(ROW_PX * (rows + 1) + 3, max_height)


def draw_empty(sentence: str, label: str, path: str, **query: str) -> None:
    """Draw a sentence about missing results, and a link to the page that makes them."""
    with st.container(border=True):
        st.markdown(sentence)
        draw_page_link(path, label, "arrow_forward", **query)


def draw_no_runs() -> None:
    """Draw that there is no run, and a link to the page that merges."""
    draw_empty("There is no run yet. Merge some experts and the result appears here.", "Merge experts", pages.MERGE)


def draw_caution(sentence: str, draw_text: Callable[[str], object] = st.warning) -> None:
    """Draw a caution about all charts below, which the report repeats with each of them. Trusted Markdown."""
    draw_text(sentence)
    cautions: list[str] = st.session_state.setdefault(_CAUTIONS_KEY, [])
    if sentence not in cautions:
        cautions.append(sentence)


def page_cautions() -> str:
    """The page's cautions about all its charts; a part that is redrawn alone has the cautions of the whole page."""
    return " ".join(st.session_state.get(_CAUTIONS_KEY, []))


def clear_cautions() -> None:
    """Forget the cautions of the page that was drawn before."""
    st.session_state[_CAUTIONS_KEY] = []


def draw_link() -> None:
    """Draw the address that restores this view."""
    with st.popover("Link", icon=":material/link:", type="tertiary", help="A link that restores this view"):
        draw_address()


def draw_address() -> None:
    """The address, with a note on its contents."""
    st.code(view_address(), language=None, wrap_lines=True)
    note = "" if view_state.implied_query() else SAME_ADDRESS_NOTE
    note = TOKEN_NOTE if address.REPORT_TOKEN in st.query_params else note
    st.caption(f"{note} It names runs by their recipes, so it works on every machine that has these runs.".strip())


def view_address() -> str:
    """The address that restores this view."""
    base, query = base_and_query()
    return f"{base}?{urlencode(query, doseq=True)}" if query else base


def base_and_query() -> tuple[str, dict[str, str | list[str]]]:
    """The address of the page, and the keys and values of this view, without the report's token."""
    base = (st.context.url or "http://localhost:8501/").split("?")[0]
    return base, view_state.view_query()
