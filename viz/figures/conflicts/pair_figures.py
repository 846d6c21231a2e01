"""Similarity of the task vectors of two experts: pair by pair, and one pair tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, percent, plural, role_name, safe_text
from viz.hover import LAYER_TEXT, decimal, describe_extremes, hover_texts
from viz.parts import axes, heat_maps, legends, matrix, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition, click_targets, outline
from viz.parts.legends import add_legend

VALUE_TITLES = {  # -> title of the color scale, and of an axis
    "cosine": ("cosine", "Cosine of the task vectors"),
    "conflict": ("share with<br>other signs", "Share with other signs,<br>of entries that both keep"),
    "overlap": ("shared entries<br>(Jaccard)", "Shared entries (Jaccard index)"),
}
ROW_PX, MAX_NAME = 42, 18  # px, characters
PAIR_HOVER = (
    "<b>{first} and {second}</b><br>{cosine:cosine}<br>other signs in {conflict:percent} of the entries that both keep"
    "[ ({opposed:count} of {both:count})]<br>overlap {overlap:percent}[, by chance {chance:percent}]"
)
TENSOR_HOVER = (
    f"<b>{{tensor:short}}</b><br>{LAYER_TEXT}[, {{numel:count}} scalars]<br>{{what}} {{value:number}}; all pairs "
    "{low:number} to {high:number}<br>the whole section {whole:number}; by chance {chance:number}"
)
BAND_NAME, CHANCE_NAME, WHOLE_NAME = "All pairs, least to most", "Independent experts", "Whole block"


@chart(
    title="Experts against experts",
    question="Which experts pull in the same direction, and which against each other?",
    columns=("first", "second", "cosine", "conflict", "overlap"),
    optional=("chance", "both", "opposed"),
    rows=("first", "second"),
    picks=("first", "second"),
    empty="There are no two experts to compare.",
)
def pair_matrix(
    table: pd.DataFrame, *, value: str = "cosine", order: Names = None, selected: CellPosition = NO_CELL
) -> Picture:
    """A matrix of experts, without its diagonal.

    Columns: first, second (experts, every pair both ways), cosine (of the task vectors), conflict (share of the entries
    that both keep whose signs differ), overlap (Jaccard index of the entries that they keep), chance (overlap of
    independent masks), both and opposed (entries). ``order`` is the order of the experts; a selected pair is outlined
    both ways.
    """
    check_option("value", value, tuple(VALUE_TITLES))
    names = order or distinct_names([*table["first"], *table["second"]])
    y, x = (table[side].map(names.index).to_numpy(np.float32) for side in ("first", "second"))
    finite = np.isfinite(table[value].to_numpy(np.float64))
    values = table.loc[finite, value].to_numpy(np.float64)
    heat = heat_maps.heat(values, _make_scale(values, value), x=x[finite], y=y[finite], xgap=2, ygap=2)
    cells = list(zip(y.astype(int).tolist(), x.astype(int).tolist(), strict=True))
    fig = Drawing([
        heat,
        *([_write_numbers(table[value], x, y, heat, value)] if len(names) <= matrix.MAX_NUMBERED_COLUMNS else []),
        click_targets(names, names, hover_texts(table, PAIR_HOVER, cosine=_format_cosine), "Pairs", cells=cells),
    ])  # fmt: skip
    widest = axes.names_width(names, MAX_NAME)
    bottom = round(widest * float(np.sin(np.radians(matrix.TILT))) + 50)
    fig.update_xaxes(**axes.name_axis("Expert", names, MAX_NAME, tickangle=-matrix.TILT, ticks=""))
    fig.update_yaxes(**axes.name_axis("Expert", names, MAX_NAME, down=True))
    pairs = (selected[::-1], selected) if selected[0] != selected[1] and {*selected} <= {*names} else ()
    fig.update_layout(
        barmode="overlay", showlegend=False, margin={"l": widest + 38, "r": matrix.RIGHT, "t": matrix.TOP, "b": bottom},
        shapes=[*map(_self_comparison_cell, range(len(names))), *(frame for pair in pairs for frame in outline(names,
        names, pair))],
    )  # fmt: skip
    words = f"{value.capitalize()} of {plural(len(names), 'expert')}, pair by pair."
    pair = f"{{first:plain 40}} and {{second:plain 40}}, {{{value}:number}}"
    most, least = describe_extremes(table, value, pair, number=_number_format(value, 2))
    alt = f"{words} It is most for {most}, least for {least}." if most else f"{words} It is defined for none."
    return Picture(fig, alt, matrix.TOP + ROW_PX * max(len(names), 3) + bottom, zoom_key=f"{value}:{len(names)}")


def _make_scale(values: Any, value: str) -> heat_maps.ColorScale:
    """The color scale of a value.

    For cosines it is symmetric around zero; for conflicts it starts at zero and ends at one half, the value by chance,
    or above; for overlaps, which often differ little, it is their own range.
    """
    low, high = float(values.min(initial=1.0)), float(values.max(initial=0.0))
    limits = {"conflict": (0.0, max(0.5, high)), "overlap": (low, high)}.get(value)
    is_symmetric = value == "cosine"
    return heat_maps.ColorScale(
        VALUE_TITLES[value][0], log=False, limits=limits, percent=not is_symmetric, diverging=is_symmetric
    )


def _write_numbers(values: pd.Series[float], x: Any, y: Any, heat: Trace, value: str) -> Trace:
    """The values as text in the color bar's units, white or dark, whichever is easier to read on the cell's color."""
    share = (values - heat["zmin"]) / (heat["zmax"] - heat["zmin"])
    white = (share - 0.5).abs() > 0.3 if value == "cosine" else share < 0.5
    return matrix.write_numbers(x, y, [_number_format(value, 2)(number).removesuffix("%") for number in values], white)


def _self_comparison_cell(index: int) -> dict[str, Any]:
    """A gray cell: comparing an expert with itself is meaningless."""
    ends = {"x0": index - 0.48, "x1": index + 0.48, "y0": index - 0.48, "y1": index + 0.48}
    return {"type": "rect", **ends, "line": {"width": 0}, "fillcolor": theme.PRUNED, "layer": "below"}


def _format_cosine(number: float) -> str:
    return f"cosine {decimal(number, 3)}" if np.isfinite(number) else "cosine not defined"


def _number_format(value: str, digits: int = 3) -> Callable[[float], str]:
    return partial(decimal, digits=digits) if value == "cosine" else percent


@chart(
    title="One pair by depth",
    question="Where in the network do these two experts agree?",
    columns=(*TENSOR_COLUMNS, "value", "chance", "whole", "low", "high"),
    optional=("numel",),
    rows=("tensor",),
    picks=("tensor",),
    empty="There is no tensor to compare.",
)
def pair_depth(
    table: pd.DataFrame,
    *,
    value: str = "cosine",
    pair: tuple[str, str] = ("first", "second"),
    selected: str | None = None,
) -> Picture:
    """A point for each tensor, colored by role, a line for whole blocks, and the range over all pairs behind them.

    Columns: value (of this pair), chance (of independent experts), whole (value of all the section's tensors taken
    together), low and high (over all pairs). ``value`` names the number, ``pair`` the experts.
    """
    check_option("value", value, tuple(VALUE_TITLES))
    columns = tensor_columns.TensorColumns.from_table(table)
    rows = columns.tensors.assign(what=value)
    plotted = series.require_finite_rows(rows, "value", empty_reason="no tensor of these two can be compared")
    span = series.finite_rows(rows, "low")
    x, low, high = (axes.step_edges(span.index), *(np.repeat(span[end], 2) for end in ("low", "high")))
    fig = Drawing([
        series.band(x, low, high, theme.GRID, name=BAND_NAME, legendgroup=BAND_NAME, meta={"steps": True}),
        _draw_line(rows, "chance", CHANCE_NAME, width=1.4, dash="dash"),
        _draw_line(rows, "whole", WHOLE_NAME, width=2),
        *(_draw_points(plotted[plotted["role"] == role], role, value) for role in distinct_names(plotted["role"])),
    ])  # fmt: skip
    percents = {} if value == "cosine" else {"tickformat": ".0%", "rangemode": "tozero"}
    fig.update_yaxes(title={"text": VALUE_TITLES[value][1]}, **percents)
    columns.lay_out(fig, selected)
    most, least = describe_extremes(plotted, "value", "{tensor:plain}, {value:number}", number=_number_format(value))
    words = f"{value.capitalize()} of {' and '.join(clean_text(name, 40) for name in pair)}"
    alt = f"{words} in {plural(len(plotted), 'tensor')}: most in {most}; least in {least}."
    return add_legend(fig, alt, 330, zoom_key=f"{value}:{len(rows)}", left=84, gap=30)


def _draw_line(rows: pd.DataFrame, column: str, name: str, **style: Any) -> Trace:
    """A line with a step for every tensor that has a number."""
    finite = series.finite_rows(rows, column)  # ``meta`` tells ``viz.marks`` to list the line's numbers, too
    x, y, meta = axes.step_edges(finite.index), np.repeat(finite[column], 2), {"numbers": True, "steps": True}
    return series.line(x, y, name, {"color": theme.INK, **style}, legendgroup=name, meta=meta)


def _draw_points(rows: pd.DataFrame, role: str, value: str) -> Trace:
    symbols = dict(zip(theme.ROLE_COLORS, theme.SYMBOLS, strict=False))
    mark_style = theme.MarkStyle(theme.ROLE_COLORS.get(role, theme.FADED), symbols.get(role, "circle"))
    return series.marks(
        rows, rows.index, "value", mark_style, TENSOR_HOVER, picks=("tensor",),
        formats={"number": _number_format(value)}, size=8, name=legends.legend_name(role_name(role)),
        legendgroup=safe_text(f"role {role}"),
    )  # fmt: skip
