"""HTML for notebooks: tables of escaped text, and figures that need no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from viz.figure_text import clean_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_CELL, MAX_CAPTION = 200, 1000  # characters
HEADING_PX = 110  # px: room for a figure's question and caption
STYLE = (
    "body { margin: 0; font: 15px/1.4 system-ui, sans-serif; color: #1F2933; background: white; } "
    "h2 { font-size: 17px; margin: 14px 0 4px; } p { margin: 4px 0; color: #3F4A57; }"
)


def make_table(heads: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", notes: Iterable[str] = ()) -> str:
    """A table with its title above and its notes below; every text is untrusted and escaped."""
    head = "".join(f"<th>{_escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    above = f"<p><b>{_escape(title)}</b></p>" if title else ""
    below = "".join(f"<p>{_escape(note, MAX_CAPTION)}</p>" for note in notes)
    return f"<div>{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def make_page(figures: Sequence[tuple[go.Figure, str]]) -> str:
    """Figures with their questions and captions, in a frame that contains the program which draws them."""
    from viz.report.document import plotly_js

    parts = [_make_figure(*pair) for pair in figures]
    height = sum(int(figure.layout.height or 450) + HEADING_PX for figure, _ in figures)
    page = f"<style>{STYLE}</style><script>{plotly_js()}</script>{''.join(parts)}"
    return f'<iframe srcdoc="{escape(page)}" style="border: 0; width: 100%; height: {height}px"></iframe>'


def _make_figure(figure: go.Figure, caption: str) -> str:
    from viz import theme
    from viz.chart_registry import find

    key = figure.layout.meta["key"]
    picture = figure.to_html(full_html=False, include_plotlyjs=False, config=theme.config(key))
    return f"<h2>{_escape(find(key).question)}</h2>{picture}<p>{_escape(caption, MAX_CAPTION)}</p>"


def _escape(text: object, limit: int = MAX_CELL) -> str:
    return escape(clean_text(" ".join(str(text).split()), limit))
