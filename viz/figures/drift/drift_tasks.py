"""Drift task by task: with the accuracy lost, of one layer, and in theory of two tasks on one layer."""

from __future__ import annotations

import math
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace, scatter
from viz.figure_text import clean_text, count, percent, plural, short_name
from viz.parts import axes, lanes, legends, plane, series

VALUE_TITLES = {
    "cosine": "Drift of the final features: 1 − cosine to the expert",
    "l1": "Drift of the final features: mean |difference| from the expert, per dimension",
}
HOVER = (
    "<b>{title}</b>, {label}<br>drift {drift:real}<br>accuracy lost {points:tenths} points"
    "[: {accuracy:percent}, the expert {expert:percent}]"
    "[<br>{n:count} images for the drift][<br>{n_scored:count} images for the accuracy]"
)
LAYER_HOVER = "<b>{title}</b>, {label}<br>the output moves by {relative:percent 2}<br>mean square {mean_square:real}"
WEIGHT_HOVER = (
    "<b>direction {direction}</b><br>{task}: weight {weight:percent}<br>energy of its inputs there {energy:real}"
)
DRIFT_HOVER = "<b>{merge}</b><br>{task}: {drift:percent} of the pretrained layer's drift"
HEIGHT = 430
FittedLine = tuple[float, float, float, float, int]  # slope, intercept, Pearson's r, Spearman's rho, number of points


@chart(
    title="Drift against accuracy lost",
    question="Does a task that drifts more lose more accuracy?",
    columns=("run", "label", "task", "title", "cosine", "l1", "lost"),
    optional=("n", "accuracy", "expert", "n_scored"),
    rows=("run", "task"),
    picks=("run", "task"),
    empty="No run has all three: measured drift, its own accuracy, and its experts' accuracy.",
)
def drift_accuracy(
    table: pd.DataFrame,
    *,
    value: str = "cosine",
    fit: FittedLine | None = None,
    runs: Names = None,
    tasks: Names = None,
    arrows: bool = False,
) -> Picture:
    """A point for each task (color) and run (symbol), and a dashed line with its coefficients if ``fit`` has them.

    Columns: cosine and l1 (drift at the embedding), lost (the expert's accuracy minus the run's), n and n_scored
    (images of the drift and of the accuracies): LOT, Fig. 1a. ``arrows`` lead from the first run to the last, task by
    task.
    """
    check_option("value", value, tuple(VALUE_TITLES))
    plotted = series.require_finite_rows(table, value, "lost", empty_reason="no point has both numbers")
    plotted = plotted.assign(drift=plotted[value], points=100 * plotted["lost"])
    names, labels = distinct_names(plotted["run"]), plotted.drop_duplicates("run")["label"]
    titles = plotted.drop_duplicates("task")["title"]
    symbols = {run: style.symbol for run, style in theme.mark_styles(distinct_names([*(runs or ()), *names])).items()}
    fig = Drawing(
        _draw_outline(rows, symbols[run], entry) for run, rows, entry in series.rows_by_name(plotted, "run", names)
    )
    mark_styles = theme.mark_styles(tasks or distinct_names(plotted["task"]))
    for task, rows, entry in series.rows_by_name(plotted, "task", label="title"):
        mark_style, point_symbols = mark_styles[task], [symbols[run] for run in rows["run"]]
        fig.add_trace(series.marks(
            rows, "drift", "points", mark_style, HOVER, picks=("run", "task"), size=10, legend="legend2",
            formats={"tenths": "{:.1f}".format}, marker={"symbol": point_symbols, "line": {"width": 0}}, **entry,
        ))  # fmt: skip
    runs_legend, runs_height = legends.legend_above(list(labels), "Run ")
    tasks_legend, top = legends.legend_above(list(titles), "Task ", runs_height)
    missing_count = len(table) - len(plotted)
    fig.update_xaxes(title={"text": VALUE_TITLES[value]}, range=[0, float(plotted["drift"].max()) * 1.06 or 1.0])
    fig.update_yaxes(title={"text": "Accuracy lost relative to<br>the task's expert (points)"})
    fig.update_layout(
        legend=runs_legend, legend2=tasks_legend | {"y": 1 - runs_height / (HEIGHT + top)},
        margin={"l": 80, "r": 26, "t": top + 34, "b": 56 + 20 * bool(missing_count)},
        shapes=[axes.horizontal_line(0, {"color": theme.FADED, "width": 1})],
    )  # fmt: skip
    alt = f"{plural(len(plotted), 'point')}: {plural(len(names), 'run')} on {plural(len(titles), 'task')}."
    if fit is not None and math.isfinite(fit[0]):
        alt += _add_fit(fig, plotted["drift"], fit)
    if arrows and len(names) > 1:
        for _, rows in plotted[plotted["run"].isin([names[0], names[-1]])].groupby("task", sort=False):
            if len(rows) == 2:
                start, end = zip(rows["drift"], rows["points"], strict=True)
                fig.add_annotation(plane.arrow(start, end))
    if missing_count:
        (note,), _ = axes.make_note(f"Left out, one of the numbers is missing: {plural(missing_count, 'point')}", 50)
        fig.add_annotation(note)
    return Picture(fig, alt, HEIGHT + top, zoom_key=value)


