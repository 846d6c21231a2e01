"""The saliency of every tensor for every expert, each expert's own mask, and the shared mask (LwPTV, Fig. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart, in_order
from viz.drawing import Drawing, Trace, heatmap
from viz.parts import tensor_columns
from viz.parts.cells import click_targets
from viz.text import count, percent, plural, real, role_name, safe_text, short_name

Floats = npt.NDArray[np.float32]
TOP, GAP, FINAL = 38, 34, 30  # px: above the first panel (for the tool bar), between panels, the shared mask's row
MASK_SCALE = [[0, theme.PRUNED], [0.5, theme.PRUNED], [0.5, theme.KEPT], [1, theme.KEPT]]


@dataclass(frozen=True)
class Grid:
    """The table as matrices [expert, tensor], columns in the order in which they are drawn."""

    experts: list[str]
    tensors: pd.DataFrame  # one row a tensor, with the label of its group
    saliency: npt.NDArray[np.float64]
    kept: npt.NDArray[np.uint8]
    final: npt.NDArray[np.uint8]  # [tensor]
    shared: bool  # every expert has the same final mask

    @property
    def large(self) -> bool:
        """Whether there are too many cells for all that could be said of each."""
        return self.kept.size > tensor_columns.LARGE


@chart(
    title="Saliency and masks",
    question="Which tensors are salient for each expert, and which does the merge keep?",
    columns=("tensor", "order", "section", "role", "part", "numel", "expert", "saliency", "kept", "final"),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This method has no mask: it keeps every tensor of every expert.",
)
def saliency_matrix(
    table: pd.DataFrame,
    *,
    selected: tuple[str | None, str | None] = (None, None),
    group: str = "order",
    log: bool = True,
    normalize: bool = False,
    limits: tuple[float, float] | None = None,
    guides: bool = False,
    present: bool = False,
) -> go.Figure:
    """Three aligned heat maps over the tensors: saliency, own masks, final mask.

    tensor (name), order (model order), section ("embeddings", "block 0" …, "output"), role, part (kind of layer),
    numel (scalars), expert, saliency (mean absolute deviation, in units of the weights), kept (the expert's own mask),
    final (the mask that is applied). ``selected`` outlines a cell, row or column; ``group`` is order, block (kinds of
    layer lined up inside each block) or part (same kinds side by side); ``normalize`` divides each row by its largest
    value; ``limits`` fixes the color range, so that two figures compare; ``guides`` draws the first two maps only, in
    the columns of the figure ``manual_canvas``, which is then shown below.
    """
    grid = _grid(table, group)
    rows = len(grid.experts)
    row_height = 22 if rows <= 8 else 17
    panel = max(rows * row_height, 84)  # one expert still leaves room for the color bar
    bottom = 12 if guides else 96 if group == "part" else 52
    inner = 2 * panel + GAP + (0 if guides else FINAL + GAP)
    domains = _domains(inner, panel)[: 2 if guides else 3]

    traces = [
        _saliency_map(grid, log, normalize, limits, domains[0]),
        _mask_map(grid.kept, "Own mask", "y2", domains[1], inner),
    ]
    if not guides:
        traces.append(_mask_map(grid.final[None], "Final mask", "y3", None, inner))
    names, hover = list(grid.tensors["tensor"]), _hover_texts(grid)
    traces.append(click_targets(grid.experts, names, hover, "Saliency cells", "y"))
    if grid.large:
        traces.append(click_targets([""], names, _final_texts(grid), "Own mask columns", "y2", height=rows))
    else:
        traces.append(click_targets(grid.experts, names, hover, "Own mask cells", "y2"))
    if not guides:
        traces.append(click_targets([""], names, _final_texts(grid), "Final mask cells", "y3"))

    fig = Drawing(traces)
    _lay_out_axes(fig, grid, group, domains, guides)
    titles = ("(a) Saliency", "(b) Each expert's own mask", "(c) Mask applied to all experts")
    if not grid.shared:
        titles = (*titles[:2], "(c) Kept for at least one expert: no mask is shared")
    fig.update_layout(
        annotations=[*fig.annotations, *(theme.caption(t, d[1]) for t, d in zip(titles, domains, strict=False))],
        shapes=[
            *tensor_columns.separators(tensor_columns.spans(grid.tensors), ("y", "y2", "y3")[: len(domains)]),
            *_outline(grid, *selected)[: len(domains)],
        ],
        margin={"l": tensor_columns.left_margin(grid.experts, guides), "r": 92, "t": TOP, "b": bottom},
        showlegend=False,
        barmode="overlay",
    )
    return theme.finish(fig, "saliency_matrix", _alt(grid), inner + TOP + bottom, present, group)


def _grid(table: pd.DataFrame, group: str) -> Grid:
    experts = in_order(table["expert"])
    table = table.assign(expert=table["expert"].astype(str), tensor=table["tensor"].astype(str))
    tensors = tensor_columns.ordered(table, group)
    cells = pd.MultiIndex.from_product([experts, tensors["tensor"]], names=["expert", "tensor"])
    filled = table.set_index(["expert", "tensor"])
    if absent := set(cells) - set(filled.index):
        expert, tensor = min(absent)
        raise ChartError(f"saliency_matrix lacks the row of expert {expert!r}, tensor {tensor!r}; every pair needs one")
    filled = filled.reindex(cells)
    shape = (len(experts), len(tensors))
    saliency = filled["saliency"].to_numpy(np.float64).reshape(shape)
    final = filled["final"].to_numpy(bool).reshape(shape)
    return Grid(
        experts,
        tensors,
        np.where(np.isfinite(saliency), saliency, np.nan),
        filled["kept"].to_numpy(bool).reshape(shape).astype(np.uint8),
        np.asarray(final.any(axis=0), np.uint8),
        bool((final == final[:1]).all()),
    )


def _domains(inner: float, panel: float) -> list[tuple[float, float]]:
    """Bottom and top of the three panels as fractions of the plot's height, first panel on top."""
    heights = (panel, panel, FINAL)
    tops = (inner, inner - panel - GAP, FINAL)
    return [((top - height) / inner, top / inner) for top, height in zip(tops, heights, strict=True)]


def _saliency_map(
    grid: Grid,
    log: bool,
    normalize: bool,
    limits: tuple[float, float] | None,
    domain: tuple[float, float],
) -> Trace:
    values = grid.saliency
    if normalize:
        largest = np.nanmax(np.where(np.isnan(values), 0, values), axis=1, keepdims=True)
        values = np.divide(values, largest, out=np.zeros_like(values), where=largest > 0)
    positive = values[values > 0]  # a NaN compares false
    low, high = limits or (_lower_end(positive, log), float(positive.max(initial=0)))
    bar: dict[str, Any] = {"title": {"text": "share of<br>row's max" if normalize else "saliency", "side": "top"}}
    meta: dict[str, list[str]] = {}
    if log and low > 0:
        # zero has no logarithm: it takes the scale's lowest color, and the hover gives the number
        values = np.log10(np.maximum(values, low))
        bar |= theme.ticks(low, high, log=True)
        low, high, meta = np.log10(low), np.log10(high), {"log": ["z"]}
    elif high > low:
        bar |= theme.ticks(low, high)
    if high <= low:
        high = low + 1
    return heatmap(
        z=values.astype(np.float32), zmin=low, zmax=high, colorscale=theme.SEQUENTIAL, xaxis="x", yaxis="y",
        ygap=1, name="Saliency", hoverinfo="skip", colorbar=_color_bar(domain) | bar,
        meta=meta,
    )  # fmt: skip


def _lower_end(positive: npt.NDArray[np.float64], log: bool) -> float:
    if not log or not positive.size:
        return 0.0
    return max(float(positive.min()), float(positive.max()) * 1e-6)


def _color_bar(domain: tuple[float, float]) -> dict[str, Any]:
    return {
        "x": 1.01, "xpad": 4, "y": domain[1], "yanchor": "top", "lenmode": "fraction", "ypad": 0, "outlinewidth": 0,
        "len": domain[1] - domain[0], "thickness": 12, "tickfont": {"size": theme.SMALL},
    }  # fmt: skip


def _mask_map(
    mask: npt.NDArray[np.uint8], name: str, axis: str, domain: tuple[float, float] | None, inner: float
) -> Trace:
    bar = None
    if domain is not None:
        length = min(60 / inner, domain[1] - domain[0])
        bar = _color_bar(domain) | {"tickvals": [0.25, 0.75], "ticktext": ["pruned", "kept"], "len": length}
    return heatmap(
        z=mask, zmin=0, zmax=1, colorscale=MASK_SCALE, xaxis="x", yaxis=axis, ygap=1, name=name, hoverinfo="skip",
        showscale=bar is not None, colorbar=bar,
    )  # fmt: skip


def _hover_texts(grid: Grid) -> list[str]:
    roles = grid.tensors["role"].map(role_name)
    facts = [
        ""
        if grid.large
        else f"<br>{safe_text(row.section)}, {safe_text(row.part)} ({safe_text(role)}), {count(numel)} scalars"
        for row, role, numel in zip(grid.tensors.itertuples(), roles, grid.tensors["numel"], strict=True)
    ]
    names = [short_name(name) for name in grid.tensors["tensor"]]
    words = ("pruned", "kept")
    final = ["" if grid.large else f" (final: {words[kept]})" for kept in grid.final]
    return [
        f"<b>{names[j]}</b><br>{safe_text(expert)}: saliency {real(grid.saliency[i, j])}, "
        f"{words[grid.kept[i, j]]}{final[j]}{facts[j]}"
        for i, expert in enumerate(grid.experts)
        for j in range(len(names))
    ]


def _final_texts(grid: Grid) -> list[str]:
    keepers = grid.kept.sum(axis=0)
    word = {1: "kept", 0: "pruned"}
    return [
        f"<b>{short_name(row.tensor)}</b><br>{word[int(grid.final[j])]}; own masks keep it for "
        f"{keepers[j]} of {plural(len(grid.experts), 'expert')}<br>{safe_text(row.section)}, {safe_text(row.part)}"
        for j, row in enumerate(grid.tensors.itertuples())
    ]


def _lay_out_axes(fig: Drawing, grid: Grid, group: str, domains: list[tuple[float, float]], guides: bool) -> None:
    spans = tensor_columns.spans(grid.tensors)
    columns = len(grid.tensors)
    if guides:
        fig.update_xaxes(**tensor_columns.bare_axis(columns, group), anchor="y2")
    else:
        fig.update_xaxes(**tensor_columns.axis(spans, columns, group), anchor="y3")
    if not guides and group != "part":
        fig.update_layout(annotations=tensor_columns.end_labels(spans, columns))
    names = [safe_text(expert, 24) for expert in grid.experts]
    rows = len(names)
    ticks = {"tickmode": "array", "tickvals": list(range(rows)), "ticktext": names}
    common = {"showgrid": False, "fixedrange": True, "anchor": "x"}
    panels = [{"domain": domain, "range": [rows - 0.5, -0.5], "title": {"text": "Expert"}, **ticks, **common}
              for domain in domains[:2]]  # fmt: skip
    fig.update_layout(yaxis=panels[0], yaxis2=panels[1])
    if not guides:
        fig.update_layout(
            yaxis3={"domain": domains[2], "range": [0.5, -0.5], "tickvals": [0], "ticktext": ["final"], **common}
        )


def _outline(grid: Grid, expert: str | None, tensor: str | None) -> list[dict[str, Any]]:
    """Rectangles around the selected cell, row or column; in the shared mask, around the column."""
    names = list(grid.tensors["tensor"])
    row = grid.experts.index(expert) if expert in grid.experts else None
    column = names.index(tensor) if tensor in names else None
    if row is None and column is None:
        return []
    x0, x1 = (-0.5, len(names) - 0.5) if column is None else (column - 0.5, column + 0.5)
    y0, y1 = (-0.5, len(grid.experts) - 0.5) if row is None else (row - 0.5, row + 0.5)
    boxes = [("y", y0, y1), ("y2", y0, y1)] + ([] if column is None else [("y3", -0.5, 0.5)])
    return [
        {
            "type": "rect", "xref": "x", "yref": axis, "x0": x0, "x1": x1, "y0": low, "y1": high,
            "line": {"color": theme.ACCENT, "width": 3}, "name": "selected",
        }
        for axis, low, high in boxes
    ]  # fmt: skip


def _alt(grid: Grid) -> str:
    final = grid.final.astype(bool)
    numel = grid.tensors["numel"].to_numpy(np.float64)
    share = float(numel[final].sum() / numel.sum()) if numel.sum() else float("nan")
    keepers = grid.kept.sum(axis=0)
    experts = len(grid.experts)
    return (
        f"Saliency of {plural(len(numel), 'tensor')} for {plural(experts, 'expert')}. The final mask keeps "
        f"{int(final.sum())} of {plural(len(numel), 'tensor')}, {percent(share)} of the scalars; own masks agree to "
        f"keep {int((keepers == experts).sum())} and to prune {int((keepers == 0).sum())} of them."
    )
