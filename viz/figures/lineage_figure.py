"""Where a merged model comes from: pretrained model, experts, steps of the recipe, and the result."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from viz import theme
from viz.chart import ChartError, chart
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, plural, safe_text
from viz.parts import series


class NodeKind(NamedTuple):
    """A kind of node: its column from the left, its name and its color."""

    column: int
    name: str
    color: str


NODE_KINDS = {
    "pretrained": NodeKind(0, "Pretrained model", theme.KINDS["pretrained"].color),
    "expert": NodeKind(1, "Expert", theme.GREEN),
    "edit": NodeKind(2, "Edit", theme.ORANGE),
    "merge": NodeKind(2, "Merge", theme.BLUE),
    "adapt": NodeKind(2, "Adapt", theme.SKY),
    "run": NodeKind(3, "Run", theme.VERMILION),
    "model": NodeKind(3, "Model of a task", theme.PINK),
    "other": NodeKind(3, "Other run of these experts", theme.OTHER_COLOR),
}
COLUMN_HEADS = ("Pretrained", "Experts", "Recipe", "Run")
HOVER = "<b>{label}</b><br>{kind:lower}[<br>{detail}]"
# px of a box and between two boxes, characters in a line; four boxes fit a narrow page
BOX_HEIGHT, BOX_GAP, LINE_CHARACTERS = 60, 10, 15
TOP, BOTTOM, SIDE = 34, 44, 58


@chart(
    title="Lineage",
    question="Where does this model come from?",
    columns=("node", "kind", "label", "detail", "parents"),
    rows=("node",),
    empty="No run is chosen.",
)
def lineage(table: pd.DataFrame) -> Picture:
    """Boxes from left to right: pretrained model, experts, edits above the merge, and the result.

    Columns: node (an id), kind (pretrained, expert, edit, merge, adapt, run, model of one task, other for a faint one),
    detail (such as the first digits of a digest), parents (ids of nodes, separated by spaces).
    """
    if unknown := sorted(set(table["kind"]) - NODE_KINDS.keys()):
        raise ChartError(f"lineage does not know the kind {clean_text(unknown[0])!r}; it takes {', '.join(NODE_KINDS)}")
    columns = table["kind"].map(lambda kind: NODE_KINDS[kind].column)
    sizes = table.groupby(columns)["node"]
    largest_column = int(sizes.size().max())
    table = table.assign(x=columns, y=sizes.cumcount() + (largest_column - sizes.transform("size")) / 2)
    nodes: dict[str, Mapping[Any, Any]] = {row["node"]: row for row in table.to_dict("records")}
    fig = Drawing(
        series.marks(
            table[table["kind"] == key], "x", "y", theme.MarkStyle(kind.color, "square"), HOVER, size=40,
            name=kind.name, marker={"opacity": 0.15, "line": {"width": 0}},
            formats={"lower": lambda kind_key: NODE_KINDS[kind_key].name.lower()},
        )
        for key, kind in NODE_KINDS.items() if key in set(table["kind"])
    )  # fmt: skip
    lanes = max(largest_column, 2)
    fig.update_layout(
        shapes=[_make_edge(nodes[parent], node) for node in nodes.values() for parent in str(node["parents"]).split()
                if parent in nodes],
        annotations=list(map(_make_box, nodes.values())), showlegend=False,
        margin={"l": SIDE, "r": SIDE, "t": TOP, "b": BOTTOM},
    )  # fmt: skip
    bare_axis = {"title": {"text": " "}, "ticks": "", "fixedrange": True}
    bare_axis |= dict.fromkeys(("showgrid", "zeroline", "showline"), False)
    positions = list(range(len(COLUMN_HEADS)))
    fig.update_xaxes(
        range=[-0.02, 3.02], tickmode="array", tickvals=positions, ticktext=COLUMN_HEADS, side="top", **bare_axis
    )
    fig.update_yaxes(range=[lanes - 0.5, -0.5], showticklabels=False, **bare_axis)
    return Picture(fig, _describe_steps(table), lanes * (BOX_HEIGHT + BOX_GAP) + TOP + BOTTOM, zoom_key=str(len(table)))


def _make_box(node: Mapping[Any, Any]) -> dict[str, Any]:
    """A node's box: its label in at most two lines, then its detail, three lines in all."""
    faint = node["kind"] == "other"
    lines = textwrap.wrap(clean_text(node["label"]), LINE_CHARACTERS, max_lines=2, placeholder=" …") or ["\xa0"]
    detail = textwrap.wrap(clean_text(node["detail"]), LINE_CHARACTERS + 1, max_lines=3 - len(lines), placeholder=" …")
    return {
        "x": node["x"], "y": node["y"], "width": 100, "height": BOX_HEIGHT - 10, "bgcolor": theme.GROUND,
        "text": "<br>".join([*(f"<b>{safe_text(line)}</b>" for line in lines), *map(safe_text, detail)]),
        "bordercolor": NODE_KINDS[node["kind"]].color, "borderwidth": 1.5, "borderpad": 3,
        "opacity": 0.65 if faint else 1.0,
        "captureevents": False, "name": node["kind"], "font": {"color": theme.FADED if faint else theme.INK},
    }  # fmt: skip


def _make_edge(start: Mapping[Any, Any], end: Mapping[Any, Any]) -> dict[str, Any]:
    """A line from one box to another: a curve across columns, straight down within one."""
    first, last = (f"{node['x']:.1f},{node['y']}" for node in (start, end))
    half = (start["x"] + end["x"]) / 2
    straight = start["x"] == end["x"]
    return {
        "type": "path", "line": {"color": theme.FADED, "width": 1.2}, "layer": "below",
        "path": f"M {first} L {last}" if straight else f"M {first} C {half},{start['y']} {half},{end['y']} {last}",
        "opacity": 0.45 if end["kind"] == "other" else 0.8,
    }  # fmt: skip


def _describe_steps(table: pd.DataFrame) -> str:
    by_kind = {kind: table.loc[table["kind"] == kind, "label"].tolist() for kind in NODE_KINDS}
    steps = [clean_text(label, 40) for label in by_kind["edit"] + by_kind["merge"]]
    results = [clean_text(label, 60) for label in by_kind["run"] + by_kind["model"]]
    base = clean_text(by_kind["pretrained"][0], 40) if by_kind["pretrained"] else "a pretrained model"
    words = f"{plural(len(by_kind['expert']), 'expert')} of {base}, through {', then '.join(steps) or 'no step'}"
    other_runs = f" {plural(len(by_kind['other']), 'other run')} of the same experts." if by_kind["other"] else ""
    return f"{words}, give {', '.join(results[:4]) or 'nothing'}{' and more' if len(results) > 4 else ''}.{other_runs}"
