"""Tables of the charts of answers by depth over whole data sets, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, wilson

KINDS = ("class", "patches", "all")


def data_set_depths(runs: int = 4, depths: int = 7, n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Shares by depth that sum to one, of that many runs; of several, the last is the reference."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        kind = "reference" if runs > 1 and run == runs - 1 else "run"
        counts = rng.multinomial(n, rng.dirichlet(np.arange(1, depths + 1)))
        rows += [
            (f"r{run:03}", f"Merge {run}", kind, depth, *_share(int(hits), n)) for depth, hits in enumerate(counts)
        ]
    return pd.DataFrame(rows, columns=["run", "label", "kind", "depth", "share", "low", "high", "n"])


def data_set_mended(runs: int = 4, depths: int = 7, n: int = 40, seed: int = 0) -> pd.DataFrame:
    """Shares that rise with depth, of that many runs and the three kinds of tokens."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        for kind in KINDS:
            hits = np.sort(rng.integers(0, n + 1, depths))
            rows += [(f"r{run:03}", f"Merge {run}", at, kind, *_share(int(one), n)) for at, one in enumerate(hits)]
    return pd.DataFrame(rows, columns=["run", "label", "depth", "tokens", "share", "low", "high", "n"])


def data_set_tasks(tasks: int = 4, depths: int = 7, n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Shares of every data set and depth of one run."""
    rng = np.random.default_rng(seed)
    rows = []
    for number, title in enumerate(names(tasks, "Task")):
        counts = rng.multinomial(n, rng.dirichlet(np.ones(depths)))
        rows += [(f"t{number}", title, depth, *_share(int(hits), n)) for depth, hits in enumerate(counts)]
    columns = ["task", "title", "depth", "share", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns).assign(label="Merge 0")


def _share(hits: int, n: int) -> tuple[float, float, float, int]:
    return hits / n, *wilson(hits, n), n
