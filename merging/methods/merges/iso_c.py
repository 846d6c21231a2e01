"""Iso-C: the sum of the task vectors with all its singular values made equal."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics import flops
from merging.base.numerics.linear_algebra import move_to_float64_device, polar_factor
from merging.methods.method import Merge, register
from merging.methods.params import Params
from merging.methods.shared import citations, fields
from merging.methods.shared.singular_vectors import MATRICES, is_decomposed, matrices_to_decompose
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class IsoCParams(Params):
    """The parameters of Iso-C."""

    scaling: float = fields.scaling(
        1.5, (0.0, 3.0), step=0.1, advice="The best value falls as the number of experts grows."
    )
    split_qkv: bool = fields.split_qkv()


def iso_c(slot: Slot, params: IsoCParams, statistics: None) -> Tensor:
    """The sum with a flat spectrum, (K, m, n) -> (m, n); the mean (*S) for tensors that are not decomposed."""
    if not is_decomposed(slot):
        return params.scaling * slot.task_vectors.mean(dim=0)
    vectors, restore = matrices_to_decompose(slot)  # smaller ones for known low-rank factors; ``restore`` expands
    total = move_to_float64_device(vectors).sum(dim=0)
    frame = polar_factor(total)
    # The mean singular value; <polar(M), M> is the sum of the singular values of M.
    level = (frame * total).sum(dtype=torch.float64) / max(min(slot.pretrained.shape), 1)
    return restore(params.scaling * level.to(frame) * frame).to(slot.task_vectors)


register(
    Merge(
        key="iso_c",
        title="Iso-C",
        summary="Sums the task vectors and makes all singular values of each matrix equal to their mean.",
        formula=r"\theta = \theta_0 + \lambda\, \bar\sigma\, U V^\top, \quad "
        r"\sum_k \tau_k = U\, \mathrm{diag}(\sigma)\, V^\top",
        cite=citations.ISOTROPIC,
        params=IsoCParams,
        elementwise=lambda params, parameter: parameter.role not in MATRICES,
        run=iso_c,
        in_factors=True,
        algebra=lambda params, matrix: flops.polar(matrix.outputs, matrix.inputs),
        variant="Applies to every two-dimensional tensor in its stored orientation, including the positional embedding "
        "and the projection; attention's q, k and v are one matrix unless split_qkv is on, which gives another result. "
        "Other tensors are the mean of the task vectors. Null directions stay null; published code raises arbitrary "
        "ones. The authors choose the scaling on validation data; 1.5 is the only fixed value with a published result "
        "for eight tasks.",
    )
)
