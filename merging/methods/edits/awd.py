"""AWD: subtract from every task vector one vector, chosen so that the results are as orthogonal as possible.

The redundant vector stays a combination of the task vectors in every step of the descent, so K coefficients and the
K × K matrix of inner products describe it fully: after one pass over the checkpoints, steps cost almost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from merging.base.numerics.flops import task_products
from merging.base.numerics.task_vector_overlap import Array, expert_cosines, overlap_gradient, overlap_loss
from merging.methods.method import Citation, Edit, register
from merging.methods.params import Params, integer, real
from merging.methods.slot import Slot, SlotStream, Survey
from merging.models.families import WEIGHT_ROLES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class AwdParams(Params):
    """The parameters of AWD."""

    penalty: float = real(
        0.1,
        low=0.0,
        high=1000.0,
        slider=(0.0, 1.0),
        step=0.01,
        symbol=r"\alpha",
        label="Penalty",
        help="Weight of the redundant vector's length in the loss, relative to the overlap of the task vectors.",
    )
    lr: float = real(
        0.01,
        low=0.0,
        high=1000.0,
        slider=(0.0, 0.1),
        step=0.001,
        symbol=r"\beta",
        label="Learning rate",
        help="Factor on the gradient in each step.",
    )
    steps: int = integer(
        300, low=0, high=10000, slider=(0, 1000), step=10, label="Steps", help="Gradient steps taken from zero."
    )


@dataclass(frozen=True)
class RedundantVector:
    """The redundant vector's coefficients (K,), and the experts from whose task vectors it is subtracted."""

    coefficients: tuple[float, ...]
    used_experts: tuple[float, ...]  # (K,): 1, or 0 for an expert that equals the pretrained model


def _compute_gram(slot: Slot) -> Tensor:
    """Inner products (K, K) of a slot's task vectors."""
    rows = slot.task_vectors.flatten(1).double()
    return (rows @ rows.T).cpu()


def survey(slots: SlotStream, params: AwdParams) -> Survey:
    """The redundant vector, from the inner products of all task vectors in float64."""
    total = torch.zeros(len(slots.experts), len(slots.experts), dtype=torch.float64)
    for slot_gram in slots.map(_compute_gram):
        total += slot_gram
    gram: Array = ((total + total.T) / 2).numpy()
    coefficients = np.zeros(len(gram))
    for _ in range(params.steps):
        coefficients = coefficients - params.lr * overlap_gradient(gram, coefficients, params.penalty)
    first, last = (overlap_loss(gram, vector, params.penalty) for vector in (np.zeros(len(gram)), coefficients))
    warnings = (f"awd raised its loss from {first:.4g} to {last:.4g}; lower lr.",) if last > first else ()
    used = (gram.diagonal() > 0).astype(float)
    return Survey(
        RedundantVector(tuple(coefficients.tolist()), tuple(used.tolist())),
        {"coefficients": _build_table(slots.experts, gram, coefficients, used)},
        warnings,
    )


def _build_table(experts: tuple[str, ...], gram: Array, coefficients: Array, used: Array) -> pd.DataFrame:
    """Per expert, its coefficient in the redundant vector and its weight in the sum of the edited task vectors.

    The last columns are its mean overlap with the other experts, |cosine|, before and after the edit.
    """
    import pandas as pd

    pairs = np.maximum(used.sum() - 1, 1)  # of one expert with the others
    before, after = (
        np.abs(expert_cosines(gram, vector)[0]).sum(axis=1) / pairs for vector in (np.zeros(len(gram)), coefficients)
    )
    return pd.DataFrame(
        {
            "expert": experts,
            "norm": np.sqrt(gram.diagonal()),
            "coefficient": coefficients,
            "weight": 1 - used.sum() * coefficients,
            "overlap_before": before,
            "overlap_after": after,
        }
    )


def awd(slot: Slot, params: AwdParams, statistics: RedundantVector) -> Tensor:
    """Task vectors minus the redundant vector, (K, *S) -> (K, *S)."""
    if not any(statistics.coefficients):
        return slot.task_vectors
    coefficients, used = (
        slot.task_vectors.new_tensor(values) for values in (statistics.coefficients, statistics.used_experts)
    )
    redundant = torch.tensordot(coefficients, slot.task_vectors, dims=1)
    edited: Tensor = slot.task_vectors - used.reshape(-1, *[1] * redundant.dim()) * redundant
    return edited


register(
    Edit(
        key="awd",
        title="AWD",
        summary="Subtracts one redundant vector from every task vector, chosen so that the results overlap least.",
        formula=r"\tau_k \leftarrow \tau_k - \delta, \quad \delta \leftarrow \delta - \beta \nabla_\delta \Big("
        r"\frac{1}{K(K-1)} \sum_{i \ne j} |\cos(\tau_i - \delta, \tau_j - \delta)| + \alpha \lVert \delta \rVert\Big)",
        cite=Citation(
            key="xiong2024awd",
            authors="Xiong et al.",
            title="Multi-task model merging via adaptive weight disentanglement",
            venue="arXiv preprint",
            year=2024,
            arxiv="2411.18729",
        ),
        params=AwdParams,
        run=awd,
        survey=survey,
        survey_passes=1,
        algebra=lambda params, matrix: task_products(matrix),
        algebra_on=WEIGHT_ROLES,
        elementwise=lambda params, parameter: True,
        variant="Plain gradient descent from zero in float64, over all tensors at once; an adaptive optimizer would "
        "give another vector. Before task arithmetic it is exactly a weight per expert. Experts equal to the "
        "pretrained model are left out.",
    )
)
