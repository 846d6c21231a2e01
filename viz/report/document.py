"""Writes a report as one HTML document: text first, pictures drawn in it by plotly.js, which it carries along.

All text passes through ``_text``. Figures lie in the document as JSON, which no browser runs; what it may run is named
by its hash in the document's security policy, and that policy allows no request of any kind.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from viz.report import guard
from viz.report.contents import Report, ReportError, ReportView, Source
from viz.report.tables import table_html
from viz.text import clean_text, plural

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
LINE, LONG = 200, 5000  # characters of a heading, and of a paragraph
MOST_NAMED = 8  # runs that a figure names, and whose recipes lie open
UNTITLED = "A report of merged models"
DRAWN_BY = "plotly.js"
NO_SCRIPT = "The pictures need JavaScript, which is switched off here. Everything else can be read without it."


def write(report: Report, private: guard.Private) -> str:
    """The document; raises ReportError if it would tell of this machine, or if there is nothing in it."""
    if not report.views:
        raise ReportError("There is nothing in the report yet. Add views to it first.")
    guard.check(report, private)
    drawn = [_draw(view) for view in report.views]
    body = "\n".join(
        [
            _head(report),
            _contents(report),
            "<main>",
            *(_section(report, number, drawn[number - 1]) for number in range(1, len(drawn) + 1)),
            _sources(report),
            "</main>",
            _foot(report),
            *(_data(number, figure) for number, figure in enumerate(drawn, 1)),
        ]
    )
    style, draw = (_file(name) for name in ("style.css", "draw.js"))
    guard.check_document(body + style + draw, private)  # plotly.js is the same for everybody, and megabytes long
    return _page(_title(report), style, body, (plotly_js(), draw))


def plotly_js() -> str:
    """The program that draws the pictures, about five megabytes."""
    from plotly.offline import get_plotlyjs

    found: str = get_plotlyjs()
    return found


def figure_json(figure: go.Figure) -> str:
    """A figure as JSON that may stand inside a script element: no tag and no comment can begin in it."""
    plain = json.loads(figure.to_json(validate=False))
    plain["layout"].pop("dragmode", None)  # nothing here reads what a lasso circles
    for trace in plain["data"]:
        trace.pop("customdata", None)  # what a click hands back to the app
        if trace["type"] == "scattergl":  # which compiles code while it draws, and that is not allowed here
            trace["type"] = "scatter"
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub(r"[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _draw(view: ReportView) -> go.Figure:
    from viz.registry import find

    return find(view.key)(view.table, **{name: value for name, value in view.options.items() if name != "present"})


def _page(title: str, style: str, body: str, scripts: Sequence[str]) -> str:
    """The whole document. No address in it leads anywhere but to places in itself."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    elements = "\n".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
{elements}
</body>
</html>
"""


def _head(report: Report) -> str:
    kinds = Counter(source.kind.lower() for source in report.sources)
    of = " and ".join(plural(number, kind) for kind, number in kinds.items())
    counts = f"{plural(len(report.views), 'figure')}{f' of {of}' if of else ''}"
    return (
        f'<header>\n<h1>{_title(report)}</h1>\n<p class="counts">{counts}</p>\n'
        f"{_paragraphs(report.introduction)}<noscript><p>{NO_SCRIPT}</p></noscript>\n</header>"
    )


def _contents(report: Report) -> str:
    entries = [f'<li><a href="#figure-{i}">{_heading(view)}</a></li>' for i, view in enumerate(report.views, 1)]
    if report.sources:
        entries.append('<li class="last"><a href="#sources">Where the figures come from</a></li>')
    return '<nav aria-label="Contents">\n<h2>Contents</h2>\n<ol>\n' + "\n".join(entries) + "\n</ol>\n</nav>"


def _section(report: Report, number: int, figure: go.Figure) -> str:
    """One view: heading, note, picture, caption, the picture in words, where it comes from, its table."""
    from viz.registry import find

    view, alt = report.views[number - 1], _text(figure.layout.meta["alt"], LONG)
    question = f'<p class="question">{_question(view)}</p>\n' if view.title else ""
    caption = f" {_text(view.caption, LONG)}" if view.caption else f" {_text(find(view.key).title)}."
    table = table_html(view.table) if report.tables else ""
    return f"""<section id="figure-{number}" class="view">