def _draw_outline(rows: pd.DataFrame, symbol: str, entry: dict[str, str]) -> Trace:
    """A dark edge around a run's points, which is also the run's entry in the legend."""
    return scatter(
        x=series.numbers(rows, "drift"), y=series.numbers(rows, "points"), mode="markers", legend="legend",
        hoverinfo="skip", marker={"symbol": symbol, "color": theme.INK, "size": 13}, **series.NO_POINTER, **entry,
    )  # fmt: skip


def _add_fit(fig: Drawing, drift: pd.Series[float], fit: FittedLine) -> str:
    """Add the line and its coefficients, which are also returned as a sentence."""
    slope, intercept, pearson, spearman, count_of_points = fit
    ends, style = np.array([drift.min(), drift.max()]), {"color": theme.INK, "width": 1.6, "dash": "dash"}
    fig.add_trace(series.line(ends, 100 * (slope * ends + intercept), "Fitted line", style, showlegend=False))
    words = f"Pearson r = {pearson:.2f}, Spearman ρ = {spearman:.2f}, n = {count(count_of_points)} points"
    fig.add_annotation(theme.caption(words, 1), yshift=4)
    if not math.isfinite(pearson):
        return ""
    return f" Drift and accuracy lost correlate with Pearson {pearson:.2f} and Spearman {spearman:.2f}."


@chart(
    title="Drift of one layer",
    question="How far does this layer drift on each task in each run?",
    columns=("run", "label", "task", "title", "relative", "mean_square"),
    rows=("run", "task"),
    picks=("task",),
    empty="No drift was measured for this tensor.",
)
def drift_tensor(table: pd.DataFrame, *, tensor: str = "", selected: str | None = None, runs: Names = None) -> Picture:
    """A dot for each task and run.

    Columns: relative (change of the layer's output over the output, a fraction), mean_square (squared change per
    output).
    """
    table = series.require_finite_rows(table, "relative", empty_reason="this layer outputs only zeros")
    names, tasks = distinct_names(table["run"]), distinct_names(table["task"])
    rows, titles = lanes.Lanes(names, 13, 13 * len(names) + 16), list(table.drop_duplicates("task")["title"])
    mark_styles = theme.mark_styles(runs or names)
    fig = Drawing(lanes.dots(rows, table, tasks, "relative", mark_styles, LAYER_HOVER, picks=("task",)))
    title = f"Drift of {short_name(tensor, 40)}<br>" if tensor else ""
    high = float(table["relative"].max()) * 1.06 or 1.0
    fig.update_xaxes(
        title={"text": f"{title}(change of its output, share of the output's norm)"}, tickformat=".3~%", range=[0, high]
    )
    fig.update_yaxes(**axes.name_axis("Task", titles, down=True))
    fig.update_layout(shapes=[*lanes.tints(len(tasks)), *lanes.selection_frame(tasks, selected)])
    means, labels = table.groupby("run")["relative"].mean(), table.drop_duplicates("run").set_index("run")["label"]
    alt = (
        f"Drift of one layer on {plural(len(tasks), 'task')} for {plural(len(names), 'run')}. Least on average: "
        f"{clean_text(labels[str(means.idxmin())], 60)}, {percent(means.min(), 2)}."
    )
    left, inner = axes.names_width(titles) + 40, rows.row * max(len(tasks), 3) + 92
    return legends.add_legend(fig, alt, inner, zoom_key=tensor, left=left, below=62, gap=30)


