"""Lines over the steps of learning, one for each name, with a mark at a chosen step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends, sweep
from viz.text import safe_text

OVERALL = theme.Look(theme.FADED, "circle-open")  # no expert has this color
MARKED = 60  # points of a line up to which each is a mark
HEIGHT, BOTTOM, LEFT = 330, 56, 72


def draw(
    table: pd.DataFrame,
    value: str,
    title: str,
    hover: str | Callable[[dict[Any, Any]], str],
    at: int | None = None,
    names: Sequence[str] | None = None,
    band: str | None = None,
    *,
    window: int = 1,
    overall: str = "",
) -> tuple[Drawing, float]:
    """A line of the column ``value`` for each expert of a table with step and expert, and the figure's height in px.

    Columns low and high, if there are any, are a band around the line of the expert ``band``. ``at`` is the step that a
    line marks; ``names`` the full ordered list of experts that fixes the colors. A name that it lacks, such as that of
    a router for all tasks, comes after them. With a ``window`` of several steps lines are means over the last of them,
    and the values themselves are faint. ``overall`` is the name, if any, of what all tasks have in common.
    """
    table = table.sort_values("step", kind="stable")
    experts = in_order([*(names or ()), *table["expert"]])
    look = theme.looks([expert for expert in experts if expert != overall]) | {overall: OVERALL}
    fig = Drawing()
    for expert in experts:
        rows = table[(table["expert"].astype(str) == expert) & np.isfinite(table[value].to_numpy(np.float64))]
        if len(rows):
            means = rows.assign(**{value: running_mean(rows[value], window)})
            fig.add_traces(_faint(rows, value, expert, look[expert]) if window > 1 else [])
            fig.add_traces(_line(means, value, expert, look[expert], hover, expert == band))
    legend, top = legends.above([expert for expert in experts if expert in set(table["expert"].astype(str))])
    steps = table["step"].tolist()
    few = {"dtick": 1} if max(steps) - min(steps) < 8 else {}  # steps are whole numbers
    fig.update_xaxes(title={"text": "Step of learning"}, range=sweep.stretch(None, steps), tickformat=",d", **few)
    fig.update_yaxes(title={"text": title})
    fig.update_layout(
        legend=legend, shapes=[sweep.upright(at)] if at is not None else [],
        margin={"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM},
    )  # fmt: skip
    return fig, HEIGHT + top


def running_mean(values: pd.Series[float], window: int) -> pd.Series[float]:
    """The mean of each value and those before it, of so many in all; of fewer at the beginning."""
    return values.rolling(window, min_periods=1).mean()


def _group(expert: str) -> dict[str, str]:
    return {"name": legends.entry(expert), "legendgroup": safe_text(f"expert {expert}")}


def _faint(rows: pd.DataFrame, value: str, expert: str, look: theme.Look) -> list[Trace]:
    """The values behind the line of their running means."""
    return [
        scatter(
            x=rows["step"].to_numpy(np.float32), y=rows[value].to_numpy(np.float32), mode="lines", opacity=0.3,
            line={"color": look.color, "width": 1}, hoverinfo="skip", showlegend=False, **_group(expert),
        )
    ]  # fmt: skip


def _line(
    rows: pd.DataFrame,
    value: str,
    expert: str,
    look: theme.Look,
    hover: Callable[[dict[Any, Any]], str],
    banded: bool,
) -> list[Trace]:
    group = _group(expert)
    steps = rows["step"].to_numpy(np.float32)
    traces = []
    if banded and {"low", "high"} <= set(rows):
        red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
        ends = [rows[end].to_numpy(np.float32) for end in ("low", "high")]
        traces.append(
            scatter(
                x=np.concatenate([steps, steps[::-1]]), y=np.concatenate([ends[0], ends[1][::-1]]), mode="lines",
                line={"width": 0}, fill="toself", fillcolor=f"rgba({red},{green},{blue},0.16)", hoverinfo="skip",
                showlegend=False, **group,
            )
        )  # fmt: skip
    few = len(rows) <= MARKED
    traces.append(
        scatter(
            x=steps, y=rows[value].to_numpy(np.float32), mode="lines+markers" if few else "lines",
            line={"color": look.color, "width": 3.5 if look == OVERALL else 2},
            text=[hover(row) for row in rows.to_dict("records")],
            marker={"symbol": look.symbol, "color": look.color, "size": 7, "line": theme.edge(0.8)},
            hovertemplate="%{text}<extra></extra>", **group,
        )
    )  # fmt: skip
    return traces
