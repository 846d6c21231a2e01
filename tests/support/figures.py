"""Every chart's example figure, strings and traces in figures, and names that try to be markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
import viz_tables

import viz
from viz.chart import Chart

CHARTS = viz.charts()
KEYS = [chart.key for chart in CHARTS]
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<b>bold</b> <a href='javascript:alert(1)'>x</a>",
    "$\\href{javascript:alert(1)}{x}$",
    "%{customdata[0]} %{x}",
    "evil\u202egnp.exe\x00\n",
    "lone \ud800 surrogate",
    "long " * 100,
    "& &amp; &#60;script&#62;",
]
TABLES: dict[str, Callable[..., pd.DataFrame]] = {key: getattr(viz_tables, key) for key in KEYS}


def run_checks(checks: list[Callable[[str], None]], key: str) -> None:
    """Run every check of a chart, and fail with the name and the reason of each that is broken."""
    broken = []
    for check in checks:
        try:
            check(key)
        except (Exception, pytest.fail.Exception) as error:
            broken.append(f"{check.__name__}: {type(error).__name__}: {error}")
    if broken:
        pytest.fail("\n\n".join(broken), pytrace=False)


def cut_to_one_chart(key: str) -> Chart:
    return next(chart for chart in CHARTS if chart.key == key)


@cache
def draw_example(key: str, number: int = 4) -> go.Figure:
    """The example figure, drawn once for all tests that only look at it."""
    return viz.draw(key, TABLES[key](number))


@cache
def spec_of(key: str) -> str:
    """That figure as JSON."""
    return str(draw_example(key).to_json())


def strings(value: Any) -> Iterator[str]:
    """Every string inside a figure's JSON, customdata left out: it is handed back to the app and never shown."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (s for k, v in value.items() if k not in ("customdata", "bdata", "template") for s in strings(v))
    elif isinstance(value, list):
        yield from (s for item in value for s in strings(item))


def traces(fig: go.Figure, name: str) -> list[Any]:
    return [trace for trace in fig.data if trace.name == name]


def axis_texts(fig: go.Figure, axis: str) -> bool:
    return fig.layout[axis].visible is not False
