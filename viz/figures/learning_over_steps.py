"""Charts over the steps of learning: coefficients, losses, accuracy, and entropy against loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, plural, real, safe_text, short_name
from viz.hover import describe_extreme, hover_texts
from viz.parts import axes, series, sweep_panels
from viz.parts.legends import add_legend

OVERALL_STYLE = theme.MarkStyle(theme.FADED, "circle-open")  # no expert has this color
MAX_MARKED_POINTS = 60  # points of a line up to which each is a mark
FIGURE_SIZE: dict[str, Any] = {"inner": 330, "right": 24, "gap": 14}  # of the figures
OWN_LINE: dict[str, Any] = {"name": "This run, mean over tasks", "legendgroup": "here"}
MEAN_HOVER = (
    "<b>Step {step:count}</b><br>mean {mean:percent} over {tasks:plural task}"
    "<br>{worst:text 40} {low:percent} to {best:text 40} {high:percent}[<br>{n:count} images]"
)
PUBLISHED_HOVER = (
    "<b>◇ {method}, step {step:count}</b><br>{accuracy:percent}, as logged<br>{source}: other models, other images"
)
LINE_HOVER = "<b>{expert}</b>, step {step:count}<br>"
COEFFICIENT_HOVER = (
    LINE_HOVER + "coefficient {coefficient:decimal 3}[<br>tensors from {low:decimal 3} to {high:decimal 3}]"
)
LOSS_HOVER = (
    " {loss:real}[<br>mean coefficient {coefficient_mean:decimal 3}]"
    "[<br>{at_zero:percent} of its coefficients at zero or below]"
)
PATH_HOVER = (
    "<b>{title}</b>, step {step:count}<br>entropy {entropy:real}, loss {loss:real} nats"
    "[<br>accuracy {accuracy:percent}][<br>{n:count} images]"
)


@chart(
    title="Accuracy over steps",
    question="Does accuracy still rise while the merge learns?",
    columns=("step", "task", "title", "accuracy"),
    optional=("n",),
    rows=("step", "task"),
    empty="No step of this merge has been measured with labels.",
)
def accuracy_steps(table: pd.DataFrame, *, published: pd.DataFrame | None = None) -> Picture:
    """The mean accuracy over tasks as a line, and the range from the worst task to the best as a band.

    ``published`` has method, step, accuracy and source: numbers that authors logged for other models and other images,
    as dotted lines behind.
    """
    table = series.require_finite_rows(table, "accuracy", empty_reason="no step has an accuracy")
    mark_style, means, published_traces = theme.mark_styles(["here"])["here"], _average_tasks(table), []
    if published is not None:
        published = published.assign(label="◇ " + published["method"] + ": " + published["source"])
        published_traces = [
            series.published_marks(rows, "step", PUBLISHED_HOVER, **entry)
            for _, rows, entry in series.rows_by_name(published, "method")
        ]
    area = theme.tint(mark_style.color, 0.15)
    fig = Drawing([
        *published_traces,
        series.band(means["step"], means["low"], means["high"], area, name="Worst task to best", showlegend=False),
        series.marks(means, "step", "mean", mark_style, MEAN_HOVER, line={"width": 2.5}, **OWN_LINE),
    ])  # fmt: skip
    fig.update_xaxes(**_make_step_axis([*table["step"], *([] if published is None else published["step"])]))
    fig.update_yaxes(title={"text": "In-domain accuracy (%)"}, tickformat=".0%")
    words = f"In-domain accuracy of {plural(table['task'].nunique(), 'task')} at {plural(len(means), 'step')}: "
    ends = ", ".join(hover_texts(means.iloc[[0, -1]], "{mean:percent} at step {step:count}"))
    best = describe_extreme(means, "mean", " It is highest at step {step:count}, {mean:percent}.")
    return add_legend(fig, f"{words}{ends}.{best}", **FIGURE_SIZE)


def _average_tasks(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each step: the mean over tasks, and the worst and the best task."""
    by_step = table.reset_index(drop=True).groupby("step", sort=True)
    scores, titles = by_step["accuracy"], table["title"].to_numpy()
    return pd.DataFrame({
        "mean": scores.mean(), "tasks": scores.size(),
        "n": by_step["n"].sum().replace(0, np.nan) if "n" in table else np.nan,
        "worst": titles[scores.idxmin()], "low": scores.min(), "best": titles[scores.idxmax()], "high": scores.max(),
    }).reset_index()  # fmt: skip


