"""Charts of other packages, found by their entry points, and the tables of a run or a result that they draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from merging.base.outside_code import CHARTS, LoadProblem, load_entry_points

if TYPE_CHECKING:
    import pandas as pd

    from viz.chart import Chart


@cache
def load_outside() -> tuple[dict[str, Chart], tuple[LoadProblem, ...]]:
    """The charts of packages with entry points, by key, and those that cannot be used, with the reasons."""
    import viz
    from viz import chart_registry
    from viz.chart import Chart

    found, problems = load_entry_points(CHARTS, Chart)
    ours = {chart.key for chart in viz.charts()}
    taken = [LoadProblem(key, "the key is that of a chart of Mergescope.") for key in found if key in ours]
    others = {key: chart for key, chart in found.items() if key not in ours}
    chart_registry.add_outside(others.values())
    return others, (*problems, *taken)


def describe_outside() -> str:
    """A sentence on the charts of packages, to end a list of charts with; empty if there are none."""
    charts, problems = load_outside()
    sentences = [f"Of packages: {', '.join(charts)}."] if charts else []
    return " ".join([*sentences, *(f"Not loaded: {problem}" for problem in problems)])


def find_table(chart: Chart, names: Iterable[str], read: Callable[[str], pd.DataFrame]) -> pd.DataFrame | None:
    """The first table with all columns that a chart needs; None if there is none."""
    for name in names:
        table = read(name)
        if set(chart.columns) <= set(table.columns):
            return table
    return None