<h2><span class="order">{number}</span>{_heading(view)}</h2>
{question}{_paragraphs(view.note)}<figure>
<div class="plot" id="plot-{number}" role="img" aria-label="{alt}"></div>
<figcaption><b>Figure {number}.</b>{caption}</figcaption>
</figure>
<p class="words"><b>In words:</b> {alt}</p>
{_provenance(report, view)}{table}</section>"""


def _provenance(report: Report, view: ReportView) -> str:
    """Which runs a figure is of, and which page of the app shows it: as text, because nothing here leads outside."""
    known = {source.id: source for source in report.sources}
    links = [
        f'<a href="#source-{_anchor(known[key])}">{_text(known[key].title)}</a>' for key in view.sources if key in known
    ]
    rest = len(links) - MOST_NAMED
    if rest > 0:
        links = [*links[:MOST_NAMED], f'<a href="#sources">{rest} more</a>']
    said = [f"Of {', '.join(links)}."] if links else []
    said += [f"In the app: <code>{_text(view.place, LONG)}</code>"] if view.place else []
    return "".join(f'<p class="provenance">{line}</p>\n' for line in said)


def _sources(report: Report) -> str:
    if not report.sources:
        return ""
    first: dict[tuple[tuple[str, str], ...], Source] = {}  # of those with the same inputs
    for source in report.sources:
        first.setdefault(source.digests, source)
    recipe = "" if not report.recipes else "open" if len(report.sources) <= MOST_NAMED else "folded"
    parts = "\n".join(_source(source, first[source.digests], recipe) for source in report.sources)
    return f'<section id="sources">\n<h2>Where the figures come from</h2>\n{parts}\n</section>'


def _source(source: Source, first: Source, shown: str) -> str:
    """A run with its facts and its recipe side by side; ``first`` is the one that lists the same inputs.

    The recipe is ``shown`` "open", or "folded" away where many would hide what tells the runs apart, or not at all.
    """
    rows = [f"<dt>{_text(name)}</dt><dd>{_text(value, LONG)}</dd>" for name, value in source.facts]
    if source is first:
        rows += [f'<dt>{_text(name)}</dt><dd class="digest">{_text(value)}</dd>' for name, value in source.digests]
    elif source.digests:
        link = f'<a href="#source-{_anchor(first)}">{_text(first.title)}</a>'
        rows.append(f"<dt>Inputs</dt><dd>the same files as those of {link}</dd>")
    recipe = ""
    if shown and source.recipe:
        lines = "\n".join(_text(line, LINE) for line in source.recipe.splitlines())
        recipe = f'<pre aria-label="Recipe"><code>{lines}</code></pre>\n'
    if recipe and shown == "folded":
        recipe = f"<details>\n<summary>Recipe</summary>\n{recipe}</details>\n"
    facts = "\n".join(rows)
    return f"""<article id="source-{_anchor(source)}">
<h3>{_text(source.title, LINE)}</h3>
<p class="id">{_text(source.kind)} <code>{_text(source.id)}</code></p>
<div class="beside">
<dl>
{facts}
</dl>
{recipe}</div>
</article>"""


def _foot(report: Report) -> str:
    names = ", ".join(f"{_text(name)} {_text(version)}" for name, version in report.made_with)
    made = f"Written by {names}. " if names else ""
    return (
        f"<footer>\n<p>{made}This file holds all that it shows, {DRAWN_BY} (MIT license) included; it asks nothing of "
        "any network. Figures can be zoomed and read under the pointer, and saved by the camera in their corner.</p>\n"
        "</footer>"
    )


def _data(number: int, figure: go.Figure) -> str:
    return f'<script type="application/json" data-plot="plot-{number}">{figure_json(figure)}</script>'


def _title(report: Report) -> str:
    return _text(report.title.strip() or UNTITLED, LINE)


def _heading(view: ReportView) -> str:
    return _text(view.title, LINE) if view.title else _question(view)


def _question(view: ReportView) -> str:
    from viz.registry import find

    return _text(find(view.key).question)


def _anchor(source: Source) -> str:
    """The id of its element: nothing but letters, digits and dashes."""
    return re.sub(r"[^0-9A-Za-z-]", "-", source.id)[:64]


def _paragraphs(text: str) -> str:
    """Free text as paragraphs: an empty line begins a new one, a line's end stays one."""
    blocks = re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").replace("\r", "\n").strip())
    lines = (_lines(block.strip("\n").split("\n")) for block in blocks if block.strip())
    return "".join(f'<p class="note">{block}</p>\n' for block in lines)


def _lines(lines: Iterable[str]) -> str:
    return "<br>\n".join(_text(line.replace("\t", " "), LONG) for line in lines)


def _text(value: object, limit: int = 120) -> str:
    """Text of anybody's as HTML, between tags or in a quoted attribute; what is invisible is shown as its code."""
    return html.escape(clean_text(value, limit), quote=True)


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _file(name: str) -> str:
    return (HERE / name).read_text("utf-8")
