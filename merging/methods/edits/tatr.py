"""TATR: keep the pretrained values of the scalars at which one task's change would hurt the others most."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64
from merging.methods.method import Citation, Edit, Needs, register
from merging.methods.params import Params, choice, fraction
from merging.methods.shared.trimming import kth_smallest_of_slots
from merging.methods.slot import Gradients, Slot, SlotStream, Survey


@dataclass(frozen=True, kw_only=True)
class TatrParams(Params):
    """The parameters of TATR."""

    keep: float = fraction(
        0.99,
        slider=(0.8, 1.0),
        step=0.005,
        symbol=r"\rho",
        label="Share kept",
        help="Share of all scalars in the trust region; the others, with the most conflict, stay pretrained.",
    )
    sensitivity: str = choice(
        "gradient",
        "magnitude",
        label="Sensitivity",
        help="How sensitive a task is to a scalar: by the gradients of its loss on labeled exemplars, or by the "
        "absolute values of its own task vector, which need no data.",
    )


def _uses_gradients(params: TatrParams) -> bool:
    return params.sensitivity == "gradient" and params.keep < 1.0


def conflict(slot: Slot, params: TatrParams) -> Tensor:
    """The conflict (*S) of every scalar, in float64: each task's sensitivity times the other tasks' changes.

    It is summed expert by expert, so that a piece of a tensor gives the same bits as the whole tensor.
    """
    sensitivities = slot.gradients[Gradients.SENSITIVITY] if _uses_gradients(params) else slot.task_vectors
    all_sensitivity = torch.zeros_like(to_float64(slot.pretrained))
    all_changes, own_products = torch.zeros_like(all_sensitivity), torch.zeros_like(all_sensitivity)
    for row, vector in zip(sensitivities, slot.task_vectors, strict=True):
        sensitivity, change = to_float64(row).abs(), to_float64(vector).abs()
        all_sensitivity += sensitivity
        all_changes += change
        own_products += sensitivity * change
    return (all_sensitivity * all_changes - own_products).clamp(min=0.0)


def survey(slots: SlotStream, params: TatrParams) -> Survey:
    """The conflict below which scalars are in the trust region; None if one expert leaves nothing to mask."""
    import pandas as pd

    if len(slots.experts) == 1:
        return Survey(None)

    def flat_conflict(slot: Slot) -> Tensor:
        return conflict(slot, params).reshape(1, -1)

    numel = slots.numel + slots.dead_numel  # with the zeros of an unused text tower, if the recipe counts them
    rank = int(numel * params.keep) - 1
    threshold = -1.0  # below every conflict: nothing is kept
    if rank >= 0:
        (threshold,) = kth_smallest_of_slots(slots, flat_conflict, [rank])
    table = pd.DataFrame({"threshold": [threshold], "numel": [numel], "keep": [params.keep]})
    # If so many scalars have no conflict that the threshold is zero, all scalars without conflict are kept.
    return Survey(threshold or sys.float_info.min, {"trust_region": table})


def trust_region(slot: Slot, params: TatrParams, threshold: float | None) -> Tensor | None:
    """The mask (*S) of the trust region; None if it contains every scalar."""
    return None if threshold is None else (conflict(slot, params) < threshold).to(slot.pretrained.device)


def tatr(slot: Slot, params: TatrParams, threshold: float | None) -> Tensor:
    """Task vectors with all scalars outside the trust region set to zero, (K, *S) -> (K, *S)."""
    mask = trust_region(slot, params, threshold)
    return slot.task_vectors if mask is None else slot.task_vectors * mask


register(
    Edit(
        key="tatr",
        title="TATR",
        summary="Keeps the pretrained value of the scalars at which the tasks conflict most, for all experts.",
        formula=r"\Omega = \sum_{i \neq j} \frac1n \sum_x \big|\nabla \ell_i(x; \theta_0)\big| \odot |\tau_j|, \quad "
        r"\tau_k \leftarrow \tau_k \odot [\,\Omega < \Omega_{(\lfloor \rho P \rfloor)}\,]",
        cite=Citation(
            key="sun2025task",
            authors="Sun et al.",
            title="Task arithmetic in trust region: a training-free model merging approach to navigate knowledge "
            "conflicts",
            venue="ICLR",
            year=2025,
            arxiv="2501.15065",
        ),
        params=TatrParams,
        needs=Needs.LABELED_EXEMPLARS,
        needs_when=_uses_gradients,
        gradients=Gradients.SENSITIVITY,
        run=tatr,
        survey=survey,
        survey_when=lambda params: params.keep < 1.0,
        survey_passes=2,
        kept=trust_region,
        elementwise=lambda params, parameter: True,
        variant="The absolute value is taken per exemplar, and one threshold applies to all tensors. With one expert "
        "nothing conflicts and everything is kept, although the literal rule would keep nothing; the same holds for "
        "scalars without conflict if the threshold is zero. Before TIES, the mask uses the untrimmed task vectors.",
    )
)
