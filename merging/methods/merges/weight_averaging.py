"""Weight averaging: the mean of the experts' weights."""

from __future__ import annotations

from torch import Tensor

from merging.methods.method import Citation, Merge, register
from merging.methods.params import NoParams
from merging.methods.slot import Slot


def weight_averaging(slot: Slot, params: NoParams, statistics: None) -> Tensor:
    """The mean task vector, (K, *S) -> (*S)."""
    return slot.task_vectors.mean(dim=0)


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
        elementwise=lambda params, parameter: True,
        variant="Uniform weights. Equals task arithmetic with scaling 1/K.",
    )
)
