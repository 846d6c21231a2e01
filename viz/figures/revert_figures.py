"""Putting (reverting) tensors back to pretrained: the change of accuracy, its prediction by a gradient, and drift."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from plotly.colors import get_colorscale

from viz import theme
from viz.chart import TENSOR_COLUMNS, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, heatmap
from viz.figure_text import plural, real, role_name, safe_text
from viz.hover import LAYER_TEXT, describe_extreme
from viz.parts import heat_maps, legends, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition
from viz.parts.legends import add_legend

FADE_COLORS = [[0, "rgba(255,255,255,0)"], [1, theme.THICK_SHADE]]
POINTS_SCALE = heat_maps.ColorScale("accuracy,<br>points", log=False, diverging=True)
MARGIN_SCALE = heat_maps.ColorScale(
    "first order:<br>Δ margin", log=False, diverging=True, colors=get_colorscale("BrBG")
)
NOT_MEASURED = "not measured yet"
CHANGE_HOVER = (
    "<b>{tensor:short}</b><br>{title}: [{unknown}][{change:points} points][, {low:points} to {high:points}]"
    "[<br>from {before:percent} to {after:percent}][<br>no significant difference with n = {unclear_n:count}]"
    f"[<br>n = {{clear_n:count}} images]<br>{LAYER_TEXT}"
)
GAIN_SENTENCE = " The largest gain is {change:points} points, {title:plain}, with {tensor:plain}."
PREDICTION_HOVER = f"<b>{{tensor:short}}</b><br>{{title}}: margin {{predicted:signed}}, first order<br>{LAYER_TEXT}"
PREDICTION_SENTENCE = " The largest gain is predicted for {tensor:plain}, {title:plain}: {predicted:signed}."
RANK_HOVER = (
    "<b>{tensor:short}</b><br>drift {drift:percent 2} of its output, rank {drift_rank:general}<br>put back "
    "{change:points} points ({low:points} to {high:points}), rank {change_rank:general}<br>{section}, {part}"
)


@chart(
    title="Put back",
    question="What would putting a layer back to pretrained gain or lose?",
    columns=("row", "title", *TENSOR_COLUMNS, "change", "low", "high", "n"),
    optional=("before", "after"),
    rows=("row", "tensor"),
    picks=("row", "tensor"),
    empty="Nothing has been put back yet.",
)
def revert_map(table: pd.DataFrame, *, selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, averages, whole blocks and tasks by tensors in forward order; faded where the interval contains zero.

    Columns: row (id) and title of an average, a task or a whole block's average, change (of accuracy, NaN where it is
    not measured yet), before and after (accuracies). In a row of whole blocks every tensor has its block's numbers.
    """
    measured, clear = np.isfinite(table["change"].to_numpy(np.float64)), series.excludes_zero(table)
    table = table.assign(
        points=100 * table["change"].astype(float),
        unknown=np.where(measured, "", NOT_MEASURED),
        clear_n=table["n"].where(measured & clear),
        unclear_n=table["n"].where(measured & ~clear),
        faded=measured & ~clear,
    )
    tensors = plural(table["tensor"].nunique(), "tensor")
    words = f"Change of accuracy when one of {tensors} is put back to pretrained."
    if measured.any():
        cells = f"{int(clear[measured].sum()):,} of {int(measured.sum()):,} cells"
        words += f"{describe_extreme(table, 'change', GAIN_SENTENCE)} The interval excludes zero in {cells}."
    else:
        words += " Nothing has been measured yet."
    picture = heat_maps.heat_map(table, "row", "points", POINTS_SCALE, CHANGE_HOVER, selected, alt=words)
    rows = distinct_names(table["row"])
    complete = tensor_columns.TensorColumns.from_table(table).complete_cells(table, "row", rows)
    faded = complete["faded"].to_numpy(np.uint8).reshape(len(rows), -1)
    shade = heatmap(
        z=faded, zmin=0, zmax=1, colorscale=FADE_COLORS, showscale=False, ygap=1, name="No significant difference",
        hoverinfo="skip",
    )  # fmt: skip
    picture.drawing.data.insert(1, shade)  # below the click targets
    return heat_maps.set_title_and_note(picture, "Accuracy on", "Faded: the 95% interval contains zero")