@chart(
    title="Coefficients over steps",
    question="How do the coefficients move while the merge learns?",
    columns=("step", "expert", "coefficient"),
    optional=("low", "high"),
    rows=("step", "expert"),
    empty="No step of this merge was recorded.",
)
def coefficient_steps(
    table: pd.DataFrame, *, tensor: str = "", at: int | None = None, band: str | None = None, experts: Names = None
) -> Picture:
    """A line for each expert; one has a band from its smallest to its largest coefficient.

    Columns: coefficient (λ of the whole model, of one tensor, or the mean over all tensors), low and high (the smallest
    and the largest over all tensors). ``band`` is the expert with the band.
    """
    title = f"Coefficient of<br>{short_name(tensor, 34)}" if tensor else "Coefficient"
    if "low" in table:
        title += ",<br>mean over all tensors"
    of_tensor = f" of {clean_text(tensor)}" if tensor else ""
    number = plural(table["expert"].nunique(), "expert")
    words = f"Coefficients{of_tensor} of {number} over {table['step'].max():,.0f} steps."
    ends = series.finite_rows(table.sort_values("step", kind="stable"), "coefficient")
    ends = ends.drop_duplicates("expert", keep="last")
    if len(ends):
        words += describe_extreme(ends, "coefficient", " {expert:plain 40} ends highest, at {coefficient:decimal}")
        lowest = describe_extreme(
            ends, "coefficient", ", {expert:plain 40} lowest, at {coefficient:decimal}", smallest=True
        )
        words += f"{lowest if len(ends) > 1 else ''}."
    fig = _draw_lines(table, "coefficient", title, COEFFICIENT_HOVER, at, experts, band=band)
    return add_legend(fig, words, zoom_key=tensor, **FIGURE_SIZE)


@chart(
    title="Loss while learning",
    question="Does the loss still fall, and on which tasks?",
    columns=("step", "expert", "loss"),
    optional=("coefficient_mean", "at_zero"),
    rows=("step", "expert"),
    empty="No step of this merge was recorded.",
)
def learning_loss(
    table: pd.DataFrame,
    *,
    unit: str = "Loss",
    at: int | None = None,
    experts: Names = None,
    window: int = 1,
    overall: str = "",
) -> Picture:
    """A line for each expert's task.

    Columns: loss (of this step's batch, which contains no labels), coefficient_mean (over the tensors), at_zero (share
    of the coefficients at zero or below). ``unit`` names the loss and its unit. With a ``window`` of several steps the
    lines are means over the last ``window`` steps, and the losses themselves are faint; ``overall`` is the name that
    stands for the tasks' mean in the column expert.
    """
    tasks = series.finite_rows(table, "loss").sort_values("step", kind="stable")
    tasks["loss"] = tasks.groupby("expert", sort=False)["loss"].transform(_running_mean, window)
    if overall and set(tasks["expert"]) - {overall}:
        tasks = tasks[tasks["expert"] != overall]
    hover = LINE_HOVER + (f"mean loss of the last {window} steps" if window > 1 else "loss") + LOSS_HOVER
    fig = _draw_lines(table, "loss", safe_text(unit), hover, at, experts, window=window, overall=overall)
    return add_legend(fig, _describe_losses(tasks, table, unit, experts), zoom_key=unit, **FIGURE_SIZE)


def _describe_losses(points: pd.DataFrame, table: pd.DataFrame, unit: str, experts: Names) -> str:
    """The alt text; ``points`` are the points of the lines, by step."""
    names = (points if len(points) else table)["expert"]
    is_single_loss = experts is not None and not set(names) & set(experts)  # one loss, of a router for instance
    tasks = "all tasks together" if is_single_loss else plural(names.nunique(), "task")
    words = f"{clean_text(unit)} of {tasks} over {table['step'].max():,.0f} steps."
    if points.empty:
        return words
    if is_single_loss:
        return f"{words} It changes from {real(points['loss'].iloc[0])} to {real(points['loss'].iloc[-1])}."
    ends = points.groupby("expert", sort=False, as_index=False)["loss"].agg(["first", "last"])
    falls = int((ends["last"] < ends["first"]).sum())
    highest = describe_extreme(ends, "last", "it ends highest on {expert:plain 40}, {last:real}")
    return f"{words} It falls on {falls} of them; {highest}."


