"""Who hurts whom: what a task loses because of one more expert, alone with its own or among all.

Losses are differences of two models on the same images, with paired 95 % intervals (``paired_scores``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from merging.images.benchmarks.paired_scores import OUT_OF_DOMAIN, Correctness, compare_models
from merging.study.measurements.pairs import cluster_order
from merging.study.partners.subsets import MeasuredSubsets

if TYPE_CHECKING:
    import pandas as pd

IN_PAIRS, AMONG_ALL = "in pairs", "among all"
COLUMNS = ("task", "expert", "loss", "low", "high", "before", "after", "n")
WORST = 3  # losses with an arrow


def loss_table(measured: MeasuredSubsets, among: str = IN_PAIRS) -> pd.DataFrame:
    """Rows task (i), expert (j ≠ i), loss, low, high, before, after, n: what j costs i, as far as it is measured.

    In pairs, before is v_i({i}) and after v_i({i, j}); out of domain, before is the pretrained model and after the
    expert alone: v(∅) and v({j}). Among all, before is v(all without j) and after is v(all). The loss is
    before − after, so that a positive one hurts. Accuracies are fractions.
    """
    import pandas as pd

    rows = []
    for j, expert in enumerate(measured.experts):
        for i, task in [*enumerate(measured.experts), (-1, OUT_OF_DOMAIN)]:
            own = 1 << i if i >= 0 else 0
            after = measured.everyone if among == AMONG_ALL else own | 1 << j
            before = measured.everyone ^ 1 << j if among == AMONG_ALL else own
            if i != j and {before, after} <= measured.right.keys():
                rows += _compare(measured, task, expert, measured.right[before], measured.right[after])
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _compare(
    measured: MeasuredSubsets, task: str, expert: str, before: Correctness, after: Correctness
) -> list[tuple[str, str, float, float, float, float, float, int]]:
    """One row of ``loss_table``; none if the benchmark has no such images."""
    rows = compare_models(before, after, measured.experts, only=[task])
    columns = ["difference", "low", "high", "accuracy", "reference", "n"]
    of_task = rows[rows["over"] == task][columns].to_numpy().tolist()
    return [(task, expert, *row[:-1], int(row[-1])) for row in of_task]


def order_experts(losses: pd.DataFrame, experts: Sequence[str]) -> list[str]:
    """The experts in the order of one average-linkage clustering, with those side by side that hurt each other least.

    The distance of two experts is the mean of both losses, from the smallest one. As long as pairs are missing, the
    experts stay in their order.
    """
    pairs = losses[losses["task"].isin(experts)].pivot(index="task", columns="expert", values="loss")
    loss = pairs.reindex(index=[*experts], columns=[*experts]).to_numpy(np.float64)
    distance = (loss + loss.T) / 2
    off_diagonal = ~np.eye(len(experts), dtype=bool)
    if not np.isfinite(distance[off_diagonal]).all():
        return list(experts)
    distance -= distance[off_diagonal].min()
    return [experts[index] for index in cluster_order(distance)]


def find_worst(losses: pd.DataFrame, count: int = WORST) -> list[tuple[str, str]]:
    """The (task, expert) of the largest losses whose interval is above zero, the largest first; not out of domain."""
    hurt = losses[(losses["low"] > 0) & (losses["task"] != OUT_OF_DOMAIN)]
    worst = hurt.sort_values("loss", ascending=False, kind="stable").head(count)
    return list(zip(worst["task"], worst["expert"], strict=True))
