"""Finds every chart in ``viz/figures/``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from viz.chart import Chart, ChartError, quote_names
from viz.figure_text import clean_text

_outside: dict[str, Chart] = {}  # charts of other packages, by key


@cache
def charts() -> tuple[Chart, ...]:
    """Every chart found in ``viz/figures/``, by key."""
    from viz import figures

    names = [info.name for info in pkgutil.walk_packages(figures.__path__, "viz.figures.") if not info.ispkg]
    modules = [importlib.import_module(name) for name in names]
    registered = [value for module in modules for value in vars(module).values() if isinstance(value, Chart)]
    return tuple(sorted(registered, key=lambda chart: chart.key))


def add_outside(added: Iterable[Chart]) -> None:
    """Let ``find`` know charts of other packages, in place of those before; ``charts`` does not list them."""
    _outside.clear()
    _outside.update({chart.key: chart for chart in added})


def find(key: str) -> Chart:
    """The chart with that key. Raises ChartError, which suggests the most similar key."""
    by_key = _outside | {chart.key: chart for chart in charts()}
    if key not in by_key:
        similar = get_close_matches(key, by_key, 1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"there are {quote_names(by_key)}"
        raise ChartError(f"no chart is called {clean_text(key)!r}; {hint}")
    return by_key[key]