def _draw_lines(
    table: pd.DataFrame,
    value: str,
    title: str,
    hover: str,
    at: int | None,
    names: Names,
    *,
    band: str | None = None,
    window: int = 1,
    overall: str = "",
) -> Drawing:
    """A line of the column ``value`` for each expert, and a band from low to high for the expert ``band``.

    A name that ``names`` lacks, such as that of a router for all tasks, comes after them. For ``window`` and
    ``overall`` see ``learning_loss``.
    """
    table = table.sort_values("step", kind="stable")
    experts = distinct_names([*(names or ()), *table["expert"]])
    mark_styles = theme.mark_styles([expert for expert in experts if expert != overall]) | {overall: OVERALL_STYLE}
    fig = Drawing()
    for expert, rows, entry in series.rows_by_name(series.finite_rows(table, value), "expert", experts, label="expert"):
        mark_style, hidden_fields = mark_styles[expert], entry | {"showlegend": False}
        if window > 1:
            style = {"color": mark_style.color, "width": 1}
            fig.add_trace(series.line(rows["step"], rows[value], style=style, opacity=0.3, **hidden_fields))
        if expert == band and {"low", "high"} <= set(rows):
            color = theme.tint(mark_style.color, 0.16)
            fig.add_trace(series.band(rows["step"], rows["low"], rows["high"], color, **hidden_fields))
        fig.add_trace(series.marks(
            rows.assign(**{value: _running_mean(rows[value], window)}), "step", value, mark_style, hover, size=7,
            line={"width": 3.5 if mark_style == OVERALL_STYLE else 2},
            mode="lines+markers" if len(rows) <= MAX_MARKED_POINTS else "lines", **entry,
        ))  # fmt: skip
    tick_settings = {"dtick": 1} if np.ptp(table["step"]) < 8 else {}  # steps are whole numbers
    fig.update_xaxes(**_make_step_axis(table["step"]), **tick_settings)
    fig.update_yaxes(title={"text": title})
    fig.update_layout(shapes=[axes.vertical_line(at, sweep_panels.SELECTED_POINT)] if at is not None else [])
    return fig


def _make_step_axis(steps: Iterable[float]) -> dict[str, object]:
    """Settings of an axis of these steps."""
    return {"title": {"text": "Step of learning"}, "range": sweep_panels.axis_range(None, steps), "tickformat": ",d"}


def _running_mean(values: pd.Series[float], window: int) -> pd.Series[float]:
    """The mean of each value and the ``window`` - 1 values before it; of fewer at the beginning."""
    return values.rolling(window, min_periods=1).mean()


@chart(
    title="Entropy against loss",
    question="When does minimizing entropy stop helping?",
    columns=("task", "title", "step", "entropy", "loss"),
    optional=("accuracy", "n"),
    rows=("task", "step"),
    picks=("task", "step"),
    empty="No step of this merge has been measured with labels.",
)
def entropy_loss(table: pd.DataFrame, *, tasks: Names = None) -> Picture:
    """A path for each task through its measured steps: the first is an open mark, the last a large one.

    Columns: entropy (mean of the model's predictions, nats), loss (cross-entropy with labels, nats). Where a path goes
    left and up, entropy falls while the loss rises.
    """
    plotted = series.require_finite_rows(
        table.sort_values("step", kind="stable"), "entropy", "loss", empty_reason="no step has both numbers"
    )
    mark_styles = theme.mark_styles(tasks or distinct_names(plotted["task"]))
    fig = Drawing([
        _draw_path(rows, mark_styles[task], **entry)
        for task, rows, entry in series.rows_by_name(plotted, "task", label="title")
    ])  # fmt: skip
    fig.update_xaxes(title={"text": "Mean entropy of the predictions (nats)"}, rangemode="tozero")
    fig.update_yaxes(title={"text": "Cross-entropy with the labels (nats)"}, rangemode="tozero")
    return add_legend(fig, _describe_misled(plotted), **FIGURE_SIZE | {"inner": 430})


def _draw_path(rows: pd.DataFrame, mark_style: theme.MarkStyle, **fields: Any) -> Trace:
    first, last = rows["step"].min(), rows["step"].max()
    return series.marks(
        rows, "entropy", "loss", mark_style, PATH_HOVER, picks=("task", "step"), line={"width": 1.8},
        marker={
            "size": [14 if step == last else 8 for step in rows["step"]],
            "color": [theme.GROUND if step == first < last else mark_style.color for step in rows["step"]],
            "line": {"color": mark_style.color if first < last else theme.INK, "width": 1.6},
        }, **fields,
    )  # fmt: skip


def _describe_misled(plotted: pd.DataFrame) -> str:
    ends = plotted.groupby("title", sort=False)[["entropy", "loss"]].agg(["first", "last"])
    entropy, loss = (ends[name]["last"] - ends[name]["first"] for name in ("entropy", "loss"))
    misled = [clean_text(title, 40) for title in ends.index[np.array((entropy < 0) & (loss > 0))]]
    words = f"Entropy against loss of {plural(len(ends), 'task')} at {plural(plotted['step'].nunique(), 'step')}."
    if not misled:
        return f"{words} On no task does entropy fall while the loss rises."
    return (
        f"{words} From the first to the last step entropy falls while the loss rises on {len(misled)} of them: "
        f"{', '.join(misled[:3])}."
    )
