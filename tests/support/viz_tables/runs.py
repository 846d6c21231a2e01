"""Tables of the charts of runs, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names


def lineage(experts: int = 8, models: int = 0, others: int = 2) -> pd.DataFrame:
    """A run of that many experts with one edit: one merged model, or one for each of some tasks."""
    shown = names(experts)
    rows = [("base", "pretrained", "CLIP ViT-B/32", "3f9c1ab2", "")]
    rows += [(f"e{i}", "expert", name, f"{i:08x}", "base") for i, name in enumerate(shown)]
    rows += [("s0", "edit", "LwPTV", "prune ratio 0.7", " ".join(f"e{i}" for i in range(experts)))]
    rows += [("s1", "merge", "TIES", "density 0.2", "s0")]
    if models:
        rows += [(f"m{i}", "model", name, "", "s1") for i, name in enumerate(shown[:models])]
    else:
        rows += [("r", "run", "LwPTV → TIES", "91ab03cd", "s1")]
    rows += [(f"o{i}", "other", f"Another run {i}", f"{i:08x}", "") for i in range(others)]
    return pd.DataFrame(rows, columns=["node", "kind", "label", "detail", "parents"])


def run_plane(runs: int = 8, seed: int = 0) -> pd.DataFrame:
    """Averages of merges and of the two references."""
    rng = np.random.default_rng(seed)
    rows = [("pretrained", "Pretrained", "pretrained"), ("individual", "Individual experts", "individual")]
    rows += [(f"run{number}", f"Merge {number}", "merge") for number in range(runs)]
    table = pd.DataFrame(rows, columns=["run", "label", "kind"])
    return table.assign(in_domain=rng.uniform(0.4, 0.9, len(table)), out_of_domain=rng.uniform(0.4, 0.9, len(table)))
