"""The weights that one image is mixed with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.parts import routing
from viz.text import clean_text, plural, safe_text


@chart(
    title="Routing of one image",
    question="How is this image mixed?",
    columns=("block", "expert", "weight"),
    rows=("block", "expert"),
    picks=("expert", "block"),
    empty="This image has not been routed.",
)
def routing_image(table: pd.DataFrame, *, image: str = "", present: bool = False) -> go.Figure:
    """A heat map of experts by blocks.

    block (number, or missing where one router serves the whole model), expert, weight. ``image`` says which image it
    is.
    """
    if not np.isfinite(table["weight"].to_numpy(np.float64)).any():
        return theme.notice("routing_image", "Nothing to draw: no weight is a number.", present)
    fig, height = routing.draw(table, _hover)
    return theme.finish(fig, "routing_image", _alt(table, image), height, present, image)


def _hover(row: dict[Any, Any]) -> str:
    where = "" if row["block"] == routing.MODEL else f" in block {safe_text(row['block'])}"
    return f"<b>{safe_text(row['expert'])}</b>{where}<br>weight {row['weight']:.3f}".replace("-", "−")


def _alt(table: pd.DataFrame, image: str) -> str:
    means = table.groupby(table["expert"].astype(str))["weight"].mean()
    of = f" of {clean_text(image, 60)}" if image else " of one image"
    words = f"Routing weights{of}: {plural(len(means), 'expert')}, {routing.places(table)}."
    return f"{words} The largest on average is {clean_text(means.idxmax(), 40)}'s, {means.max():.2f}."
