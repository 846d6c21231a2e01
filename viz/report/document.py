"""Writes a report as one HTML document, which contains plotly.js to draw its figures.

The templates in this folder write it and escape all text. Figures are in the document as JSON, which no browser runs.
The document's security policy names the scripts that may run by their hashes, and allows no request of any kind.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viz.figure_text import plural
from viz.report import private_names, templates
from viz.report.report_contents import Report, ReportError, ReportView, Source
from viz.report.report_tables import TableText, table_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

REPORT_FOLDER = Path(__file__).parent
MAX_NAMED_RUNS = 8  # runs that a figure names, and that show their recipes unfolded
DEFAULT_TITLE = "A report of merged models"


@dataclass(frozen=True)
class Section:
    """One view with the contents of its section: ``words`` is the alt text of the figure, ``figure`` is JSON."""

    number: int
    view: ReportView
    question: str
    heading: str
    caption: str
    words: str
    figure: str
    sources: list[Source]  # those that the section names
    more_sources: int
    table: TableText | None


def write_report(report: Report, private: private_names.PrivateNames) -> str:
    """The document; raises ReportError if something private is in it, or if it has neither view nor entry.

    Entries are a learner's answers at the steps of a lesson; ``kept`` is JSON from which the app restores them. Both
    contain what the learner typed, and are not checked for private text.
    """
    if not report.views and not report.entries:
        raise ReportError("There is nothing in the report yet. Add views to it first.")
    private_names.check_report(report, private)
    title = report.title.strip() or DEFAULT_TITLE
    write_body = partial(
        templates.fill_template,
        "report.html.j2",
        title=title,
        counts=_counts_in_words(report),
        sections=[_make_section(report, number, view) for number, view in enumerate(report.views, 1)],
        # by digests of inputs: the first source with them, to which later sources refer
        first_of={source.digests: source for source in reversed(report.sources)},
        fold_recipes=len(report.sources) > MAX_NAMED_RUNS,  # many recipes would hide how the runs differ
    )
    style, draw = (_read_file(name) for name in ("style.css", "draw.js"))
    checked = write_body(report=replace(report, entries=(), kept=""))
    # plotly.js is not checked: it has nothing private and is megabytes long
    private_names.check_document(checked + style + draw, private)
    return _fill_page(
        title, write_body(report=replace(report, kept=escape_script(report.kept))), has_figures=bool(report.views)
    )


def write_figure(figure: go.Figure, title: str, notes: Sequence[str]) -> str:
    """One figure as a document of its own, with its title above and its notes below, which are plain text."""
    words = figure.layout.meta["alt"]
    body = templates.fill_template("figure.html.j2", title=title, notes=notes, words=words, figure=figure_json(figure))
    return _fill_page(title, body)


def _fill_page(title: str, body: str, has_figures: bool = True) -> str:
    """The whole document around ``body``, whose texts are escaped; without figures it has no script."""
    scripts = (plotly_js(), _read_file("draw.js")) if has_figures else ()
    hashes, style = [_hash_script(script) for script in scripts], _read_file("style.css")
    return templates.fill_template("page.html.j2", title=title, style=style, body=body, scripts=scripts, hashes=hashes)


def plotly_js() -> str:
    """The program that draws the figures, about five megabytes."""
    from plotly.offline import get_plotlyjs

    program: str = get_plotlyjs()
    return program


def figure_json(figure: go.Figure) -> str:
    """A figure as JSON that may stand inside a script element: no tag and no comment can begin in it."""
    return script_json(plain_figure(figure))


def plain_figure(figure: go.Figure) -> dict[str, Any]:
    """A figure as plain data, with room for its tool bar and without the fields that only the app uses."""
    from viz import theme

    plain: dict[str, Any] = json.loads(theme.add_toolbar_strip(figure).to_json(validate=False))
    plain["layout"].pop("dragmode", None)  # a report does not read a lasso's selection
    for trace in plain["data"]:
        trace.pop("customdata", None)  # the fields that a click returns to the app
        if trace["type"] == "scattergl":  # WebGL compiles code while it draws, which the policy forbids
            trace["type"] = "scatter"
    return plain


def script_json(value: object) -> str:
    """Plain data as JSON that may stand inside a script element: no tag and no comment can begin in it."""
    return escape_script(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def escape_script(text: str) -> str:
    """JSON text with the escapes that ``script_json`` needs."""
    return re.sub(r"[<>&\u2028\u2029]", lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _counts_in_words(report: Report) -> str:
    """The numbers of figures, runs and sweeps, in words."""
    kinds = Counter(source.kind.lower() for source in report.sources)
    sources = " and ".join(plural(number, kind) for kind, number in kinds.items())
    return f"{plural(len(report.views), 'figure')}{f' of {sources}' if sources else ''}"


def _make_section(report: Report, number: int, view: ReportView) -> Section:
    """Draw a view and build its section."""
    from viz.chart_registry import find

    chart, figure = find(view.key), view.draw()
    by_id = {source.id: source for source in report.sources}
    sources = [by_id[key] for key in view.sources if key in by_id]
    return Section(
        number=number,
        view=view,
        question=chart.question,
        heading=view.title or chart.question,
        caption=view.caption or f"{chart.title}.",
        words=figure.layout.meta["alt"],
        figure=figure_json(figure),
        sources=sources[:MAX_NAMED_RUNS],
        more_sources=len(sources[MAX_NAMED_RUNS:]),
        table=table_text(view.table) if report.tables else None,
    )


def _hash_script(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _read_file(name: str) -> str:
    return (REPORT_FOLDER / name).read_text("utf-8")
