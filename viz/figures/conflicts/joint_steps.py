"""DRM in four steps on the matrices of one layer: decompose, renormalize, prune, merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, heatmap
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
Floats = npt.NDArray[np.float64]


@chart(
    title="DRM in four steps",
    question="What does DRM do to this layer, step by step?",
    columns=("step", "expert", "row", "column", "value"),
    rows=("step", "expert", "row", "column"),
    empty="No expert changed this layer.",
)
def joint_steps(table: pd.DataFrame, *, vertical: bool = False, present: bool = False) -> go.Figure:
    """Heat maps of matrices that are reduced to block means of absolute entries.

    step (decomposed, renormalized and pruned for each expert, then merged and delta), expert, row and column (of a
    block's first entry in its matrix), value (mean of absolute entries; for the first three in units of a row's root
    mean square). ``vertical`` says that directions are of the input space, as in DRM-V.
    """
    by_step = {str(step): rows for step, rows in table.groupby("step", sort=False)}
    experts = in_order(by_step["decomposed"]["expert"])
    shared = depth.Scale("mean |entry|", log=False, limits=(0.0, _most(by_step[step] for step in STACKED)))
    fig, shapes = Drawing(), list[dict[str, Any]]()
    for number, (step, title) in enumerate(STACKED.items(), 1):
        owned = {str(expert): rows for expert, rows in by_step[step].groupby("expert", sort=False)}
        values = np.concatenate([_matrix(owned[expert]) for expert in experts], axis=1)
        top = 1 - (number - 1) * (PANEL + GAP) / HEIGHT
        _panel(fig, number, step, values, shared, (0.0, 1.0), top)
        shapes += _name_experts(fig, number, experts, values.shape[1], number == len(STACKED))
        fig.layout[f"yaxis{number}" if number > 1 else "yaxis"].update(_rows(by_step[step], "Direction"))
        fig.add_annotation(theme.caption(title, top, theme.FONT))
    fig.data[1].update(showscale=False)
    fig.data[2].update(showscale=False)
    for number, (step, (title, ends)) in enumerate(MERGED.items(), len(STACKED) + 1):
        values, top = _matrix(by_step[step]), PANEL / HEIGHT
        high = float(values.max(initial=0.0)) or 1.0
        log = step == "merged"  # rows are scaled by their singular values again, from large to small
        scale = depth.Scale("", log=log, limits=(LOWEST * high if log else 0.0, high))
        _panel(fig, number, step, values, scale, ends, top)
        inside = number > len(STACKED) + 1 or not vertical
        fig.layout[f"xaxis{number}"].update(_columns(by_step[step], "Input" if inside else "Output"))
        fig.layout[f"yaxis{number}"].update(_rows(by_step[step], "Direction" if step == "merged" else "Output"))
        fig.add_annotation(theme.caption(title, top, theme.FONT) | {"x": ends[0]})
    margin = {"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM}
    fig.update_layout(shapes=shapes, margin=margin, showlegend=False)
    alt = _alt(by_step, experts)
    return theme.finish(fig, "joint_steps", alt, HEIGHT + TOP + BOTTOM, present, f"{len(experts)}:{len(table)}")


def _most(tables: Any) -> float:
    return max(float(rows["value"].max()) for rows in tables) or 1.0


def _matrix(rows: pd.DataFrame) -> Floats:
    ordered = rows.sort_values(["row", "column"])
    matrix: Floats = ordered["value"].to_numpy(np.float64).reshape(ordered["row"].nunique(), -1)
    return matrix


def _panel(
    fig: Drawing, number: int, step: str, values: Floats, scale: depth.Scale, across: Sequence[float], top: float
) -> None:
    """Add a heat map with its own axes, its upper edge at ``top`` (paper) and its color bar on its right."""
    z, colors = depth.colored(values, scale)
    tall = PANEL / HEIGHT * 0.98
    colors["colorbar"] |= {"x": across[1] + 0.004, "xanchor": "left", "y": top, "yanchor": "top", "len": tall}
    colors["colorbar"]["title"]["side"] = "right"
    suffix = str(number) if number > 1 else ""
    fig.add_trace(
        heatmap(
            z=z, colorscale=theme.SEQUENTIAL, name=step, hoverinfo="skip", xaxis=f"x{suffix}", yaxis=f"y{suffix}",
            **colors,
        )
    )  # fmt: skip
    none = {"showgrid": False, "zeroline": False, "fixedrange": True}
    fig.layout[f"xaxis{suffix}"] = {
        "domain": list(across), "anchor": f"y{suffix}", "range": [-0.5, z.shape[1] - 0.5], **none,
    }  # fmt: skip
    fig.layout[f"yaxis{suffix}"] = {
        "domain": [max(top - PANEL / HEIGHT, 0.0), top], "anchor": f"x{suffix}", "range": [z.shape[0] - 0.5, -0.5],
        **none,
    }  # fmt: skip


def _name_experts(fig: Drawing, number: int, experts: list[str], width: int, last: bool) -> list[dict[str, Any]]:
    """Name the experts' blocks under a panel, and return the lines between them."""
    suffix, block = str(number) if number > 1 else "", width / len(experts)
    named = [safe_text(expert, max(3, 64 // len(experts))) for expert in experts]
    fig.layout[f"xaxis{suffix}"].update(
        title={"text": "Experts side by side" if last else " ", "standoff": 4}, tickmode="array", tickangle=0,
        tickvals=[(at + 0.5) * block - 0.5 for at in range(len(experts))], ticktext=named, ticks="",
        showticklabels=True,
    )  # fmt: skip
    return [
        {
            "type": "line", "xref": f"x{suffix}", "yref": f"y{suffix} domain", "x0": at * block - 0.5,
            "x1": at * block - 0.5, "y0": 0, "y1": 1, "line": {"color": "white", "width": 2},
        }
        for at in range(1, len(experts))
    ]  # fmt: skip


def _rows(rows: pd.DataFrame, title: str) -> dict[str, Any]:
    return _ticks(rows["row"], 3) | {"title": {"text": title}}


def _columns(rows: pd.DataFrame, title: str) -> dict[str, Any]:
    return _ticks(rows["column"], 4) | {"title": {"text": title}, "tickangle": 0}


def _ticks(starts: pd.Series[int], most: int) -> dict[str, Any]:
    """Ticks at a few cells, named by the first entry of their block, counted from 1."""
    places = np.sort(starts.unique())
    at = sorted(set(np.linspace(0, len(places) - 1, most).round().astype(int).tolist()))
    return {"tickmode": "array", "tickvals": at, "ticktext": [str(int(places[i]) + 1) for i in at]}


def _alt(by_step: dict[str, pd.DataFrame], experts: list[str]) -> str:
    empty = float((by_step["pruned"]["value"] == 0).mean())
    uneven = by_step["decomposed"].groupby(["expert", "row"])["value"].mean()
    factor = float(uneven.max()) / max(float(uneven.min()), 1e-12)
    return (
        f"Matrices of {plural(len(experts), 'expert')} ({clean_text(', '.join(experts), 120)}) decomposed, "
        f"renormalized, pruned and merged, as block means. Before renormalization rows differ by a factor of "
        f"{factor:.3g}; pruning empties {percent(empty)} of the blocks."
    )