@chart(
    title="Put back, first order",
    question="First order: which layers would help if they were put back?",
    columns=("row", "title", *TENSOR_COLUMNS, "predicted"),
    rows=("row", "tensor"),
    picks=("row", "tensor"),
    empty="The first-order map has not been measured.",
)
def first_order_map(table: pd.DataFrame, *, selected: CellPosition = NO_CELL) -> Picture:
    """A heat map of predicted changes, tasks or experts by tensors in forward order; never in points of accuracy.

    Columns: row (id) and title of an average, a task or an expert, predicted (change of the mean margin, the cosine of
    the right class minus the largest other one).
    """
    tensors = plural(table["tensor"].nunique(), "tensor")
    words = f"First-order guess of what putting back one of {tensors} changes in the mean margin."
    alt = words + describe_extreme(table, "predicted", PREDICTION_SENTENCE, signed=_format_signed)
    formats = {"signed": _format_signed}
    picture = heat_maps.heat_map(
        table, "row", "predicted", MARGIN_SCALE, PREDICTION_HOVER, selected, alt=alt, formats=formats
    )
    return heat_maps.set_title_and_note(
        picture, "Mean margin on", "First order: a guess from one gradient, in units of cosine"
    )


def _format_signed(number: float) -> str:
    return f"+{real(number)}" if number > 0 else real(number).replace("-", "−")


@chart(
    title="Drift and putting back",
    question="Does what drifts most help most if it is put back?",
    columns=("tensor", "section", "role", "part", "drift", "change", "low", "high"),
    optional=("drift_rank", "change_rank"),
    rows=("tensor",),
    picks=("tensor",),
    empty="No tensor has both measured drift and a measured effect of putting it back.",
)
def drift_and_put_back(
    table: pd.DataFrame, *, correlation: tuple[float, int] | None = None, over: str = "", selected: str | None = None
) -> Picture:
    """A point for each tensor, both ranks from 1 (drifts most, helps most); open where the interval contains zero.

    Columns: drift (share of the layer's output, a mean over tasks), change (of accuracy when it is put back),
    drift_rank and change_rank (mean ranks of equal numbers). ``correlation`` is Spearman's ρ and the number of tensors;
    ``over`` names the tasks of the accuracy.
    """
    table = series.require_finite_rows(table, "drift", "change", empty_reason="no tensor has both numbers")
    table = table.assign(**{f"{name}_rank": table[name].rank(ascending=False) for name in ("drift", "change")})
    fig = Drawing(
        _draw_points(table[table["role"] == role], role, theme.SYMBOLS[index % 8])
        for index, role in enumerate(distinct_names(table["role"]))
    )
    selected_rows = table[table["tensor"] == selected]
    if len(selected_rows):
        fig.add_trace(series.ring(selected_rows["drift_rank"], selected_rows["change_rank"], "Selected", 20))
    padding = 0.03 * len(table) + 0.5
    ends = [1 - padding, len(table) + padding]
    tasks = f", {safe_text(over)}" if over else ""
    fig.update_xaxes(title={"text": "Rank by drift of the layer by itself (1 drifts most)"}, range=ends)
    fig.update_yaxes(
        title={"text": f"Rank by accuracy gained when put back{tasks}<br>(1 gains most)"}, range=ends[::-1]
    )
    alt = f"{plural(len(table), 'tensor')}, ranked by drift and by what putting them back gains."
    note = "Open marks: the 95% interval contains zero"
    if correlation is not None and math.isfinite(correlation[0]):
        rho, n = correlation
        alt += f" The ranks correlate with Spearman {rho:.2f}."
        note = f"Spearman ρ = {rho:.2f}, n = {plural(n, 'tensor')}. {note}"
    fig.add_annotation(theme.caption(note, 1))
    return add_legend(fig, alt, 430, left=80, gap=34, title="Kind ")


def _draw_points(rows: pd.DataFrame, role: str, symbol: str) -> Trace:
    color = theme.ROLE_COLORS.get(role, theme.FADED)
    symbols = [symbol if clear else f"{symbol}-open" for clear in series.excludes_zero(rows)]
    return series.marks(
        rows, "drift_rank", "change_rank", theme.MarkStyle(color, symbol), RANK_HOVER, picks=("tensor",), size=10,
        name=legends.legend_name(role_name(role)), legendgroup=safe_text(f"role {role}"),
        marker={"symbol": symbols, "line": {"width": 1.6, "color": color}},
    )  # fmt: skip
