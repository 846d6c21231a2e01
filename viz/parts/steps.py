"""Lines over the steps of learning, one for each name, with a mark at a chosen step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import in_order
from viz.drawing import Drawing
from viz.parts import axes, series, sweep

OVERALL = theme.Look(theme.FADED, "circle-open")  # no expert has this color
MARKED = 60  # points of a line up to which each is a mark
SIZE: dict[str, Any] = {"inner": 330, "right": 24, "gap": 14}  # of the figure


def draw(
    table: pd.DataFrame,
    value: str,
    title: str,
    hover: str,
    at: int | None,
    names: Sequence[str] | None,
    *,
    band: str | None = None,
    window: int = 1,
    overall: str = "",
) -> Drawing:
    """A line of the column ``value`` for each expert of a table with step and expert.

    Columns low and high, if there are any, are a band around the line of the expert ``band``. ``at`` is the step that a
    line marks; ``names`` the full ordered list of experts that fixes the colors. A name that it lacks, such as that of
    a router for all tasks, comes after them. With a ``window`` of several steps lines are means over the last of them,
    and the values themselves are faint. ``overall`` is the name, if any, of what all tasks have in common.
    """
    table = table.sort_values("step", kind="stable")
    experts = in_order([*(names or ()), *table["expert"]])
    looks = theme.looks([expert for expert in experts if expert != overall]) | {overall: OVERALL}
    fig = Drawing()
    for expert, rows, entry in series.each(series.finite_rows(table, value), "expert", experts, label="expert"):
        look, behind = looks[expert], entry | {"showlegend": False}
        if window > 1:
            style = {"color": look.color, "width": 1}
            fig.add_trace(series.line(rows["step"], rows[value], style=style, opacity=0.3, **behind))
        if expert == band and {"low", "high"} <= set(rows):
            color = theme.tint(look.color, 0.16)
            fig.add_trace(series.band(rows["step"], rows["low"], rows["high"], color, **behind))
        fig.add_trace(series.marks(
            rows.assign(**{value: running_mean(rows[value], window)}), "step", value, look, hover, size=7,
            line={"width": 3.5 if look == OVERALL else 2},
            mode="lines+markers" if len(rows) <= MARKED else "lines", **entry,
        ))  # fmt: skip
    few = {"dtick": 1} if np.ptp(table["step"]) < 8 else {}  # steps are whole numbers
    fig.update_xaxes(**axis(table["step"]), **few)
    fig.update_yaxes(title={"text": title})
    fig.update_layout(shapes=[axes.upright(at, sweep.CHOSEN)] if at is not None else [])
    return fig


def axis(steps: Iterable[float]) -> dict[str, object]:
    """Settings of an axis of these steps."""
    return {"title": {"text": "Step of learning"}, "range": sweep.stretch(None, steps), "tickformat": ",d"}


def running_mean(values: pd.Series[float], window: int) -> pd.Series[float]:
    """The mean of each value and those before it, of so many in all; of fewer at the beginning."""
    return values.rolling(window, min_periods=1).mean()
