"""Which of two runs is more accurate, and on which images only one of them is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Picture
from viz.hover import hover_texts
from viz.parts import axes, series
from viz.parts.cells import click_targets
from viz.text import clean_text, safe_text

ROW, TOP, BOTTOM = 24, 34, 54  # px; a group's heading takes a row
TIE = "#F7F7F7"
DIFFERENCE = (
    "<b>{title}</b><br>A, {label_a:text 40}: {a:percent}<br>B, {label_b:text 40}: {b:percent}<br>B − A: "
    "{difference:points}[ ({low:points} to {high:points})]<br>{n:count} images"
)

RIGHT, WRONG = "right", "wrong"
ORDER = (RIGHT, WRONG)
# Where only one run is right, the side of the diverging scale that stands for that run in all charts.
AGREEMENT = {
    (RIGHT, RIGHT): ("both right", "#DCE6EF"), (RIGHT, WRONG): ("only A right", "#FDD9A8"),
    (WRONG, RIGHT): ("only B right", "#D5CFE6"), (WRONG, WRONG): ("both wrong", "#E3E5E8"),
}  # fmt: skip
CELL = 96  # px
CELL_HOVER = "<b>{name:capitalized}</b><br>{count:images} images, {share:percent} of all"
CELL_TEXT = "<b>{count:images}</b> ({share:percent})<br>{name}"
IMAGES: Mapping[str, Callable[[Any], str]] = {  # a count has a fraction if a run has several models
    "images": lambda number: f"{number:,.0f}" if number.is_integer() else f"{number:,.1f}",
    "capitalized": str.capitalize,
}


@chart(
    title="Difference of scores",
    question="Which run is more accurate, and on which data sets?",
    columns=("scope", "title", "group", "a", "b", "difference", "low", "high", "n"),
    rows=("scope",),
    picks=("scope",),
    empty="These runs were not evaluated on any common data set.",
)
def compare_scores(table: pd.DataFrame, *, labels: tuple[str, str] = ("A", "B")) -> Picture:
    """A dot for each average and each data set, B − A in percentage points, with its 95 % interval, largest on top.

    scope (key), group (its heading), a and b (accuracies or H-scores), difference, low and high (its interval, NaN
    where there is none). ``labels`` are the names of the runs. A filled dot has an interval without zero.
    """
    headings = in_order(table["group"])
    first, *others = (table[table["group"] == group] for group in headings)  # the averages have an order of their own
    groups = [first, *(rows.sort_values("difference", ascending=False, kind="stable") for rows in others)]
    heads = np.cumsum([0, *(len(rows) + 1 for rows in groups)])
    places = np.concatenate([head + 1 + np.arange(len(rows)) for head, rows in zip(heads[:-1], groups, strict=True)])
    table = pd.concat(groups).assign(label_a=labels[0], label_b=labels[1])
    sure, end = (table["low"] > 0) | (table["high"] < 0), int(heads[-1])
    colors = np.where(sure, np.where(table["difference"] > 0, theme.RUN_B, theme.RUN_A), TIE).tolist()
    dots = series.marks(
        table, 100 * table["difference"], places, theme.Look(theme.FADED, "circle"), DIFFERENCE, picks=("scope",),
        size=11, marker={"color": colors, "line": theme.edge(1.2)}, name="Difference",
        error_x=series.interval(table, "difference", theme.FADED, factor=100, thickness=1.6, width=3),
    )  # fmt: skip
    fig, values = Drawing([dots]), table[["difference", "low", "high"]].to_numpy(np.float64)
    far = 100 * max(0.01, 1.06 * float(np.nanmax(np.abs(values))))
    fig.update_xaxes(
        title={"text": "B − A in percentage points, paired 95% interval"}, range=[-far, far], zeroline=True,
        zerolinecolor=theme.INK, zerolinewidth=1.2, ticksuffix="",
    )  # fmt: skip
    titles = list(table["title"])
    names = axes.of_names("Data set or average", titles, 28, showgrid=True)
    fig.update_yaxes(**names | {"tickvals": places.astype(np.float32), "range": [end - 0.4, -0.6]})
    for head, group in zip(heads.tolist(), headings, strict=False):
        fig.add_annotation(
            text=f"<b>{safe_text(group, 40)}</b>", x=0, xref="x domain", xanchor="right", xshift=-6, y=head, yref="y",
            yanchor="middle", showarrow=False, font={"size": theme.SMALL},
        )  # fmt: skip
    fig.add_annotation(theme.caption("← A is better", 1))
    fig.add_annotation(theme.caption("B is better →", 1), x=1, xanchor="right")
    left = max(axes.room(titles, 28), axes.room(headings, 40)) + 44
    fig.update_layout(showlegend=False, margin={"l": left, "r": 26, "t": TOP, "b": BOTTOM})
    words = f"Accuracy of B, {clean_text(labels[1], 40)}, minus that of A, {clean_text(labels[0], 40)}, in points:"
    some = "; ".join(hover_texts(table.head(3), "{title:plain 40} {difference:points}"))
    alt = f"{words} {some}. {int(sure.sum())} of {len(table)} intervals leave zero out."
    return Picture(fig, alt, TOP + BOTTOM + ROW * max(end, 4))


@chart(
    title="Agreement",
    question="On which images does only one of the two runs find the class?",
    columns=("a", "b", "count", "share"),
    rows=("a", "b"),
    picks=("a", "b"),
    empty="There is no image to compare on.",
)
def compare_agreement(
    table: pd.DataFrame, *, labels: tuple[str, str] = ("A", "B"), selected: tuple[str, str] | None = None
) -> Picture:
    """A square of four cells: A right or wrong, against B right or wrong.

    a and b ("right" or "wrong"), count (images, fractions where a run has several models), share (of all images).
    ``labels`` are the names of the runs; ``selected`` outlines a cell (a, b).
    """
    names = [AGREEMENT[pair][0] for pair in zip(table["a"], table["b"], strict=True)]
    table = table.assign(name=names, count=table["count"].astype(float), percents=100 * table["share"])
    words = ", ".join(hover_texts(table, "{name} {count:images} ({share:percent})", **IMAGES))
    cells = table.sort_values(["a", "b"])  # right before wrong
    pairs = list(zip(cells["a"], cells["b"], strict=True))
    places = [(ORDER.index(a), ORDER.index(b)) for a, b in pairs]
    fig = Drawing([click_targets(ORDER, ORDER, hover_texts(cells, CELL_HOVER, **IMAGES), "Cells", cells=places)])
    numbers = {"images": cells["count"].tolist(), "share (%)": cells["percents"].tolist()}
    fig.update_traces("Cells", meta={"columns": numbers})
    for axis, label, name in (("xaxis", labels[1], "B"), ("yaxis", labels[0], "A")):
        title, ends = f"{name}: {safe_text(label, 34)}", [f"{name} {word}" for word in ORDER]
        fig.update_layout({axis: axes.of_names(title, ends, down=name == "A", ticks="")})
    for pair, place, text in zip(pairs, places, hover_texts(cells, CELL_TEXT, **IMAGES), strict=True):
        fig.add_shape(_box(place), fillcolor=AGREEMENT[pair][1], layer="below", line={"color": "white", "width": 3})
        font = {"size": theme.FONT, "color": theme.INK}
        fig.add_annotation(text=text, x=place[1], y=place[0], xref="x", yref="y", showarrow=False, font=font)
    if selected in pairs:
        line = {"color": theme.ACCENT, "width": 3}
        fig.add_shape(_box(places[pairs.index(selected)]), line=line, name="selected")
    margin = {"l": 110, "r": 10, "t": 54, "b": 16}
    fig.update_layout(barmode="overlay", showlegend=False, margin=margin, xaxis={"side": "top"})
    return Picture(fig, clean_text(f"Images by which run finds their class: {words}.", 300), 2 * CELL + 70)


def _box(place: tuple[int, int]) -> dict[str, Any]:
    row, column = place
    return {"type": "rect", "x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
