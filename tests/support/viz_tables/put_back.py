"""Tables of the charts of putting weights back, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, tensors

AVERAGES = (("in domain", "In domain"), ("out of domain", "Out of domain"))


def _rows(tasks: int) -> list[tuple[str, str]]:
    return [*AVERAGES, *((f"t{place}", title) for place, title in enumerate(names(tasks, "Task")))]


def revert_map(tasks: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Gains that shrink with depth, with intervals of a few points."""
    rng, base = np.random.default_rng(seed), tensors(blocks)
    frames = []
    for row, title in _rows(tasks):
        change = rng.normal(0.03, 0.03, len(base)) * np.linspace(1.5, -0.5, len(base))
        half = rng.uniform(0.01, 0.03, len(base))
        numbers = {"change": change, "low": change - half, "high": change + half, "n": 480}
        frames.append(base.assign(row=row, title=title, **numbers, before=0.7, after=0.7 + change))
    return pd.concat(frames, ignore_index=True)


def first_order_map(tasks: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Predicted changes of the margin."""
    table = revert_map(tasks, blocks, seed)
    return table[["row", "title", *tensors(1).columns]].assign(predicted=table["change"] / 10)


def drift_and_put_back(blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Drift and gains of every tensor of a tower of that many blocks."""
    rng, base = np.random.default_rng(seed), tensors(blocks)
    change = rng.normal(0, 0.03, len(base))
    numbers = {"change": change, "low": change - 0.02, "high": change + 0.02}
    return base.assign(drift=rng.lognormal(-3, 1, len(base)), **numbers)
