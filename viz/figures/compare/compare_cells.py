"""Two runs and their difference, cell by cell: three heat maps over the network, the first two on one color scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, heatmap
from viz.parts import depth, tensor_columns
from viz.parts.cells import click_targets
from viz.text import clean_text, layer_name, percent, plural, real, safe_text, short_name

ROW, LOW, GAP, TOP, BOTTOM, RIGHT = 21, 88, 34, 42, 62, 104  # px; LOW is the least height that a color bar needs
TICK, TITLE, SHORT = 15, 18, 11  # px: a tick of a color bar, a line of its title; letters that fit above it
AXES = ("y", "y2", "y3")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """The table as matrices [row, tensor], in the order in which they are drawn."""

    rows: list[str]
    titles: list[str]
    columns: depth.Columns
    a: Floats
    b: Floats

    @property
    def places(self) -> bool:
        """Whether every column is a section of its own, so that the axis can name it."""
        sections = self.columns.tensors["section"]
        return bool(sections.is_unique)

    @property
    def difference(self) -> Floats:
        """B − A."""
        return self.b - self.a


@chart(
    title="Two runs, cell by cell",
    question="Where in the network do the two runs differ?",
    columns=("row", "title", "tensor", "order", "section", "role", "part", "a", "b"),
    rows=("row", "tensor"),
    picks=("row", "tensor"),
    empty="Nothing to compare: the two runs have no cell in common.",
)
def compare_cells(
    table: pd.DataFrame,
    *,
    labels: tuple[str, str] = ("A", "B"),
    what: str = "value",
    unit: str = "Row",
    over: str = "Tensors",
    percents: bool = False,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """Heat maps of A, of B and of B − A, over tensors in forward order.

    row (an expert, a task ...) with its title, tensor (or place), order (model order), section ("embeddings", "block 0"
    ..., "output"), role, part (kind of layer), a and b (numbers). ``labels`` are the names of the runs, ``what`` is the
    number's name, ``unit`` says what a row is and ``over`` what a column is. A and B share one range of colors:
    ``limits``, or else what both span; with ``log`` it is logarithmic. The difference is linear, with zero in the
    middle; with ``percents`` it is in percentage points.
    """
    grid = _grid(table)
    scale = depth.Scale(what, log, limits or _limits(grid, log), percents)
    change = depth.Scale("points" if percents else "B − A", log=False, diverging=True)
    panel = max(len(grid.rows) * ROW, LOW)
    inner = 3 * panel + 2 * GAP
    domains = [((inner - k * (panel + GAP) - panel) / inner, (inner - k * (panel + GAP)) / inner) for k in range(3)]
    fig = Drawing()
    difference = grid.difference * (100 if percents else 1)
    for place, (values, shown) in enumerate(((grid.a, scale), (grid.b, scale), (difference, change))):
        spanned = (domains[1][0], domains[0][1]) if place == 0 else domains[place]
        fig.add_trace(_map(values, shown, place, spanned, inner))
    texts = _hover(grid, labels, percents)
    for axis, name in zip(AXES, ("Cells of A", "Cells of B", "Cells of the difference"), strict=True):
        fig.add_trace(click_targets(grid.rows, grid.columns.names, texts, name, axis))
    _lay_out(fig, grid, domains, unit, over)
    difference_caption = "B − A, in percentage points" if percents else "B − A"
    captions = (f"A: {safe_text(labels[0], 60)}", f"B: {safe_text(labels[1], 60)}", difference_caption)
    headings = [theme.caption(text, domain[1]) for text, domain in zip(captions, domains, strict=True)]
    fig.update_layout(annotations=[*([] if grid.places else grid.columns.end_labels()), *headings])
    height = inner + TOP + BOTTOM
    return theme.finish(fig, "compare_cells", _alt(grid, labels, what, percents), height, present, what)


def _grid(table: pd.DataFrame) -> Grid:
    rows, columns = in_order(table["row"]), depth.Columns.of(table)
    table = table.assign(row=table["row"].astype(str), tensor=table["tensor"].astype(str))
    titles = dict(zip(table["row"], table["title"], strict=True))
    a, b = (
        table.pivot(index="row", columns="tensor", values=side).reindex(rows)[columns.names].to_numpy(np.float64)
        for side in ("a", "b")
    )
    return Grid(rows, [str(titles[row]) for row in rows], columns, _finite(a), _finite(b))


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _limits(grid: Grid, log: bool) -> tuple[float, float]:
    """The range of both runs' numbers; on a linear scale it includes zero."""
    values = np.concatenate([grid.a.ravel(), grid.b.ravel()])
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    low = float(positive.min(initial=np.inf)) if log and positive.size else min(0.0, float(finite.min(initial=0)))
    return low, float(finite.max(initial=0))


