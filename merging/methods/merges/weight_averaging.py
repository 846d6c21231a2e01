"""Weight averaging: the mean of the experts' weights, after the mean of each expert's own checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor

from merging.methods.method import Citation, Merge, register
from merging.methods.params import NoParams
from merging.methods.slot import Slot
from merging.models.task_checkpoints import group_by_task


def weight_averaging(slot: Slot, params: NoParams, statistics: None) -> Tensor:
    """The mean task vector, (K, *S) -> (*S); of experts with several checkpoints, the mean of their means."""
    tasks = group_by_task(slot.experts)
    if len(tasks) == len(slot.experts):
        return slot.task_vectors.mean(dim=0)
    return torch.stack([slot.task_vectors[rows].mean(dim=0) for rows in tasks.values()]).mean(dim=0)


register(
    Merge(
        key="weight_averaging",
        title="Weight Averaging",
        summary="Takes the mean of the experts' weights, tensor by tensor.",
        formula=r"\theta = \frac{1}{K} \sum_k \theta_k = \theta_0 + \frac{1}{K} \sum_k \tau_k",
        cite=Citation(
            key="wortsman2022soups",
            authors="Wortsman et al.",
            title="Model soups: averaging weights of multiple fine-tuned models improves accuracy "
            "without increasing inference time",
            venue="ICML",
            year=2022,
            arxiv="2203.05482",
        ),
        run=weight_averaging,
        several_checkpoints=True,
        elementwise=lambda params, parameter: True,
        variant="Uniform weights. Equals task arithmetic with scaling 1/K. Several checkpoints of one expert are "
        "averaged first, so that every task counts once.",
    )
)
