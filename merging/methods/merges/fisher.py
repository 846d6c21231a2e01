"""Fisher merging: per scalar, the mean of the experts, weighted by how much their predictions depend on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64
from merging.methods.method import Citation, Merge, Needs, register
from merging.methods.params import Params, flag, real
from merging.methods.slot import Gradients, Slot, SlotStream, Survey


@dataclass(frozen=True, kw_only=True)
class FisherParams(Params):
    """The parameters of Fisher merging."""

    floor: float = real(
        1e-6,
        low=0.0,
        high=1e9,
        slider=(0.0, 0.001),
        step=1e-6,
        symbol=r"\epsilon",
        label="Floor",
        help="Added to every weight, as a multiple of the mean weight; a large floor gives weight averaging.",
    )
    normalize: bool = flag(
        True, label="Normalize", help="Scale every expert's Fisher information to the same norm over the whole model."
    )


@dataclass(frozen=True)
class FisherWeights:
    """The map from Fisher information to weights: multiply by the expert's ``scale``, then add ``floor``."""

    scale: tuple[float, ...]
    floor: float


def _information_sums(slot: Slot) -> Tensor:
    """Sums (K, 2) over a slot: of the squared Fisher information, and of the information itself."""
    information = map(to_float64, slot.gradients[Gradients.FISHER])  # (*S) per expert
    return torch.stack([torch.stack([values.square().sum(), values.sum()]) for values in information])


def survey(slots: SlotStream, params: FisherParams) -> Survey:
    """The weights' scale and floor, from the norm and mean of every expert's Fisher information over the model."""
    import pandas as pd

    total: Tensor | float = 0.0
    for slot_sums in slots.map(_information_sums):
        total = total + slot_sums
    square_sums, sums = torch.as_tensor(total).cpu().T.tolist()
    norms = [math.sqrt(square_sum) for square_sum in square_sums]
    means = [expert_sum / max(slots.numel, 1) for expert_sum in sums]
    scale = tuple(1.0 / norm if params.normalize and norm else 1.0 for norm in norms)
    floor = params.floor * math.fsum(mean * factor for mean, factor in zip(means, scale, strict=True)) / len(means)
    ignored = [name for name, norm in zip(slots.experts, norms, strict=True) if not norm]
    warning = f"fisher almost ignores {', '.join(ignored)}: its predictions depend on no parameter."
    table = pd.DataFrame({"expert": slots.experts, "fisher_norm": norms, "fisher_mean": means})
    return Survey(FisherWeights(scale, floor), {"fisher": table}, (warning,) if ignored else ())


def fisher(slot: Slot, params: FisherParams, weights: FisherWeights) -> Tensor:
    """The weighted mean of the task vectors, (K, *S) -> (*S); the plain mean where all weights are zero."""
    total = torch.zeros_like(to_float64(slot.pretrained))
    merged = torch.zeros_like(total)
    for values, vector, scale in zip(slot.gradients[Gradients.FISHER], slot.task_vectors, weights.scale, strict=True):
        weight = to_float64(values) * scale + weights.floor
        total += weight
        merged += weight * to_float64(vector)
    mean = slot.task_vectors.mean(dim=0)
    return torch.where(total.to(mean) > 0, (merged / total).to(mean), mean)


register(
    Merge(
        key="fisher",
        title="Fisher Merging",
        summary="Weights every scalar of every expert by its Fisher information: how much predictions depend on it.",
        formula=r"\theta = \frac{\sum_k \tilde F_k \odot \theta_k}{\sum_k \tilde F_k}, \quad "
        r"\tilde F_k = \hat F_k + \epsilon \,\overline{\hat F}, \quad \hat F_k = \frac{F_k}{\lVert F_k \rVert}, "
        r"\quad F_k = \frac1n \sum_x \big(\nabla \log p_k(y \mid x)\big)^2, \; y \sim p_k(\cdot \mid x)",
        cite=Citation(
            key="matena2022merging",
            authors="Matena and Raffel",
            title="Merging models with Fisher-weighted averaging",
            venue="NeurIPS",
            year=2022,
            arxiv="2111.09832",
        ),
        params=FisherParams,
        needs=Needs.EXEMPLARS,
        gradients=Gradients.FISHER,
        run=fisher,
        survey=survey,
        elementwise=lambda params, parameter: True,
        variant="One label per exemplar is sampled from the expert's own prediction, seeded by the exemplar seed and "
        "the expert's name, and each exemplar's own gradient is squared. Released code squares gradients of whole "
        "batches, which adds cross terms, and applies the floor to raw values, which makes most scalars plain "
        "averages. After edits, the weights are still those of the unedited experts.",
    )
)
