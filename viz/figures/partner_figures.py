"""Experts of a team against each other: who hurts whom, what each brings, and the best subsets of each size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural, safe_text
from viz.hover import describe_extremes, format_points, hover_texts
from viz.parts import axes, heat_maps, lanes, legends, matrix, series
from viz.parts.matrix import MatrixSide

POINTS_SCALE = heat_maps.ColorScale("accuracy,<br>points", log=False, diverging=True)
JOIN_HOVER = (
    "<b>{first}</b> when <b>{second}</b> joins<br>{change:points} points, {low:points} to {high:points}"
    "<br>{before:percent} before, {after:percent} after<br>{n:count} images"
)
VALUE_HOVER = (
    "<b>{second}</b> brings <b>{first}</b><br>{change:points} points, {low:points} to {high:points}<br>{n:count} images"
)
NOTE = "In brackets: the 95% interval contains zero."
STEP_HOVER = "<b>{expert}</b>[<br>{change:points} points, {low:points} to {high:points}]<br>accuracy {accuracy:percent}"
SUBSET_HOVER = (
    "<b>{subset}</b><br>best of {tried:count} by {label} on the choosing half: {chosen:percent}[<br>on the reporting "
    "half {value:percent} ({low:percent} to {high:percent}), {n:count} images][<br>too optimistic by {gap:points} "
    "points]"
)
FORETOLD_HOVER = (
    "<b>{task}</b>, {label}<br>Spearman's ρ {rho:decimal} ({low:decimal} to {high:decimal})"
    "[<br>control {control:decimal}, p = {p:decimal 3}]<br>{n:count} losses of {teams:count} teams"
)
LANE = 15  # px: the height of a set of predictors within a chain
ROW = 30  # px: the height of a row of a waterfall


@chart(
    title="Who hurts whom",
    question="Which expert hurts which task?",
    columns=("first", "second", "change", "low", "high", "before", "after", "n"),
    rows=("first", "second"),
    picks=("first", "second"),
    empty="No loss is measured yet.",
)
def partner_losses(table: pd.DataFrame, *, order: Names = None, worst: Sequence[tuple[str, str]] = ()) -> Picture:
    """A matrix of tasks (first) by the experts that join (second), with arrows at the ``worst`` of such pairs.

    Columns: change of the task's accuracy when the expert joins, before and after (accuracies). ``order`` are the
    experts in order; other tasks follow.
    """
    fig = _draw_effects(table, order, JOIN_HOVER, ("Task", "Expert that joins"))
    rows, columns = _sides(table, order)
    changes = dict(zip(zip(table["first"], table["second"], strict=True), table["change"], strict=True))
    for task, expert in worst:
        if (task, expert) in changes:
            dark = abs(changes[task, expert]) > 0.6 * table["change"].abs().max()
            fig.add_annotation(_arrow(columns.index(expert), rows.index(task), dark))
    most, least = describe_extremes(table, "change", "{first:plain 40} when {second:plain 40} joins, {change:points}")
    words = f"Change of accuracy in points when one of {plural(len(columns), 'expert')} joins."
    alt = f"{words} Worst: {least}; best: {most}."
    return Picture(fig, alt, matrix.matrix_height(fig, len(rows)), zoom_key=str(len(rows)))


@chart(
    title="What each expert brings",
    question="What does each expert bring to each task?",
    columns=("first", "second", "change", "low", "high", "n"),
    rows=("first", "second"),
    picks=("first", "second"),
    empty="The subsets of this team are not all measured yet.",
)
def shapley_matrix(table: pd.DataFrame, *, order: Names = None) -> Picture:
    """A matrix of tasks (first) by experts (second) with the expert's Shapley value (change, a share) for the task.

    For ``order`` see ``partner_losses``.
    """
    fig = _draw_effects(table, order, VALUE_HOVER, ("Task", "Expert"))
    rows, columns = _sides(table, order)
    most, least = describe_extremes(table, "change", "{second:plain 40} on {first:plain 40}, {change:points}")
    alt = (
        f"Shapley values in points of {plural(len(columns), 'expert')} for {plural(len(rows), 'row')}. "
        f"Most: {most}; least: {least}."
    )
    return Picture(fig, alt, matrix.matrix_height(fig, len(rows)), zoom_key=str(len(rows)))


def _sides(table: pd.DataFrame, order: Names) -> tuple[list[str], list[str]]:
    """The rows and the columns of a matrix, experts in order."""
    columns = [name for name in order or distinct_names(table["second"]) if name in {*table["second"]}]
    tasks = distinct_names(table["first"])
    return [*(name for name in columns if name in tasks), *(name for name in tasks if name not in columns)], columns


def _draw_effects(table: pd.DataFrame, order: Names, hover: str, titles: tuple[str, str]) -> Drawing:
    """The matrix of ``change`` in points; numbers whose interval contains zero are in brackets."""
    rows, columns = (MatrixSide(title, names, names) for title, names in zip(titles, _sides(table, order), strict=True))
    rounded = (100 * table["change"].astype(float)).round() + 0.0  # which turns -0.0 into 0.0
    numbers = [f"{change:.0f}".replace("-", "−") for change in rounded]
    pairs = zip(numbers, series.excludes_zero(table), strict=True)
    points = table.assign(
        points=100 * table["change"], words=[number if is_clear else f"({number})" for number, is_clear in pairs]
    )
    fig = matrix.draw_table_matrix(
        points, rows, columns, ("first", "second"), "points", hover, POINTS_SCALE, words="words"
    )
    fig.add_annotation(theme.caption(NOTE, 1))
    return fig


def _arrow(x: int, y: int, dark: bool) -> dict[str, Any]:
    """An arrow, 8 px long, from the left edge of a cell towards its number; light on a ``dark`` cell."""
    return {
        "x": x - 0.5, "y": y, "xshift": 9, "ax": -8, "ay": 0, "text": "", "showarrow": True,
        "arrowhead": 2, "arrowsize": 0.9, "arrowwidth": 1.5, "arrowcolor": theme.ON_DARK if dark else theme.ON_LIGHT,
    }  # fmt: skip


@chart(
    title="From pretrained to all",
    question="What does each expert add to this task?",
    columns=("expert", "start", "change", "low", "high", "accuracy"),
    rows=("expert",),
    picks=("expert",),
    empty="The subsets of this team are not all measured yet.",
)
def shapley_waterfall(table: pd.DataFrame, *, task: str = "this task") -> Picture:
    """A bar from the accuracy of the pretrained model to that of all experts merged, step by step, from the top.

    Columns: expert (or an end of the way), start (accuracy before the step), change (NaN at the ends) with its
    interval, accuracy (after it). ``task`` is the name of the task.
    """
    rows = table.reset_index(drop=True)
    is_end = ~np.isfinite(rows["change"].to_numpy(np.float64))
    width = np.where(is_end, rows["accuracy"], rows["change"])
    colors = np.where(is_end, theme.FADED, np.where(width > 0, theme.ONLY_B, theme.ONLY_A)).tolist()
    ends = {"array": rows["high"] - rows["change"], "arrayminus": rows["change"] - rows["low"]}
    beside = np.maximum(ends["array"], -rows["change"])  # from a step's end to the right of bar and interval
    fig = Drawing([
        series.bars(
            rows, width, np.arange(len(rows)), colors, STEP_HOVER, picks=("expert",), orientation="h", base=[
            float(start) for start in np.where(is_end, 0.0, rows["start"])], name="Change", width=0.7,
            error_x={"type": "data", "symmetric": False, "color": theme.INK, "thickness": 1.2, "width": 3}
            | {name: np.nan_to_num(values.to_numpy(np.float32)).clip(0) for name, values in ends.items()},
        ),
        series.text_trace(
            rows["accuracy"] + np.where(is_end, 0.0, beside), np.arange(len(rows)),
            [f"\xa0\xa0{percent(value) if end else format_points(change)}" for value, end, change in
             zip(rows["accuracy"], is_end, rows["change"], strict=True)],
            "Values", textposition="middle right", cliponaxis=False,
        ),
    ])  # fmt: skip
    titles = list(rows["expert"])
    fig.update_xaxes(title={"text": f"Accuracy on {safe_text(task, 40)} (%)"}, tickformat=".0%", rangemode="tozero")
    fig.update_yaxes(**axes.name_axis("Expert", titles, down=True))
    inner = rows[~is_end]
    most, least = describe_extremes(inner, "change", "{expert:plain 40} {change:points}")
    alt = (
        f"On {clean_text(task, 40)}, from {percent(rows['accuracy'].iloc[0])} to {percent(rows['accuracy'].iloc[-1])}: "
        f"most by {most}, least by {least}. The steps add up to "
        f"{format_points(float(inner['change'].sum()))} points."
    )
    fig.update_layout(showlegend=False, margin={"l": axes.names_width(titles) + 38, "r": 70, "t": 16, "b": 56})
    return Picture(fig, alt, ROW * len(rows) + 72, zoom_key=f"{task}:{len(rows)}")


@chart(
    title="Best subset of each size",
    question="Which experts should I leave out?",
    columns=("metric", "label", "size", "subset", "tried", "chosen", "value", "low", "high", "gap", "n"),
    rows=("metric", "size"),
    picks=("subset",),
    empty="No subset is measured yet.",
)
def best_subsets(table: pd.DataFrame, *, total: int = 0) -> Picture:
    """The score of the best subset of each size: hollow as chosen, filled on the reporting half with its interval.

    Columns: metric (a score) with its label, size, subset (names), tried (subsets of the size), chosen and value (its
    score on either half), gap (chosen − value). ``total`` is the number of experts, the last size of the axis.
    """
    styles = theme.mark_styles(distinct_names(table["metric"]))
    fig = Drawing()
    for name, rows, entry in series.rows_by_name(table, "metric"):
        style = styles[name]
        fig.add_trace(
            series.marks(
                rows, "size", "chosen", theme.MarkStyle(style.color, f"{style.symbol}-open"), SUBSET_HOVER,
                picks=("subset",), line={"width": 1.2, "dash": "dot"},
                **entry | {"name": f"{entry['name']}, as chosen"},
                marker={"line": {"color": style.color, "width": 1.6}},
            )
        )  # fmt: skip
        if len(reported := series.finite_rows(rows, "value")):
            fig.add_trace(
                series.marks(
                    reported, "size", "value", style, SUBSET_HOVER, picks=("subset",), line={"width": 2},
                    error_y=series.interval(reported, "value", style.color),
                    **entry | {"name": f"{entry['name']}, reported"},
                )
            )  # fmt: skip
    sizes = list(range(max(total, int(table["size"].max())) + 1))
    fig.update_xaxes(**axes.number_axis("Number of experts merged", sizes))
    fig.update_yaxes(title={"text": "Score (%)"}, tickformat=".0%")
    best = table.loc[table.groupby("metric", sort=False)["chosen"].idxmax()]
    words = "; ".join(
        hover_texts(best, "{label:plain 40}, {size:general} experts with {chosen:percent}[, reported {value:percent}]")
    )
    alt = f"Best subset of each size, chosen on one half. The best as chosen: {words}."
    if np.isfinite(table["gap"].to_numpy(np.float64)).any():
        gap = format_points(float(table["gap"].mean()))
        alt += f" On average, scores as chosen differ by {gap} points from those reported on the other half."
    return legends.add_legend(fig, alt, 330, left=66)


@chart(
    title="What foretells losses",
    question="How well is a loss foretold before the merge?",
    columns=("run", "label", "task", "rho", "low", "high", "control", "p", "n", "teams"),
    rows=("run", "task"),
    empty="For no chain on this team are both the predictors and the losses of pairs and triples measured.",
)
def foretold_losses(table: pd.DataFrame) -> Picture:
    """Rows for chains (task): a mark for each set of predictors (run, with its label) and a line for its control.

    Columns: rho (Spearman's ρ of foretold and measured losses) with its interval low to high, control (the mean ρ of
    shuffled predictors, NaN without any) and p, n (losses), teams. ρ that is not known is left out.
    """
    rows = series.require_finite_rows(table, "rho", empty_reason="so few experts have no losses to foretell")
    chains, sets = distinct_names(rows["task"]), distinct_names(rows["run"])
    styles, lanes_of = theme.mark_styles(sets), lanes.Lanes(sets, LANE, LANE * len(sets) + 12)
    fig = Drawing()
    fig.add_traces(lanes.dots(lanes_of, rows, chains, "rho", styles, FORETOLD_HOVER, picks=(), size=9))
    controls = theme.MarkStyle(theme.INK, "line-ns-open")
    for name, own, _ in series.rows_by_name(series.finite_rows(rows, "control"), "run", sets):
        fig.add_trace(
            series.marks(
                own, "control", lanes_of.mark_positions(name, own["task"], chains), controls, FORETOLD_HOVER,
                name="Mean of the control", legendgroup="control", size=11, marker={"line": {"width": 2}},
            )
        )  # fmt: skip
    legends.merge_entries(fig)
    ends = rows[["rho", "low", "high", "control"]].to_numpy(np.float64)
    span = [min(-0.1, float(np.nanmin(ends))) - 0.05, max(0.1, float(np.nanmax(ends))) + 0.05]
    fig.update_xaxes(title={"text": "Spearman's ρ of foretold and measured losses, 95% interval"}, range=span)
    fig.update_yaxes(**axes.name_axis("Chain", chains, 34, down=True))
    zero = axes.vertical_line(0, {"color": theme.INK, "width": 1.2})
    fig.update_layout(shapes=[*lanes.tints(len(chains)), zero])
    most, least = describe_extremes(rows, "rho", "{label:plain 40} for {task:plain 40}, ρ {rho:decimal}")
    words = f"{plural(len(sets), 'set')} of predictors for {plural(len(chains), 'chain')}"
    alt = f"How well {words} foretell losses. Best: {most}; worst: {least}."
    left = axes.names_width(chains, 34) + 38
    return legends.add_legend(fig, alt, lanes_of.row * len(chains) + 76, str(len(chains)), left=left, wide=True)
