"""A table of factors that is painted by hand: what every expert's task vector is multiplied by, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart, in_order
from viz.drawing import Drawing, Trace, bar, heatmap, scatter
from viz.parts import tensor_columns
from viz.parts.tensor_columns import Span
from viz.text import count, identifier, percent, plural, role_name, safe_text, short_name

Floats = npt.NDArray[np.float64]
Cells = tuple[
    int, int, int, float
]  # neighboring cells of one factor: row, first column, the one after the last, factor
ALL = "all"
TOP, GAP, NAMED, LONG_NAMED = 26, 6, 26, 104  # px: above the map, between it and the names of groups, of these
ABOVE, BELOW, ORANGE = "above 1", "below 0", "#E69F00"
UPRIGHT, WIDE, NARROW = 10, 900, 500  # px that an upright number takes, and of all columns on a usual and a narrow page
LEGIBLE = 56  # px of the color bar, at least
MIXED = -0.2  # where the row of all experts has more than one factor, on the scale of the colors
SCALE = [[0, "white"], [0.1, "white"], [0.1, theme.PRUNED], [1 / 6, theme.PRUNED], [1, theme.KEPT]]


@dataclass(frozen=True)
class Canvas:
    """The table as a matrix [expert, tensor], columns in the order in which they are drawn."""

    experts: list[str]
    tensors: pd.DataFrame  # one row a tensor, with the label of its group
    factors: Floats
    spans: list[Span]


@chart(
    title="Factors painted by hand",
    question="By which factor is each expert's task vector multiplied, tensor by tensor?",
    columns=("tensor", "order", "section", "role", "part", "numel", "expert", "factor"),
    rows=("expert", "tensor"),
    picks=("expert", "tensor", "section", "part"),
    empty="There is nothing to paint: no expert has a tensor that merging changes.",
)
def manual_canvas(
    table: pd.DataFrame,
    *,
    group: str = "order",
    brush: float | None = None,
    selected: tuple[str | None, str | None] = (None, None),
    small: bool = False,
    present: bool = False,
) -> go.Figure:
    """A heat map of the factors, and a row for all experts; names of rows and of groups of columns can be clicked.

    tensor (name), order (model order), section ("embeddings", "block 0" …, "output"), role, part (kind of layer),
    numel (scalars), expert, factor (of its task vector there; no unit). ``group`` orders the columns as in
    ``saliency_matrix``; ``brush`` is the factor that a click paints, None if clicks paint nothing; ``selected``
    outlines a cell, row or column. ``small`` is for a picture beside other controls.
    """
    canvas = _canvas(table, group)
    names = [*canvas.experts, ALL]
    height = len(names) * (14 if small else 24 if len(names) <= 9 else 18)
    strip = LONG_NAMED if group == "part" else NAMED
    inner = height + GAP + strip

    fig = Drawing([
        _heat_map(canvas, height, inner),
        *_beyond(canvas),
        _cell_targets(canvas, names, brush),
        _row_names(names, brush),
        _group_targets(canvas, brush, group),
        _written(names),
    ])  # fmt: skip
    _lay_out(fig, canvas, names, group, (strip / inner, (strip + GAP) / inner))
    caption = [] if small else [theme.caption("(c) Factors, painted by hand", 1)]
    fig.update_layout(
        annotations=[*caption, *_group_names(canvas, group)],
        shapes=[*tensor_columns.separators(canvas.spans, ("y",)), _rule(len(canvas.experts)),
                *_outline(canvas, *selected)],
        margin={"l": tensor_columns.left_margin(canvas.experts, canvas=True), "r": 92, "t": TOP, "b": 34},
        barmode="overlay",
        showlegend=True,
        legend={"orientation": "h", "x": 1, "y": 1, "xanchor": "right", "yanchor": "bottom", "itemclick": False,
                "itemdoubleclick": False},
    )  # fmt: skip
    # the brush is in the state: the front end forgets the last click with it, so that a cell can be clicked again
    state = f"{group}:{brush}"
    return theme.finish(fig, "manual_canvas", _alt(canvas), inner + TOP + 34, present, state)


def _canvas(table: pd.DataFrame, group: str) -> Canvas:
    experts = in_order(table["expert"])
    table = table.assign(expert=table["expert"].astype(str), tensor=table["tensor"].astype(str))
    tensors = tensor_columns.ordered(table, group)
    if len(table) != len(experts) * len(tensors):
        raise ChartError("manual_canvas needs one row for every pair of expert and tensor; some are missing")
    row = table["expert"].map({name: i for i, name in enumerate(experts)}).to_numpy()
    column = table["tensor"].map({name: j for j, name in enumerate(tensors["tensor"])}).to_numpy()
    factors = np.zeros((len(experts), len(tensors)))
    factors[row, column] = np.nan_to_num(table["factor"].to_numpy(np.float64), nan=1.0)
    return Canvas(experts, tensors, factors, tensor_columns.spans(tensors))


def _with_all(factors: Floats) -> Floats:
    """The factors and a last row of those that all experts share, NaN where they differ."""
    same = (factors == factors[:1]).all(axis=0)
    return np.vstack([factors, np.where(same, factors[0], np.nan)])


def _heat_map(canvas: Canvas, height: float, inner: float) -> Trace:
    factors, length = _with_all(canvas.factors), min(max(height, LEGIBLE), 110)
    shown = np.where((factors >= 0) & (factors <= 1), factors, MIXED)  # others are drawn by ``_beyond``
    return heatmap(
        z=shown.astype(np.float32), zmin=MIXED, zmax=1, colorscale=SCALE, xaxis="x", yaxis="y", ygap=1,
        name="Factors", hoverinfo="skip",
        colorbar={
            "x": 1.01, "xpad": 4, "y": 1, "yanchor": "top", "lenmode": "pixels", "ypad": 0,
            "len": length, "thickness": 12, "outlinewidth": 1, "outlinecolor": theme.GRID,
            "tickfont": {"size": theme.SMALL},
            "tickvals": [-0.14, 0.02, 0.5, 0.98], "ticktext": ["differ", "0 pruned", "0.5", "1 kept"],
        },
    )  # fmt: skip


def _beyond(canvas: Canvas) -> list[Trace]:
    """Bars over neighboring cells of one factor above 1, which have the number in them, or below 0, hatched."""
    above, below = [], []
    for row, factors in enumerate(_with_all(canvas.factors)):
        starts = [0, *(np.flatnonzero(factors[1:] != factors[:-1]) + 1), len(factors)]
        for first, end in pairwise(starts):
            if factors[first] > 1:
                above.append((row, first, end, factors[first]))
            elif factors[first] < 0:
                below.append((row, first, end, factors[first]))
    looks: dict[str, dict[str, Any]] = {
        ABOVE: {"color": ORANGE, "line": {"width": 0}},
        BELOW: {
            "color": "white", "line": {"width": 0},
            "pattern": {"shape": "/", "fgcolor": theme.INK, "bgcolor": "white", "size": 6, "solidity": 0.4},
        },
    }  # fmt: skip
    widest = max(theme.text_width(f"{factor:g}") for *_, factor in above) if above else 0
    flat = [span for span in above if (span[2] - span[1]) * NARROW / len(canvas.tensors) >= widest]
    upright = [span for span in above if span not in flat]
    kinds = ((ABOVE, flat, 0), (ABOVE, upright, -90), (BELOW, below, 0))
    return [
        _bars(name, spans, angle, looks[name], len(canvas.tensors), shown=spans is not upright or not flat)
        for name, spans, angle in kinds
        if spans
    ]


def _bars(name: str, spans: Sequence[Cells], angle: int, look: dict[str, Any], columns: int, shown: bool) -> Trace:
    """Bars of one look; ``shown`` puts it into the legend."""
    row, first, end, factor = np.array(spans, np.float64).T
    fits = end - first >= UPRIGHT * columns / WIDE
    return bar(
        x=((first + end - 1) / 2).astype(np.float32), y=np.full(len(row), 0.94, np.float32),
        base=(row - 0.47).astype(np.float32), width=(end - first).astype(np.float32), marker=look, name=name,
        text=[f"{value:g}" if room else "" for value, room in zip(factor, fits, strict=True)], textangle=angle,
        textposition="inside" if name == ABOVE else "none", insidetextanchor="middle", showlegend=shown,
        textfont={"size": theme.SMALL, "color": theme.ON_LIGHT}, hoverinfo="skip", xaxis="x", yaxis="y",
    )  # fmt: skip


def _cell_targets(canvas: Canvas, names: Sequence[str], brush: float | None) -> Trace:
    """A transparent bar over every cell; those of the last row have no expert."""
    rows, columns = len(names), len(canvas.tensors)
    at = np.repeat(np.arange(rows), columns)
    tensors = [identifier(name) for name in canvas.tensors["tensor"]]
    whose = [*map(identifier, canvas.experts), ""]
    return bar(
        x=np.tile(np.arange(columns, dtype=np.float32), rows), y=np.ones(len(at), np.float32),
        base=(at - 0.5).astype(np.float32), width=1, name="Cells", xaxis="x", yaxis="y", showlegend=False,
        customdata=[[expert, tensor, "", ""] for expert in whose for tensor in tensors],
        text=_hover_texts(canvas, brush), textposition="none", hovertemplate="%{text}<extra></extra>",
        marker={"opacity": 0, "line": {"width": 0}},
        meta={"columns": {"Factors": _with_all(canvas.factors).ravel().tolist()}},  # the map draws only those up to 1
    )  # fmt: skip


def _hover_texts(canvas: Canvas, brush: float | None) -> list[str]:
    facts = canvas.tensors
    named = [f"<b>{short_name(name)}</b><br>" for name in facts["tensor"]]
    large = canvas.factors.size > tensor_columns.LARGE
    rest = [
        ""
        if large
        else f"<br>{safe_text(section)}, {safe_text(part)} ({safe_text(role_name(role))}), {count(numel)} scalars"
        f"{_click(brush)}"
        for section, part, role, numel in zip(
            facts["section"], facts["part"], facts["role"].astype(str), facts["numel"], strict=True
        )
    ]
    whose = [*(f"{safe_text(expert)}: " for expert in canvas.experts), "all experts: "]
    factors = [[_words(value) for value in row] for row in _with_all(canvas.factors).tolist()]
    return [
        f"{named[j]}{whose[i]}{factors[i][j]}{rest[j]}" for i in range(len(whose)) for j in range(len(named))
    ]  # fmt: skip


def _words(factor: float) -> str:
    if np.isnan(factor):
        return "their factors differ"
    return {0.0: "factor 0, pruned", 1.0: "factor 1, kept"}.get(factor, f"factor {factor:g}")


def _click(brush: float | None) -> str:
    return "" if brush is None else f"<br>a click paints {brush:g}"


def _row_names(names: Sequence[str], brush: float | None) -> Trace:
    """A transparent bar over every name of a row; that of the last one has no expert."""
    rows = np.arange(len(names), dtype=np.float32)
    words = [f"the whole row of {safe_text(name, 40)}" for name in names[:-1]] + ["everything"]
    return bar(
        x=np.full(len(names), 0.5, np.float32), y=np.ones(len(names), np.float32), base=rows - np.float32(0.5), width=1,
        name="Names of rows", xaxis="x2", yaxis="y", showlegend=False,
        customdata=[*([identifier(name), "", "", ""] for name in names[:-1]), ["", "", "", ""]],
        text=[f"{word[:1].upper()}{word[1:]}{_click(brush)}" for word in words], textposition="none",
        hovertemplate="%{text}<extra></extra>", marker={"opacity": 0, "line": {"width": 0}},
    )  # fmt: skip


def _written(names: Sequence[str]) -> Trace:
    """The names of the rows, which may reach into the margin."""
    return scatter(
        x=np.full(len(names), 0.94, np.float32), y=np.arange(len(names), dtype=np.float32), mode="text",
        text=[*(safe_text(name, 24) for name in names[:-1]), "<b>all</b>"], textposition="middle left",
        textfont={"size": theme.SMALL, "color": theme.INK}, name="Rows", hoverinfo="skip", cliponaxis=False,
        xaxis="x2", yaxis="y", showlegend=False,
    )  # fmt: skip


def _group_targets(canvas: Canvas, brush: float | None, group: str) -> Trace:
    """A bar under every group of columns."""
    spans = canvas.spans
    return bar(
        x=np.array([(span.first + span.last) / 2 for span in spans], np.float32), y=np.ones(len(spans), np.float32),
        width=np.array([span.last - span.first + 0.8 for span in spans], np.float32), name="Names of groups",
        customdata=[_picks(span, canvas, group) for span in spans], showlegend=False, xaxis="x", yaxis="y3",
        text=[f"{safe_text(span.label, 40)}: {plural(span.last - span.first + 1, 'tensor')} of every expert"
              f"{_click(brush)}" for span in spans],
        hovertemplate="%{text}<extra></extra>", textposition="none",
        marker={"color": theme.PANEL, "line": {"width": 1, "color": theme.FADED}},
    )  # fmt: skip


def _picks(span: Span, canvas: Canvas, group: str) -> list[str]:
    first = canvas.tensors.iloc[span.first]
    by_part = group == "part" and tensor_columns.is_block(str(first["section"]))
    return ["", "", "" if by_part else identifier(span.label), identifier(span.label) if by_part else ""]


def _group_names(canvas: Canvas, group: str) -> list[dict[str, Any]]:
    """Names in the bars of groups, if they fit there on a narrow page; sections at the ends grow beyond theirs."""
    columns, labels = len(canvas.tensors), []
    wide = tensor_columns.NARROW * (1 - tensor_columns.NAMES) / columns  # px of a column
    for span in canvas.spans:
        text = safe_text(tensor_columns.short(span.label), 16)
        across = theme.SMALL + 2 if group == "part" else theme.text_width(text)
        if (group == "part" or tensor_columns.is_block(span.label)) and across <= wide * (span.last - span.first + 1):
            labels.append({
                "text": text, "x": (span.first + span.last) / 2, "textangle": -90 if group == "part" else 0,
                "xref": "x", "font": {"size": theme.SMALL, "color": theme.INK}, "showarrow": False,
            })  # fmt: skip
    if group != "part":
        labels += [
            label | {"xshift": 3 if label["xanchor"] == "left" else -3}
            for label in tensor_columns.end_labels(canvas.spans, columns)
        ]
    return [label | {"y": 0.5, "yref": "y3", "yanchor": "middle", "yshift": 0} for label in labels]


def _lay_out(fig: Drawing, canvas: Canvas, names: Sequence[str], group: str, heights: tuple[float, float]) -> None:
    columns = len(canvas.tensors)
    plain = {"showgrid": False, "showticklabels": False, "ticks": "", "fixedrange": True}
    fig.update_layout(
        xaxis={
            "domain": [tensor_columns.NAMES, 1], "range": [-0.5, columns - 0.5], "anchor": "y3", "showgrid": False,
            "showticklabels": False, "ticks": "", "title": {"text": tensor_columns.title(group, columns)},
        },
        xaxis2={**plain, "domain": [0, tensor_columns.NAMES], "range": [0, 1], "anchor": "y",
                "title": {"text": "Expert", "font": {"color": "rgba(0,0,0,0)"}}},
        yaxis={**plain, "domain": [heights[1], 1], "range": [len(names) - 0.5, -0.5], "anchor": "x2",
               "title": {"text": "Expert", "standoff": tensor_columns.beside_names(canvas.experts)}},
        yaxis3={**plain, "domain": [0, heights[0]], "range": [0, 1], "anchor": "x"},
    )  # fmt: skip


def _rule(experts: int) -> dict[str, Any]:
    """A line above the row of all experts."""
    return {
        "type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": experts - 0.5, "y1": experts - 0.5,
        "line": {"color": theme.FADED, "width": 1},
    }  # fmt: skip


def _outline(canvas: Canvas, expert: str | None, tensor: str | None) -> list[dict[str, Any]]:
    """A rectangle around the selected cell, row or column."""
    names = list(canvas.tensors["tensor"])
    row = canvas.experts.index(expert) if expert in canvas.experts else None
    column = names.index(tensor) if tensor in names else None
    if row is None and column is None:
        return []
    x0, x1 = (-0.5, len(names) - 0.5) if column is None else (column - 0.5, column + 0.5)
    y0, y1 = (-0.5, len(canvas.experts) + 0.5) if row is None else (row - 0.5, row + 0.5)
    return [
        {
            "type": "rect", "xref": "x", "yref": "y", "x0": x0, "x1": x1, "y0": y0, "y1": y1,
            "line": {"color": theme.ACCENT, "width": 3}, "name": "selected",
        }
    ]  # fmt: skip


def _alt(canvas: Canvas) -> str:
    factors, numel = canvas.factors, canvas.tensors["numel"].to_numpy(np.float64)
    kept = (factors != 0).any(axis=0)
    share = float(numel[kept].sum() / numel.sum()) if numel.sum() else float("nan")
    other = int(((factors != 0) & (factors != 1)).sum())
    more = f" {plural(other, 'cell')} of {factors.size:,} {'has' if other == 1 else 'have'} another factor than 0 or 1."
    return (
        f"Factors of {plural(len(canvas.experts), 'expert')} for {plural(len(numel), 'tensor')}, painted by hand. "
        f"{int(kept.sum())} of {plural(len(numel), 'tensor')}, {percent(share)} of the scalars, are kept for at least "
        f"one expert.{more}"
    )
