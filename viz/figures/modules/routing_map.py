"""The mean weights of all experts for one task's images, in every block or once for the whole model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.parts import routing
from viz.text import clean_text, plural, real, safe_text


@chart(
    title="Routing of one task",
    question="Which experts are mixed for this task's images?",
    columns=("block", "expert", "weight"),
    optional=("low", "high", "n"),
    rows=("block", "expert"),
    picks=("expert", "block"),
    empty="No routing was recorded for this task.",
)
def routing_map(table: pd.DataFrame, *, task: str = "", present: bool = False) -> go.Figure:
    """A heat map of experts by blocks.

    block (number, or missing where one router serves the whole model), expert, weight (mean over the task's images),
    low and high (5th and 95th percentile over images), n (images). ``task`` is the task's title.
    """
    if not np.isfinite(table["weight"].to_numpy(np.float64)).any():
        return theme.notice("routing_map", "Nothing to draw: no weight is a number.", present)
    fig, height = routing.draw(table, _hover)
    return theme.finish(fig, "routing_map", _alt(table, task), height, present, task)


def _hover(row: dict[Any, Any]) -> str:
    where = "" if row["block"] == routing.MODEL else f" in block {safe_text(row['block'])}"
    text = f"<b>{safe_text(row['expert'])}</b>{where}<br>mean weight {row['weight']:.3f}".replace("-", "−")
    if np.isfinite(row.get("low", np.nan)) and np.isfinite(row.get("high", np.nan)):
        text += f"<br>{real(row['low'])} to {real(row['high'])} for nine of ten images".replace("-", "−")
    return text + (f"<br>{row['n']:,.0f} images" if np.isfinite(row.get("n", np.nan)) else "")


def _alt(table: pd.DataFrame, task: str) -> str:
    means = table.groupby(table["expert"].astype(str))["weight"].mean()
    of = f" for {clean_text(task, 40)}" if task else ""
    words = f"Mean routing weights{of}: {plural(len(means), 'expert')}, {routing.places(table)}."
    return f"{words} The largest weight on average is {clean_text(means.idxmax(), 40)}'s, {means.max():.2f}."