def _draw_stacked_bars(table: pd.DataFrame, x: str, y: str, hover: str, **fields: Any) -> Drawing:
    """Stacked bars, a color and a pattern for each task, so that a gray print stays readable."""
    fig, mark_styles = Drawing(), cycle(zip(theme.PALETTE[:2], ("", "/"), strict=True))
    for (_, rows, entry), (color, shape) in zip(
        series.rows_by_name(table, "task", label="task"), mark_styles, strict=False
    ):
        marker = {"line": theme.edge(0.8), "pattern": theme.stripes(shape)}
        fig.add_trace(series.bars(rows, x, y, color, hover, name=entry["name"], marker=marker, **fields))
    fig.update_layout(barmode="stack", bargap=0.3, legend={"traceorder": "normal"})
    return fig


@chart(
    title="Weights by direction",
    question="Which task vector does LOT follow in each direction?",
    columns=("direction", "task", "weight", "energy"),
    rows=("direction", "task"),
    empty="There is no direction to show.",
)
def drift_case_weights(table: pd.DataFrame) -> Picture:
    """A stacked bar for each direction, whose parts are the weights of the task vectors: LOT, Eq. 16.

    Columns: direction (number from 1), weight (in [0, 1]), energy (of the task's inputs along the direction).
    """
    fig = _draw_stacked_bars(table.sort_values("direction", kind="stable"), "direction", "weight", WEIGHT_HOVER)
    directions = sorted({int(direction) for direction in table["direction"]})
    ends = [directions[0] - 0.6, directions[-1] + 0.6]
    fig.update_xaxes(**axes.number_axis("Direction of the layer's inputs", directions, showgrid=False, range=ends))
    fig.update_yaxes(title={"text": "Weight in LOT's solution"}, tickformat=".0%", range=[0, 1.02])
    mixed = table[(table["weight"] > 0) & (table["weight"] < 1)]["direction"].nunique()
    alt = (
        f"{plural(len(directions), 'direction')}, {plural(table['task'].nunique(), 'task')}: {mixed} of the directions "
        "average the task vectors, the others follow one of them."
    )
    return legends.add_legend(fig, alt, 250, left=62, right=20, gap=30)


@chart(
    title="Remaining drift",
    question="How much drift does each way to merge leave?",
    columns=("merge", "task", "drift"),
    rows=("merge", "task"),
    empty="There is no merge to show.",
)
def drift_case_objective(table: pd.DataFrame) -> Picture:
    """Stacked bars of each task's squared drift after each merge, as a share of the pretrained layer's: LOT, Eq. 17."""
    merges = distinct_names(table["merge"])
    positioned = table.assign(merge_index=table["merge"].map(merges.index))
    fig = _draw_stacked_bars(positioned, "drift", "merge_index", DRIFT_HOVER, orientation="h")
    totals = table.groupby("merge", sort=False)["drift"].sum()
    shares = [percent(total, 0) for total in totals]
    texts, text_style = [f"\xa0{share}" for share in shares], {"textposition": "middle right", "cliponaxis": False}
    fig.add_trace(series.text_trace(totals, range(len(merges)), texts, "Sum", **text_style))
    title = {"text": "Squared drift, both tasks (% of the pretrained layer's)"}
    fig.update_xaxes(title=title, tickformat=".0%", range=[0, max(1.0, float(totals.max())) * 1.12])
    fig.update_yaxes(**axes.name_axis("Merge", merges, down=True))
    words = ", ".join(f"{clean_text(merge, 24)} {share}" for merge, share in zip(merges, shares, strict=True))
    alt = f"Squared drift as a share of the pretrained layer's: {words}."
    return legends.add_legend(fig, alt, 40 * len(merges) + 86, left=axes.names_width(merges) + 40, right=40, gap=30)
