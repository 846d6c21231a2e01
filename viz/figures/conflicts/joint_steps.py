"""DRM in four steps on the matrices of one layer: decompose, renormalize, prune, merge."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Picture, Trace
from viz.parts import depth
from viz.text import clean_text, percent, plural, safe_text

STACKED = {  # step with a matrix for each expert, side by side -> title over its panel
    "decomposed": "1  Decompose: each expert's part of the shared, orthonormal rows",
    "renormalized": "2  Renormalize: every row of every expert has length 1",
    "pruned": "3  Prune: only the largest entries stay",
}
MERGED = {  # step with one matrix -> title over its panel, and the panel's left and right end
    "merged": ("4  Merge: elect, average", (0.0, 0.36)),
    "delta": ("and transform back: the task vector", (0.64, 1.0)),
}
PANEL, GAP, TOP, BOTTOM, LEFT, RIGHT = 128, 64, 48, 58, 66, 90  # px
HEIGHT = (len(STACKED) + 1) * PANEL + len(STACKED) * GAP
LOWEST = 1e-3  # of the largest value, at the bottom of a logarithmic scale


@chart(
    title="DRM in four steps",
    question="What does DRM do to this layer, step by step?",
    columns=("step", "expert", "row", "column", "value"),
    rows=("step", "expert", "row", "column"),
    empty="No expert changed this layer.",
)
def joint_steps(table: pd.DataFrame, *, vertical: bool = False) -> Picture:
    """Heat maps of matrices that are reduced to block means of absolute entries.

    step (decomposed, renormalized and pruned for each expert, then merged and delta), row and column (of a block's
    first entry in its matrix), value (mean of absolute entries; for the first three in units of a row's root mean
    square). ``vertical`` says that directions are of the input space, as in DRM-V.
    """
    by_step = {str(step): rows for step, rows in table.groupby("step", sort=False)}
    experts = in_order(by_step["decomposed"]["expert"])
    most = max(float(by_step[step]["value"].max()) for step in STACKED) or 1.0
    shared = depth.Scale("mean |entry|", log=False, limits=(0.0, most))
    fig = Drawing()
    for number, (step, title) in enumerate(STACKED.items()):
        rows, top = by_step[step], 1 - number * (PANEL + GAP) / HEIGHT
        values = np.concatenate([_matrix(rows[rows["expert"] == expert]) for expert in experts], axis=1)
        heat = depth.heat(values, shared, name=step, **({"showscale": False} if number else {}))
        x = _names(experts, values.shape[1], "Experts side by side" if number == len(STACKED) - 1 else " ")
        _add_panel(fig, title, heat, (0.0, 1.0), top, x, _ticks(rows["row"], 3, "Direction"))
        _separate(fig, number, x["tickvals"])
    for step, (title, ends) in MERGED.items():
        rows, first = by_step[step], step == "merged"
        values = _matrix(rows)
        high = float(values.max(initial=0.0)) or 1.0
        # rows are scaled by their singular values again, from large to small
        scale = depth.Scale("", log=first, limits=(LOWEST * high if first else 0.0, high))
        x = _ticks(rows["column"], 4, "Output" if first and vertical else "Input") | {"tickangle": 0}
        y = _ticks(rows["row"], 3, "Direction" if first else "Output")
        _add_panel(fig, title, depth.heat(values, scale, name=step), ends, PANEL / HEIGHT, x, y)
    fig.update_layout(margin={"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM}, showlegend=False)
    return Picture(fig, _alt(by_step, experts), HEIGHT + TOP + BOTTOM, f"{len(experts)}:{len(table)}")


def _matrix(rows: pd.DataFrame) -> Any:
    return rows.sort_values(["row", "column"])["value"].to_numpy(np.float64).reshape(rows["row"].nunique(), -1)


def _add_panel(
    fig: Drawing, title: str, heat: Trace, ends: tuple[float, float], top: float, x: dict[str, Any], y: dict[str, Any]
) -> None:
    """Add a heat map with axes of its own, its upper edge at ``top`` (paper) and its color bar on its right."""
    suffix = str(len(fig.data) + 1) if fig.data else ""
    heat["colorbar"] |= {
        "x": ends[1] + 0.004, "xanchor": "left", "y": top, "yanchor": "top", "len": PANEL / HEIGHT * 0.98,
    }  # fmt: skip
    heat["colorbar"]["title"]["side"] = "right"
    fig.add_trace(heat | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"})
    rows, columns = heat["z"].shape
    none = {"showgrid": False, "zeroline": False, "fixedrange": True}
    fig.layout |= {
        f"xaxis{suffix}": {"domain": list(ends), "anchor": f"y{suffix}", "range": [-0.5, columns - 0.5], **none, **x},
        f"yaxis{suffix}": {
            "domain": [max(top - PANEL / HEIGHT, 0.0), top], "anchor": f"x{suffix}", "range": [rows - 0.5, -0.5],
            **none, **y,
        },
    }  # fmt: skip
    fig.add_annotation(theme.caption(title, top, theme.FONT), x=ends[0])


def _names(experts: list[str], width: int, title: str) -> dict[str, Any]:
    """Settings of an axis that names the experts' blocks, which together are so many cells wide."""
    block = width / len(experts)
    return {
        "title": {"text": title, "standoff": 4}, "tickmode": "array", "tickangle": 0, "ticks": "",
        "tickvals": [(at + 0.5) * block - 0.5 for at in range(len(experts))], "showticklabels": True,
        "ticktext": [safe_text(expert, max(3, 64 // len(experts))) for expert in experts],
    }  # fmt: skip


def _separate(fig: Drawing, number: int, middles: list[float]) -> None:
    """Draw lines between the experts' blocks of a panel."""
    suffix = str(number + 1) if number else ""
    for one, other in pairwise(middles):
        fig.add_shape(
            type="line", xref=f"x{suffix}", yref=f"y{suffix} domain", x0=(one + other) / 2, x1=(one + other) / 2,
            y0=0, y1=1, line={"color": "white", "width": 2},
        )  # fmt: skip


def _ticks(starts: pd.Series[int], most: int, title: str) -> dict[str, Any]:
    """Ticks at a few cells, named by the first entry of their block, counted from 1."""
    places = np.sort(starts.unique())
    at = sorted(set(np.linspace(0, len(places) - 1, most).round().astype(int).tolist()))
    texts = [str(int(places[i]) + 1) for i in at]
    return {"title": {"text": title}, "tickmode": "array", "tickvals": at, "ticktext": texts}


def _alt(by_step: dict[str, pd.DataFrame], experts: list[str]) -> str:
    empty = float((by_step["pruned"]["value"] == 0).mean())
    uneven = by_step["decomposed"].groupby(["expert", "row"])["value"].mean()
    factor = float(uneven.max()) / max(float(uneven.min()), 1e-12)
    return (
        f"Matrices of {plural(len(experts), 'expert')} ({clean_text(', '.join(experts), 120)}) decomposed, "
        f"renormalized, pruned and merged, as block means. Before renormalization rows differ by a factor of "
        f"{factor:.3g}; pruning empties {percent(empty)} of the blocks."
    )