def _map(values: Floats, scale: depth.Scale, place: int, domain: tuple[float, float], inner: float) -> Trace:
    z, colors = depth.colored(values, scale)
    bar = _roomy(colors.pop("colorbar"), (domain[1] - domain[0]) * inner) | {
        "x": 1.01, "xpad": 4, "y": domain[1], "yanchor": "top", "lenmode": "fraction", "ypad": 0,
        "len": domain[1] - domain[0],
        "title": {"text": _in_two_lines(scale.title), "side": "top"},
    }  # fmt: skip
    return heatmap(
        z=z, xaxis="x", yaxis=AXES[place], ygap=1, hoverinfo="skip", showscale=place != 1, colorbar=bar,
        colorscale=theme.DIVERGING if scale.diverging else theme.SEQUENTIAL, name=("A", "B", "B − A")[place], **colors,
    )  # fmt: skip


def _roomy(bar: dict[str, Any], length: float) -> dict[str, Any]:
    """The color bar with all ticks, or only both ends and the middle if its length has no room for more."""
    places, texts = list(bar["tickvals"]), list(bar["ticktext"])
    if len(places) * TICK <= length - TITLE:
        return bar
    kept = sorted({0, len(places) // 2, len(places) - 1})
    return bar | {"tickvals": [places[k] for k in kept], "ticktext": [texts[k] for k in kept]}


def _in_two_lines(title: str) -> str:
    """A title broken near its middle if it is too long for the width of a color bar."""
    words = title.split()
    at = min(range(1, len(words)), key=lambda k: abs(len(" ".join(words[:k])) - len(title) / 2), default=0)
    lines = [" ".join(words[:at]), " ".join(words[at:])] if at and len(title) > SHORT else [title]
    return "<br>".join(safe_text(line, 24) for line in lines)


def _lay_out(fig: Drawing, grid: Grid, domains: list[tuple[float, float]], unit: str, over: str) -> None:
    ticks = [safe_text(title, 24) for title in grid.titles]
    shared = grid.columns.axis() | (_each(grid) if grid.places else {})
    title = {"text": f"{safe_text(over, 40)} ({len(grid.columns.names)}) in forward order; numbers are blocks"}
    fig.update_xaxes(**(shared | {"title": title, "anchor": "y3"}))
    for place, domain in enumerate(domains):
        fig.update_layout({
            f"yaxis{place + 1 if place else ''}": {
                "domain": [max(0.0, domain[0]), domain[1]], "range": [len(ticks) - 0.5, -0.5], "anchor": "x",
                "tickmode": "array", "tickvals": list(range(len(ticks))), "ticktext": ticks, "showgrid": False,
                "fixedrange": True, "title": {"text": safe_text(unit, 24)},
            }
        })  # fmt: skip
    lines = [line | {"yref": f"{axis} domain"} for line in grid.columns.separators() for axis in AXES]
    left = max(*map(theme.text_width, ticks), 70) + 38  # room for "embeddings" under the axis
    margin = {"l": left, "r": RIGHT, "t": TOP, "b": BOTTOM}
    fig.update_layout(shapes=lines, margin=margin, showlegend=False, barmode="overlay")


def _each(grid: Grid) -> dict[str, Any]:
    """A tick for every column; names other than numbers go one line lower, clear of their neighbors."""
    names = [tensor_columns.short(str(name)) for name in grid.columns.tensors["section"]]
    names = [safe_text(name, 16) if name.isdigit() else f"<br>{safe_text(name, 16)}" for name in names]
    return {"tickvals": list(range(len(names))), "ticktext": names}


def _hover(grid: Grid, labels: tuple[str, str], percents: bool) -> list[str]:
    names = [safe_text(label, 40) for label in labels]
    facts = [f"<br>{layer_name(row)}" for row in grid.columns.tensors.to_dict("records")]
    return [
        f"<b>{short_name(tensor)}</b><br>{safe_text(title)}<br>A, {names[0]}: {_number(grid.a[i, j], percents)}<br>"
        f"B, {names[1]}: {_number(grid.b[i, j], percents)}<br>"
        f"B − A: {signed(grid.difference[i, j], percents)}{facts[j]}"
        for i, title in enumerate(grid.titles)
        for j, tensor in enumerate(grid.columns.names)
    ]


def _number(value: float, percents: bool) -> str:
    return percent(value, 2) if percents else real(value)


def signed(difference: float, percents: bool) -> str:
    """A difference with its sign, of shares in percentage points; "—" where there is none."""
    if not np.isfinite(difference):
        return "—"
    return f"{100 * difference:+.2f} points" if percents else f"{difference:+.3g}"


def _alt(grid: Grid, labels: tuple[str, str], what: str, percents: bool) -> str:
    words = (
        f"{clean_text(what, 60)} of A, {clean_text(labels[0], 40)}, and B, {clean_text(labels[1], 40)}, for "
        f"{plural(len(grid.rows), 'row')} and {plural(len(grid.columns.names), 'column')}, and the difference."
    )
    far = np.abs(np.nan_to_num(grid.difference))
    if not far.any():
        return f"{words} The runs do not differ."
    i, j = np.unravel_index(int(far.argmax()), far.shape)
    largest = signed(float(grid.difference[i, j]), percents)
    return f"{words} It is largest in {clean_text(grid.columns.names[j])}, {clean_text(grid.titles[i], 40)}: {largest}."
