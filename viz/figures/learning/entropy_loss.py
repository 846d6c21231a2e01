"""Entropy, which learning minimizes, against the loss with labels, which it never sees."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import NothingToDraw, chart, in_order
from viz.drawing import Drawing, Picture, Trace
from viz.parts import series
from viz.parts.legends import with_legend
from viz.text import clean_text, plural

HOVER = (
    "<b>{title}</b>, step {step:count}<br>entropy {entropy:real}, loss {loss:real} nats"
    "[<br>accuracy {accuracy:percent}][<br>{n:count} images]"
)


@chart(
    title="Entropy against loss",
    question="When does minimizing entropy stop helping?",
    columns=("task", "title", "step", "entropy", "loss"),
    optional=("accuracy", "n"),
    rows=("task", "step"),
    picks=("task", "step"),
    empty="No step of this merge has been measured with labels.",
)
def entropy_loss(table: pd.DataFrame, *, tasks: list[str] | None = None, selected: str | None = None) -> Picture:
    """A path for each task through its measured steps: the first is an open mark, the last a large one.

    step (updates so far), entropy (mean of the model's predictions, nats), loss (cross-entropy with labels, nats).
    Where a path goes left and up, entropy falls while the loss rises. The path of the task ``selected`` is emphasized.
    """
    drawn = series.finite_rows(table.sort_values("step", kind="stable"), "entropy", "loss")
    if drawn.empty:
        raise NothingToDraw("Nothing to draw: no step has both numbers.")
    look = theme.looks(tasks or in_order(drawn["task"]))
    fig = Drawing([
        _path(rows, look[task], **entry, opacity=1 if selected in (None, task) else 0.3)
        for task, rows, entry in series.each(drawn, "task", label="title")
    ])  # fmt: skip
    fig.update_xaxes(title={"text": "Mean entropy of the predictions (nats)"}, rangemode="tozero")
    fig.update_yaxes(title={"text": "Cross-entropy with the labels (nats)"}, rangemode="tozero")
    return with_legend(fig, _alt(drawn), 430, right=24, gap=14)


def _path(rows: pd.DataFrame, look: theme.Look, **fields: object) -> Trace:
    first, last = rows["step"].min(), rows["step"].max()
    return series.marks(
        rows, "entropy", "loss", look, HOVER, picks=("task", "step"), line={"width": 1.8},
        marker={
            "size": [14 if step == last else 8 for step in rows["step"]],
            "color": ["white" if step == first < last else look.color for step in rows["step"]],
            "line": {"color": look.color if first < last else theme.INK, "width": 1.6},
        }, **fields,
    )  # fmt: skip


def _alt(drawn: pd.DataFrame) -> str:
    ends = drawn.groupby("title", sort=False)[["entropy", "loss"]].agg(["first", "last"])
    entropy, loss = (ends[name]["last"] - ends[name]["first"] for name in ("entropy", "loss"))
    misled = [clean_text(title, 40) for title in ends.index[np.array((entropy < 0) & (loss > 0))]]
    words = f"Entropy against loss of {plural(len(ends), 'task')} at {plural(drawn['step'].nunique(), 'step')}."
    if not misled:
        return f"{words} On no task does entropy fall while the loss rises."
    return f"{words} Entropy falls while the loss rises on {len(misled)} of them: {', '.join(misled[:3])}."
