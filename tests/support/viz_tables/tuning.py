"""Tables of the charts of tunings, with made-up numbers."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pandas as pd

from viz_tables.base import names


def tune_history(trials: int = 20, seed: int = 0) -> pd.DataFrame:
    """Scores of that many trials of each search, of which the tuning improves."""
    rng = np.random.default_rng(seed)
    rows = []
    for search, gain in (("tune", 0.2), ("random", 0.0), ("grid", 0.0)):
        values = [0.5 + gain * index / trials + rng.uniform(0, 0.1) for index in range(trials)]
        for index, (value, best) in enumerate(zip(values, accumulate(values, max), strict=True), 1):
            rows.append((search, index, value, best, f"{search}{index:03}", f"ties.density {value:.2f}"))
    return pd.DataFrame(rows, columns=["search", "trial", "value", "best", "point", "values"])


def tune_front(trials: int = 20, seed: int = 0) -> pd.DataFrame:
    """Trials by two objectives that exclude each other."""
    table, rng = tune_history(trials, seed), np.random.default_rng(seed)
    x = rng.uniform(0, 0.9, len(table))
    y = np.sqrt(1 - x**2) * rng.uniform(0.7, 1, len(table))
    front = [not ((x >= a) & (y >= b) & ((x > a) | (y > b))).any() for a, b in zip(x, y, strict=True)]
    return table.drop(columns=["value", "best"]).assign(x=x, y=y, on_front=front)


def tune_importances(dimensions: int = 4, objectives: int = 2, seed: int = 0) -> pd.DataFrame:
    """Shares of that many dimensions for each objective."""
    rng, rows = np.random.default_rng(seed), []
    for objective in names(objectives, "Objective"):
        shares = rng.dirichlet(np.ones(dimensions))
        rows += [(objective, label, share) for label, share in zip(names(dimensions, "Value"), shares, strict=True)]
    return pd.DataFrame(rows, columns=["objective", "label", "importance"])


def tune_slices(trials: int = 8, dimensions: int = 4, seed: int = 0) -> pd.DataFrame:
    """The values of that many trials of each search; the last dimension is a choice."""
    table, rng, parts = tune_history(trials, seed), np.random.default_rng(seed), []
    for index, label in enumerate(names(dimensions, "Value")):
        x = rng.uniform(0, 1, len(table))
        texts = [f"{value:.3g}" for value in x]
        if index == dimensions - 1:
            x = np.round(x)
            texts = ["none" if value else "lwptv" for value in x]
        parts.append(table.assign(name=f"step.value{index}", label=label, number=x, text=texts, x=x))
    return pd.concat(parts, ignore_index=True)


tune_parallel = tune_slices
