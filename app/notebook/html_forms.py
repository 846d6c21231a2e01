"""HTML for notebooks: tables of escaped text, and figures that need no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from viz.figure_text import clean_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_TEXT, HEADING_PX = 1000, 110  # characters of a text; px for the question and the caption of a figure
STYLE = "body { margin: 0; font: 15px/1.4 system-ui, sans-serif; background: white; } h2 { font-size: 17px; }"


def make_table(rows: Iterable[Sequence[object]], notes: Iterable[str], title: str, heads: Sequence[str] = ()) -> str:
    """A table with its title above and its notes below; every text is untrusted and escaped."""
    head = "".join(f"<th>{_escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = "".join(f"<p>{_escape(note)}</p>" for note in notes)
    return f"<b>{_escape(title)}</b><table><thead>{head}</thead><tbody>{body}</tbody></table>{below}"


def make_page(figures: Sequence[tuple[go.Figure, str]]) -> str:
    """Figures with their questions and captions, in a frame that contains the program which draws them."""
    from viz import theme
    from viz.chart_registry import find
    from viz.report.document import plotly_js

    page, height = f"<meta charset='utf-8'><style>{STYLE}</style><script>{plotly_js()}</script>", 0
    for figure, caption in figures:
        key = figure.layout.meta["key"]
        picture = figure.to_html(full_html=False, include_plotlyjs=False, config=theme.config(key))
        page += f"<h2>{_escape(find(key).question)}</h2>{picture}<p>{_escape(caption)}</p>"
        height += int(figure.layout.height) + HEADING_PX
    attributes = f'sandbox="allow-scripts allow-downloads" style="border: 0; width: 100%; height: {height}px"'
    return f'<iframe {attributes} srcdoc="{escape(page)}"></iframe>'  # not of the notebook's origin


def _escape(text: object) -> str:
    return escape(clean_text(" ".join(str(text).split()), MAX_TEXT))
