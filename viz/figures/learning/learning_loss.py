"""The loss of every task over the steps of learning."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.parts import steps
from viz.text import clean_text, percent, plural, real, safe_text


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
    experts: list[str] | None = None,
    window: int = 1,
    overall: str = "",
    present: bool = False,
) -> go.Figure:
    """A line for each expert's task.

    step (updates so far), expert, loss (of this step's batch, which contains no labels), coefficient_mean (over the
    tensors), at_zero (share of the coefficients at zero or below). ``unit`` names the loss and its unit; ``at`` is the
    marked step; ``experts`` the full ordered list that fixes the colors. With a ``window`` of several steps lines are
    means over the last of them, and the losses themselves are faint; ``overall`` is the expert of the tasks' mean.
    """
    hover = partial(_hover, window=window)
    fig, height = steps.draw(table, "loss", safe_text(unit), hover, at, experts, window=window, overall=overall)
    finite = table[np.isfinite(table["loss"].to_numpy(np.float64))].sort_values("step", kind="stable")
    means = finite.groupby("expert", sort=False)["loss"].transform(steps.running_mean, window)
    tasks = finite.assign(loss=means)
    if overall and set(tasks["expert"]) - {overall}:
        tasks = tasks[tasks["expert"] != overall]
    return theme.finish(fig, "learning_loss", _alt(tasks, table, unit, experts), height, present, unit)


def _hover(row: dict[Any, Any], window: int) -> str:
    what = f"mean loss of the last {window} steps" if window > 1 else "loss"
    text = f"<b>{safe_text(row['expert'])}</b>, step {row['step']:,.0f}<br>{what} {real(row['loss'])}"
    if np.isfinite(row.get("coefficient_mean", np.nan)):
        text += f"<br>mean coefficient {row['coefficient_mean']:.3f}".replace("-", "−")
    if np.isfinite(row.get("at_zero", np.nan)):
        text += f"<br>{percent(row['at_zero'])} of its coefficients at zero or below"
    return text


def _alt(finite: pd.DataFrame, table: pd.DataFrame, unit: str, experts: list[str] | None) -> str:
    """What the lines show; ``finite`` are their points, by step."""
    names = finite if len(finite) else table
    together = experts is not None and not set(names["expert"]) & set(experts)  # one loss, of a router for instance
    tasks = "all tasks together" if together else plural(names["expert"].nunique(), "task")
    words = f"{clean_text(unit)} of {tasks} over {table['step'].max():,.0f} steps."
    if finite.empty:
        return words
    if together:
        return f"{words} It goes from {real(finite['loss'].iloc[0])} to {real(finite['loss'].iloc[-1])}."
    ends = finite.groupby("expert", sort=False)["loss"].agg(["first", "last"])
    falls = int((ends["last"] < ends["first"]).sum())
    worst = ends["last"].idxmax()
    return (
        f"{words} It falls on {falls} of them; it ends highest on {clean_text(worst, 40)}, {real(ends['last'].max())}."
    )
