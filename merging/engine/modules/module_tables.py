"""Tables of modules: the sizes of their parts, and the routing of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor

from merging.engine.modules.modules import Modules

QUANTILES = (0.05, 0.95)


def size_table(modules: Modules) -> pd.DataFrame:
    """A row for every part stored beside the merged model.

    Columns: task (empty for parts that all tasks share), part, tensors, numel, kept (scalars that are not zero), bytes.
    """
    rows = []
    for task, part, tensors in modules.parts():
        infos = tensors.infos.values()
        kept = sum(int(torch.count_nonzero(tensors.read(name))) for name in tensors.infos)
        rows.append((task, part, len(infos), sum(info.numel for info in infos), kept, tensors.nbytes))
    return pd.DataFrame(rows, columns=["task", "part", "tensors", "numel", "kept", "bytes"])


def routing_tables(weights: Mapping[str, Tensor], experts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables "routing" and "confusion" of data sets, from the weights (n, blocks, K) or (n, K) of their images.

    routing: task, block (−1 if images are routed once), expert, weight (mean over images), low and high (5th and 95th
    percentile), n. confusion: task, in_domain, expert, share (of the images for which the expert has the largest mean
    weight over blocks), n.
    """
    summary, shares = [], []
    for task, of_task in weights.items():
        blocks = of_task if of_task.ndim == 3 else of_task[:, None]
        low, high = torch.quantile(blocks.double(), torch.tensor(QUANTILES, dtype=torch.float64), dim=0)
        mean, n = blocks.double().mean(dim=0), len(blocks)
        for block in range(blocks.shape[1]):
            number = block if of_task.ndim == 3 else -1
            for k, expert in enumerate(experts):
                numbers = (float(mean[block, k]), float(low[block, k]), float(high[block, k]))
                summary.append((task, number, expert, *numbers, n))
        largest = torch.bincount(blocks.double().mean(dim=1).argmax(dim=1), minlength=len(experts)) / max(n, 1)
        shares += [(task, task in experts, expert, float(largest[k]), n) for k, expert in enumerate(experts)]
    return {
        "routing": pd.DataFrame(summary, columns=["task", "block", "expert", "weight", "low", "high", "n"]),
        "confusion": pd.DataFrame(shares, columns=["task", "in_domain", "expert", "share", "n"]),
    }
