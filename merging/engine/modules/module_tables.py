"""Tables of modules: the sizes of their parts, and the routing of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor

from merging.engine.modules.modules import Modules

QUANTILES = (0.05, 0.95)  # of the columns low and high


def size_table(modules: Modules) -> pd.DataFrame:
    """A table with a row for every part that is stored beside the merged model.

    The task is empty for parts that all tasks share; ``kept`` counts the scalars that are not zero.
    """
    rows = []
    for task, part, tensors in modules.parts():
        infos = tensors.infos.values()
        kept = sum(int(torch.count_nonzero(tensors.read(name))) for name in tensors.infos)
        rows.append((task, part, len(infos), sum(info.numel for info in infos), kept, tensors.nbytes))
    return pd.DataFrame(rows, columns=["task", "part", "tensors", "numel", "kept", "bytes"])


def routing_tables(weights: Mapping[str, Tensor], experts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables "routing" and "confusion" of data sets, from the weights (n, blocks, K) or (n, K) of their images.

    "routing" has the mean weight of every task, block and expert over the task's images, and its 5th and 95th
    percentile; the block is −1 if images are routed once. "confusion" has the share of a task's images for
    which an expert has the largest weight, averaged over the blocks; a task is in domain if it was merged.
    """
    summary, shares = [], []
    for task, task_weights in weights.items():
        is_routed_by_block = task_weights.ndim == 3
        blocks = task_weights if is_routed_by_block else task_weights[:, None]
        low, high = torch.quantile(blocks.double(), torch.tensor(QUANTILES, dtype=torch.float64), dim=0)
        mean, n = blocks.double().mean(dim=0), len(blocks)
        for block in range(blocks.shape[1]):
            number = block if is_routed_by_block else -1
            for k, expert in enumerate(experts):
                values = (float(mean[block, k]), float(low[block, k]), float(high[block, k]))
                summary.append((task, number, expert, *values, n))
        largest_shares = torch.bincount(blocks.double().mean(dim=1).argmax(dim=1), minlength=len(experts)) / max(n, 1)
        shares += [(task, task in experts, expert, float(largest_shares[k]), n) for k, expert in enumerate(experts)]
    return {
        "routing": pd.DataFrame(summary, columns=["task", "block", "expert", "weight", "low", "high", "n"]),
        "confusion": pd.DataFrame(shares, columns=["task", "in_domain", "expert", "share", "n"]),
    }
