"""Where a merged model comes from: pretrained model, experts, steps of the recipe, and the result."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart
from viz.drawing import Drawing, Trace, scatter
from viz.text import clean_text, plural, safe_text

COLUMNS = {"pretrained": 0, "expert": 1, "edit": 2, "merge": 2, "adapt": 2, "run": 3, "model": 3, "other": 3}
NAMES = {
    "pretrained": "Pretrained model", "expert": "Expert", "edit": "Edit", "merge": "Merge",
    "adapt": "Adapt", "run": "Run",
    "model": "Model of a task", "other": "Other run of these experts",
}  # fmt: skip
HEADS = ("Pretrained", "Experts", "Recipe", "Run")
COLORS = {
    "pretrained": "#4B5563", "expert": "#009E73", "edit": "#E69F00", "merge": "#0072B2",
    "adapt": "#56B4E9", "run": "#D55E00",
    "model": "#CC79A7", "other": "#999999",
}  # fmt: skip
LANE, GAP, WIDE = 60, 10, 15  # px of a box and between two, characters in its lines; four boxes fit a narrow page
TOP, BOTTOM, SIDE = 34, 44, 58
FAINT = 0.45


class Box(NamedTuple):
    """The place of a node: its column, and its lane from the top."""

    x: float
    y: float


@chart(
    title="Lineage",
    question="Where does this model come from?",
    columns=("node", "kind", "label", "detail", "parents"),
    rows=("node",),
    empty="No run is chosen.",
)
def lineage(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """Boxes from left to right: pretrained model, experts, edits above the merge, and the result.

    node (an id), kind (pretrained, expert, edit, merge, adapt, run, model of one task, other for a faint one), label,
    detail (such as the first digits of a digest), parents (ids of nodes, separated by spaces).
    """
    rows = table.to_dict("records")
    if unknown := sorted({str(row["kind"]) for row in rows} - COLUMNS.keys()):
        raise ChartError(f"lineage does not know the kind {clean_text(unknown[0])!r}; it takes {', '.join(COLUMNS)}")
    places, lanes = _places(rows)
    fig = Drawing(_marks(kind, rows, places) for kind in COLUMNS if any(row["kind"] == kind for row in rows))
    fig.update_layout(
        shapes=[_edge(places[str(parent)], places[str(row["node"])], row["kind"]) for row in rows
                for parent in str(row["parents"]).split() if parent in places],
        annotations=[_box(row, places[str(row["node"])]) for row in rows], showlegend=False,
        margin={"l": SIDE, "r": SIDE, "t": TOP, "b": BOTTOM},
    )  # fmt: skip
    none = {"showgrid": False, "zeroline": False, "fixedrange": True, "showline": False, "ticks": ""}
    fig.update_xaxes(
        range=[-0.02, 3.02], tickmode="array", tickvals=[0, 1, 2, 3], ticktext=HEADS, side="top", title={"text": " "},
        **none,
    )  # fmt: skip
    fig.update_yaxes(range=[lanes - 0.5, -0.5], showticklabels=False, title={"text": " "}, **none)
    return theme.finish(fig, "lineage", _alt(rows), lanes * (LANE + GAP) + TOP + BOTTOM, present, str(len(rows)))


def _places(rows: Sequence[Mapping[Any, Any]]) -> tuple[dict[str, Box], float]:
    """The place of every node, with its column's boxes stacked and all columns centered, and the number of lanes."""
    columns: dict[int, list[str]] = {}
    for row in rows:
        columns.setdefault(COLUMNS[str(row["kind"])], []).append(str(row["node"]))
    lanes = max(len(nodes) for nodes in columns.values())
    boxes: dict[str, Box] = {}
    for x, nodes in columns.items():
        first = (lanes - len(nodes)) / 2
        boxes |= {node: Box(float(x), first + place) for place, node in enumerate(nodes)}
    return boxes, float(max(lanes, 2))


def _marks(kind: str, rows: Sequence[Mapping[Any, Any]], places: Mapping[str, Box]) -> Trace:
    """A mark behind every box of one kind, which shows the hover text."""
    own = [row for row in rows if row["kind"] == kind]
    boxes = [places[str(row["node"])] for row in own]
    return scatter(
        x=np.array([box.x for box in boxes], np.float32), y=np.array([box.y for box in boxes], np.float32),
        mode="markers", name=NAMES[kind], text=[_hover(row) for row in own], hovertemplate="%{text}<extra></extra>",
        marker={"symbol": "square", "size": 40, "color": COLORS[kind], "opacity": 0.15},
    )  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    lines = [f"<b>{safe_text(row['label'])}</b>", NAMES[str(row["kind"])].lower()]
    return "<br>".join([*lines, *([safe_text(row["detail"])] if str(row["detail"]) else [])])


def _box(row: Mapping[Any, Any], box: Box) -> dict[str, Any]:
    """A node's box: its label in at most two lines, then its detail, three lines in all."""
    kind = str(row["kind"])
    faint = kind == "other"
    detail = str(row["detail"])
    lines = textwrap.wrap(clean_text(row["label"]), WIDE, max_lines=2, placeholder=" …") or ["\xa0"]
    text = [f"<b>{safe_text(line)}</b>" for line in lines]
    rest = textwrap.wrap(clean_text(detail), WIDE + 1, max_lines=3 - len(lines), placeholder=" …") if detail else []
    text += [safe_text(line) for line in rest]
    return {
        "x": box.x, "y": box.y, "text": "<br>".join(text), "showarrow": False, "width": 100, "height": LANE - 10,
        "bgcolor": "white", "bordercolor": COLORS[kind], "borderwidth": 1.5, "borderpad": 3,
        "opacity": FAINT + 0.2 if faint else 1.0, "captureevents": False, "name": kind,
        "font": {"size": theme.SMALL, "color": theme.FADED if faint else theme.INK},
    }  # fmt: skip


def _edge(start: Box, end: Box, kind: str) -> dict[str, Any]:
    """A line from one box to another: a curve across columns, straight down within one."""
    line = {"color": theme.FADED, "width": 1.2}
    if start.x == end.x:
        path = f"M {start.x},{start.y} L {end.x},{end.y}"
    else:
        half = (start.x + end.x) / 2
        path = f"M {start.x},{start.y} C {half},{start.y} {half},{end.y} {end.x},{end.y}"
    return {"type": "path", "path": path, "line": line, "layer": "below", "opacity": FAINT if kind == "other" else 0.8}


def _alt(rows: Sequence[Mapping[Any, Any]]) -> str:
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in COLUMNS}
    steps = [clean_text(row["label"], 40) for row in (*by_kind["edit"], *by_kind["merge"])]
    result = [clean_text(row["label"], 60) for row in (*by_kind["run"], *by_kind["model"])]
    base = clean_text(by_kind["pretrained"][0]["label"], 40) if by_kind["pretrained"] else "a pretrained model"
    sentence = f"{plural(len(by_kind['expert']), 'expert')} of {base}, through {', then '.join(steps) or 'no step'}"
    others = f" {plural(len(by_kind['other']), 'other run')} of the same experts." if by_kind["other"] else ""
    return f"{sentence}, give {', '.join(result[:4]) or 'nothing'}{' and more' if len(result) > 4 else ''}.{others}"
