"""EMR-Merging: one unified task vector, and per task a mask and a rescaler that adapt it."""

from __future__ import annotations

import torch
from torch import Tensor

from merging.base.files.tables import Columns
from merging.methods.method import Citation, Merge, register
from merging.methods.params import NoParams
from merging.methods.slot import Slot, SlotStream, Survey

Rescalers = tuple[float, ...]  # per expert


def _mask_unified(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The sizes (K, *S) of the unified task vector where each task has its sign, zero elsewhere; and the sign (*S)."""
    sign = vectors.sum(dim=0).sign_()
    sign.sub_(1 - sign.abs())  # zero becomes minus; six times as fast as torch.where
    agreeing = (vectors * sign).relu_()
    largest = agreeing.amax(dim=0)
    return agreeing.sign_().mul_(largest), sign


def _l1_norms(slot: Slot) -> tuple[Tensor, Tensor]:
    """The L1 norms (K,) of a slot's task vectors, and (K,) of the masked unified vectors."""
    vectors = slot.task_vectors.flatten(1)
    unified, _ = _mask_unified(vectors)
    norms = (sizes.sum(dim=1, dtype=torch.float64).cpu() for sizes in (vectors.abs(), unified))
    vector_norms, unified_norms = norms
    return vector_norms, unified_norms


def survey(slots: SlotStream, params: NoParams) -> Survey:
    """Per expert, the rescaler that gives its masked unified vector the L1 norm of its task vector."""
    vector_norms = torch.zeros(len(slots.experts), dtype=torch.float64)
    unified_norms = torch.zeros_like(vector_norms)
    for slot_vector_norms, slot_unified_norms in slots.map(_l1_norms):
        vector_norms += slot_vector_norms
        unified_norms += slot_unified_norms
    ratios = torch.where(unified_norms > 0, vector_norms / unified_norms, 0.0)  # an empty mask has nothing to rescale
    rescalers: Rescalers = tuple(ratios.tolist())
    rows = {
        "expert": slots.experts,
        "rescaler": rescalers,
        "task_vector_l1": vector_norms.tolist(),
        "masked_l1": unified_norms.tolist(),
    }
    return Survey(rescalers, {"rescalers": Columns(rows)})


def emr(slot: Slot, params: NoParams, rescalers: Rescalers) -> Tensor:
    """Each task's masked and rescaled unified vector, (K, *S) -> (K, *S)."""
    sizes, sign = _mask_unified(slot.task_vectors)
    return sizes.mul_(sign).mul_(sizes.new_tensor(rescalers).reshape(-1, *[1] * sign.dim()))


register(
    Merge(
        key="emr",
        title="EMR-Merging",
        summary="Unifies the task vectors by elected sign and largest size, then gives every task its own mask and "
        "rescaler: one model per task.",
        formula=r"\theta_k = \theta_0 + r_k\, m_k \odot \tau, \quad "
        r"\tau = \gamma \odot \max_{k : \tau_k \gamma > 0} |\tau_k|, \quad \gamma = \mathrm{sign} \sum_k \tau_k, \quad "
        r"m_k = [\,\tau_k \odot \gamma > 0\,], \quad "
        r"r_k = \frac{\lVert \tau_k \rVert_1}{\lVert m_k \odot \tau \rVert_1}",
        cite=Citation(
            key="huang2024emr",
            authors="Huang et al.",
            title="EMR-Merging: tuning-free high-performance model merging",
            venue="NeurIPS",
            year=2024,
            arxiv="2405.17461",
        ),
        run=emr,
        survey=survey,
        per_task=True,
        elementwise=lambda params, parameter: True,
        variant="Needs the task at inference: it stores one unified vector, and a bit per scalar and one rescaler per "
        "task. The rescaler is one ratio over the whole model, as in the paper (one published script sums per-tensor "
        "means). The sign of an exactly zero sum is minus.",
    )
)
