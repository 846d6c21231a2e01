"""Draw what a merge did: pure functions from a tidy pandas table to a plotly Figure.

``charts()`` lists every chart with the columns it needs, ``draw()`` draws one. The package reads no files, computes no
results and does not know the app. Importing this package is cheap; plotly is loaded by the first chart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from viz.chart import Chart

__all__ = ["charts", "draw"]


def charts() -> tuple[Chart, ...]:
    """Every registered chart, by key: key, title, question, columns, options."""
    from viz import chart_registry

    return chart_registry.charts()


def draw(key: str, table: pd.DataFrame, *, ground: str = "light", **options: object) -> go.Figure:
    """The figure of the chart ``key`` for ``table``; for an empty table a figure with a sentence about it.

    ``ground`` is "light" or "dark". Raises ChartError for an unknown chart or option, for missing columns and for
    repeated rows.
    """
    from viz import chart_registry

    return chart_registry.find(key)(table, ground, **options)
