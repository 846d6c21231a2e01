"""Maps of features, a panel for each model, with the same marks for the same images (LwPTV, Figs. 7 and 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing
from viz.parts import legends
from viz.text import clean_text, first_few, identifier, plural, safe_text

CAPTION, BELOW, ROOM, LEFT = 40, 42, 44, 34  # px: over a panel, under it, between columns, and left of the first
INNER = {1: 460, 2: 380, 3: 290}  # px: height of a panel by panels in a row
WEBGL = 9000  # points above which browsers draw faster with WebGL than with SVG
SMALLEST = 1e-6


class Panel(NamedTuple):
    """One model's panel in the figure: the number of its axes, and their ranges."""

    run: str
    label: str
    number: str  # "" for the first, as in "x" and "y"
    x: tuple[float, float]
    y: tuple[float, float]


@chart(
    title="Map of features",
    question="Do out-of-domain classes stay apart?",
    columns=("run", "label", "image", "x", "y", "title", "truth", "predicted", "before", "group"),
    optional=("distance",),
    rows=("run", "image"),
    picks=("run", "image"),
    empty="No image is left to show: choose other data sets or classes.",
)
def feature_map(
    table: pd.DataFrame,
    *,
    kind: str = "t-SNE",
    groups: list[str] | None = None,
    notes: Mapping[str, str] | None = None,
    selected: Sequence[str] = (),
    shared: bool = False,
    per_row: int = 2,
    present: bool = False,
) -> go.Figure:
    """A panel for each run, a mark for each image, colored by group.

    run (id of a panel's model), label, image (id), x, y, title (of the data set), truth, predicted and before (class
    names: the right one, the panel's model's, the pretrained model's), group (what colors stand for), distance (to the
    pretrained features). ``kind`` names the axes; ``groups`` is the full ordered list that fixes the colors; ``notes``
    are texts under panels' names, by run; ``selected`` images get a ring in every panel; ``shared`` gives all panels
    one scale, for maps that were fit together.
    """
    hover = [_hover(row) for row in table.to_dict("records")]
    table = table.assign(run=table["run"].astype(str), group=table["group"].astype(str), hover=hover)
    names, columns = in_order(table["run"]), max(1, min(per_row, table["run"].nunique()))
    everything = groups or in_order(table["group"])
    present_groups = [group for group in everything if (table["group"] == group).any()]
    panels = _panels(table, names, shared)
    legend, top = legends.above(present_groups)
    rows = -(-len(names) // columns)
    inner = float(INNER[min(columns, max(INNER))])
    if present:
        inner = max((theme.PRESENTED_HEIGHT - top) / rows - CAPTION - BELOW, 60)
    height = top + rows * (CAPTION + inner + BELOW)
    fig, looks = Drawing(), theme.looks(everything)
    traces: list[dict[str, Any]] = []
    for place, panel in enumerate(panels):
        here = table[table["run"] == panel.run]
        by_group = dict(iter(here.groupby("group", sort=False)))
        for group in present_groups:
            if group in by_group:
                traces.append(_marks(by_group[group], group, looks[group], panel, place == 0))
        traces.append(_rings(here[here["image"].isin(list(selected))], panel))
        fig.update_layout(_axes(panel, place, columns, (height, top, inner), kind))
    kind_of_trace = "scattergl" if len(table) > WEBGL else "scatter"
    fig.add_traces([trace | {"type": kind_of_trace} for trace in traces])
    fig.update_layout(
        legend=legend, margin={"l": LEFT, "r": 12, "t": 0, "b": 0}, dragmode="lasso",
        annotations=[_caption(panel, (notes or {}).get(panel.run, "")) for panel in panels],
    )  # fmt: skip
    alt = _alt(table, panels, present_groups, kind)
    return theme.finish(fig, "feature_map", alt, height, present, f"{kind}:{len(panels)}:{len(table)}")


def _panels(table: pd.DataFrame, names: list[str], shared: bool) -> list[Panel]:
    """Square ranges around each panel's points, or around all points."""
    panels = []
    for place, name in enumerate(names):
        rows = table[table["run"] == name]
        points = (table if shared else rows)[["x", "y"]].to_numpy(np.float64)
        low, high = points.min(axis=0), points.max(axis=0)
        middle, half = (low + high) / 2, max(0.54 * float((high - low).max()), SMALLEST)
        spans = [(float(at - half), float(at + half)) for at in middle]
        panels.append(Panel(name, str(rows["label"].iloc[0]), "" if place == 0 else str(place + 1), *spans))
    return panels


def _marks(rows: pd.DataFrame, group: str, look: theme.Look, panel: Panel, named: bool) -> dict[str, Any]:
    return {
        "x": rows["x"].to_numpy(np.float32), "y": rows["y"].to_numpy(np.float32), "mode": "markers",
        "name": legends.entry(group), "legendgroup": legends.entry(group), "showlegend": named,
        "xaxis": f"x{panel.number}", "yaxis": f"y{panel.number}", "text": rows["hover"].tolist(),
        "hovertemplate": "%{text}<extra></extra>",
        "customdata": [[identifier(panel.run), identifier(image)] for image in rows["image"]],
        "marker": {"color": look.color, "symbol": look.symbol, "size": 6, "line": theme.edge(0.4)},
        "unselected": {"marker": {"opacity": 1}},
    }  # fmt: skip


def _rings(rows: pd.DataFrame, panel: Panel) -> dict[str, Any]:
    return {
        "x": rows["x"].to_numpy(np.float32), "y": rows["y"].to_numpy(np.float32), "mode": "markers", "name": "Selected",
        "legendgroup": "Selected", "showlegend": False, "hoverinfo": "skip", "xaxis": f"x{panel.number}",
        "yaxis": f"y{panel.number}", "unselected": {"marker": {"opacity": 1}},
        "marker": {"color": theme.ACCENT, "symbol": "circle-open", "size": 11, "line": {"width": 2}},
    }  # fmt: skip


def _axes(
    panel: Panel, place: int, columns: int, sizes: tuple[float, float, float], kind: str
) -> dict[str, dict[str, Any]]:
    """The two axes of a panel, without numbers, which would mean nothing."""
    height, top, inner = sizes
    row, column = divmod(place, columns)
    upper = 1 - (top + row * (CAPTION + inner + BELOW) + CAPTION) / height
    gap = 0.0 if columns == 1 else ROOM / 1100
    width = (1 - gap * (columns - 1)) / columns
    left = column * (width + gap)
    shared = {"showticklabels": False, "ticks": "", "showgrid": False, "showline": True, "mirror": True}
    shared |= {"linecolor": theme.GRID, "zeroline": False}
    title = {"font": {"size": theme.SMALL}, "standoff": 4}
    return {
        f"xaxis{panel.number}": shared | {
            "title": title | {"text": f"{safe_text(kind)} 1"}, "range": panel.x, "domain": [left, left + width],
            "anchor": f"y{panel.number}",
        },
        f"yaxis{panel.number}": shared | {
            "title": title | {"text": f"{safe_text(kind)} 2"}, "range": panel.y,
            "domain": [max(0.0, upper - inner / height), upper], "anchor": f"x{panel.number}",
        },
    }  # fmt: skip


def _caption(panel: Panel, note: str) -> dict[str, Any]:
    words = f"<b>{safe_text(panel.label, 44)}</b>" + (f"<br>{safe_text(note, 90)}" if note else "")
    return {
        "text": words, "x": 0, "xref": f"x{panel.number} domain", "xanchor": "left", "y": 1, "align": "left",
        "yref": f"y{panel.number} domain", "yanchor": "bottom", "yshift": 2, "showarrow": False,
        "font": {"size": theme.SMALL, "color": theme.INK}, "name": "panel",
    }  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['truth'], 40)}</b>, {safe_text(row['title'], 40)}<br>{safe_text(row['label'], 40)}: "
    words += f"{safe_text(row['predicted'], 40)}<br>pretrained: {safe_text(row['before'], 40)}"
    distance = row.get("distance")
    return words + (f"<br>distance to the pretrained {distance:.3g}" if distance is not None and distance >= 0 else "")


def _alt(table: pd.DataFrame, panels: list[Panel], groups: list[str], kind: str) -> str:
    labels = first_few([clean_text(panel.label, 40) for panel in panels], 4)
    images = plural(int(table["image"].nunique()), "image")
    return f"{clean_text(kind)} maps of the features of {images} in {plural(len(groups), 'group')}: {labels}."
