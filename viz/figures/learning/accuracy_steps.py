"""Accuracy at marked steps of learning, with what authors logged behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends, sweep
from viz.text import count, percent, plural, safe_text

HEIGHT, BOTTOM, LEFT = 330, 56, 72
OURS = "Here, mean over tasks"


@chart(
    title="Accuracy over steps",
    question="Does accuracy still rise while the merge learns?",
    columns=("step", "task", "title", "accuracy"),
    optional=("n",),
    rows=("step", "task"),
    empty="No step of this merge has been measured with labels.",
)
def accuracy_steps(table: pd.DataFrame, *, published: pd.DataFrame | None = None, present: bool = False) -> go.Figure:
    """The mean accuracy over tasks as a line, and the range from the worst task to the best as a band.

    step (updates so far), task, title, accuracy (a fraction), n (images). ``published`` has method, step, accuracy and
    source: what authors logged for other models and other images, as a dotted line behind.
    """
    table = table[np.isfinite(table["accuracy"].to_numpy(np.float64))]
    if table.empty:
        return theme.notice("accuracy_steps", "Nothing to draw: no step has an accuracy.", present)
    look = theme.looks([OURS])[OURS]
    printed = [] if published is None else [_printed(published[published["method"] == name])
                                            for name in in_order(published["method"])]  # fmt: skip
    fig = Drawing([*printed, _band(table, look), _line(table, look)])
    legend, top = legends.above([OURS, *(str(trace["name"]) for trace in printed)])
    steps = [*table["step"], *([] if published is None else published["step"])]
    fig.update_xaxes(title={"text": "Step of learning"}, range=sweep.stretch(None, steps), tickformat=",d")
    fig.update_yaxes(title={"text": "In-domain accuracy (%)"}, tickformat=".0%")
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM})
    return theme.finish(fig, "accuracy_steps", _alt(table), HEIGHT + top, present)


def _line(table: pd.DataFrame, look: theme.Look) -> Trace:
    steps = list(table.groupby("step", sort=True))
    return scatter(
        x=np.array([step for step, _ in steps], np.float32),
        y=np.array([rows["accuracy"].mean() for _, rows in steps], np.float32),
        mode="lines+markers", name=legends.entry(OURS), line={"color": look.color, "width": 2.5},
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8)},
        text=[_hover(int(str(step)), rows) for step, rows in steps], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _band(table: pd.DataFrame, look: theme.Look) -> Trace:
    steps = table.groupby("step", sort=True)["accuracy"]
    low, high = steps.min(), steps.max()
    red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
    return scatter(
        x=np.concatenate([low.index, high.index[::-1]]).astype(np.float32),
        y=np.concatenate([low, high[::-1]]).astype(np.float32), mode="lines", line={"width": 0}, fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.15)", hoverinfo="skip", showlegend=False,
        name=legends.entry("Worst task to best"),
    )  # fmt: skip


def _printed(rows: pd.DataFrame) -> Trace:
    """What authors logged for one method, in the color and with the marks of published numbers."""
    look, method, source = theme.KINDS["paper"], str(rows["method"].iloc[0]), str(rows["source"].iloc[0])
    return scatter(
        x=rows["step"].to_numpy(np.float32), y=rows["accuracy"].to_numpy(np.float32), mode="lines+markers",
        name=legends.entry(f"◇ {method}: {source}"), line={"color": look.color, "width": 1.2, "dash": "dot"},
        marker={"symbol": "diamond-open", "color": look.color, "size": 9, "line": {"color": look.color, "width": 1.6}},
        text=[
            f"<b>◇ {safe_text(method)}, step {step:,.0f}</b><br>{percent(value)}, as logged"
            f"<br>{safe_text(source, 80)}: other models, other images"
            for step, value in zip(rows["step"], rows["accuracy"], strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(step: int, rows: pd.DataFrame) -> str:
    values = rows["accuracy"].to_numpy(np.float64)
    worst, best = (rows.iloc[int(place)] for place in (values.argmin(), values.argmax()))
    text = f"<b>Step {step:,}</b><br>mean {percent(rows['accuracy'].mean())} over {plural(len(rows), 'task')}"
    text += f"<br>{safe_text(worst['title'], 40)} {percent(worst['accuracy'])} to "
    text += f"{safe_text(best['title'], 40)} {percent(best['accuracy'])}"
    images = float(rows["n"].sum()) if "n" in rows else np.nan
    return text + (f"<br>{count(images)} images" if np.isfinite(images) and images else "")


def _alt(table: pd.DataFrame) -> str:
    means = table.groupby("step", sort=True)["accuracy"].mean()
    words = f"In-domain accuracy of {plural(table['task'].nunique(), 'task')} at {plural(len(means), 'step')}:"
    best = f"It is highest at step {means.idxmax():,.0f}, {percent(means.max())}."
    ends = ", ".join(f"{percent(means[step])} at step {step:,.0f}" for step in means.index[[0, -1]])
    return f"{words} {ends}. {best}"
