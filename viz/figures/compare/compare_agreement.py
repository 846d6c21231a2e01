"""On which images two runs agree: both right, only one of them, both wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing
from viz.parts.cells import click_targets
from viz.text import clean_text, percent, safe_text

RIGHT, WRONG = "right", "wrong"
ORDER = (RIGHT, WRONG)
# Where only one run is right, the side of the diverging scale that stands for that run in all charts.
COLORS = {(RIGHT, RIGHT): "#DCE6EF", (RIGHT, WRONG): "#FDD9A8", (WRONG, RIGHT): "#D5CFE6", (WRONG, WRONG): "#E3E5E8"}
NAMES = {
    (RIGHT, RIGHT): "both right", (RIGHT, WRONG): "only A right", (WRONG, RIGHT): "only B right",
    (WRONG, WRONG): "both wrong",
}  # fmt: skip
CELL, TOP, BOTTOM, SIDE = 96, 44, 16, 150  # px


@chart(
    title="Agreement",
    question="On which images does only one of the two runs find the class?",
    columns=("a", "b", "count", "share"),
    rows=("a", "b"),
    picks=("a", "b"),
    empty="There is no image to compare on.",
)
def compare_agreement(
    table: pd.DataFrame,
    *,
    labels: tuple[str, str] = ("A", "B"),
    selected: tuple[str, str] | None = None,
    present: bool = False,
) -> go.Figure:
    """A square of four cells: A right or wrong, against B right or wrong.

    a and b ("right" or "wrong"), count (images, fractions where a run has several models), share (of all images).
    ``labels`` are the names of the runs; ``selected`` outlines a cell (a, b).
    """
    cell_rows = {(str(row["a"]), str(row["b"])): row for row in table.to_dict("records")}
    cells = [(a, b) for a in ORDER for b in ORDER if (a, b) in cell_rows]
    places = {pair: (ORDER.index(pair[0]), ORDER.index(pair[1])) for pair in cells}
    hover = [_hover(pair, cell_rows[pair]) for pair in cells]
    fig = Drawing([click_targets(ORDER, ORDER, hover, "Cells", cells=list(places.values()))])
    rows = [cell_rows[pair] for pair in cells]
    columns = {"images": [float(row["count"]) for row in rows], "share (%)": [100 * row["share"] for row in rows]}
    fig.update_traces("Cells", meta={"columns": columns})
    for axis, label, name in (("xaxis", labels[1], "B"), ("yaxis", labels[0], "A")):
        fig.update_layout({
            axis: {
                "title": {"text": f"{name}: {safe_text(label, 34)}"}, "tickmode": "array", "tickvals": [0, 1],
                "ticktext": [f"{name} {word}" for word in ORDER], "showgrid": False, "fixedrange": True, "ticks": "",
                "range": [-0.5, 1.5] if name == "B" else [1.5, -0.5],
            }
        })  # fmt: skip
    shapes = [_fill(places[pair], COLORS[pair]) for pair in cells]
    shapes += [_ring(places[selected])] if selected in places else []
    fig.update_layout(
        annotations=[_words(places[pair], pair, cell_rows[pair]) for pair in cells], shapes=shapes, barmode="overlay",
        showlegend=False, margin={"l": SIDE - 40, "r": 10, "t": TOP + 10, "b": BOTTOM}, xaxis={"side": "top"},
    )  # fmt: skip
    return theme.finish(fig, "compare_agreement", _alt(cell_rows), 2 * CELL + TOP + 10 + BOTTOM, present)


def images(number: float) -> str:
    """A count of images, which has a fraction if a run has several models."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def _words(place: tuple[int, int], pair: tuple[str, str], row: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "text": f"<b>{images(row['count'])}</b> ({percent(row['share'])})<br>{NAMES[pair]}", "x": place[1],
        "y": place[0], "xref": "x", "yref": "y", "showarrow": False, "font": {"size": theme.FONT, "color": theme.INK},
    }  # fmt: skip


def _fill(place: tuple[int, int], color: str) -> dict[str, Any]:
    return _box(place, 0.5) | {"fillcolor": color, "layer": "below", "line": {"color": "white", "width": 3}}


def _ring(place: tuple[int, int]) -> dict[str, Any]:
    return _box(place, 0.5) | {"line": {"color": theme.ACCENT, "width": 3}, "name": "selected"}


def _box(place: tuple[int, int], half: float) -> dict[str, Any]:
    row, column = place
    return {"type": "rect", "x0": column - half, "x1": column + half, "y0": row - half, "y1": row + half}


def _hover(pair: tuple[str, str], row: Mapping[Any, Any]) -> str:
    return f"<b>{NAMES[pair].capitalize()}</b><br>{images(row['count'])} images, {percent(row['share'])} of all"


def _alt(cell_rows: Mapping[tuple[str, str], Mapping[Any, Any]]) -> str:
    counts = [f"{NAMES[pair]} {images(row['count'])} ({percent(row['share'])})" for pair, row in cell_rows.items()]
    return clean_text(f"Images by which run finds their class: {', '.join(counts)}.", 300)
