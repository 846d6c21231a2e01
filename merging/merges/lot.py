"""LOT: per layer, the task vector that drifts least from every expert's output on its own exemplars."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.families import Role
from merging.merges.task_arithmetic import SCALING_HELP
from merging.method import Citation, Merge, Needs, Slot, register
from merging.params import Params, real

EPS_FLOAT32 = 2.0**-23  # the published call inverts in float32; its cut-off is reproduced, its rounding is not


@dataclass(frozen=True, kw_only=True)
class LotParams(Params):
    """What can be set."""

    scaling: float = real(
        1.2,
        low=0.0,
        high=1000.0,
        slider=(0.5, 2.0),
        step=0.05,
        symbol=r"\lambda",
        label="Scaling coefficient",
        help=SCALING_HELP,
    )
    rtol: float | None = real(
        None,
        low=0.0,
        high=1.0,
        optional=True,
        unset="d · 2⁻²³ for d inputs",
        slider=(0.0, 0.01),
        step=0.0001,
        symbol=r"\epsilon",
        label="Relative cut-off",
        help="Directions whose share of the inputs' energy is below this fraction of the largest are left alone.",
    )


def lot(slot: Slot, params: LotParams, found: None) -> Tensor:
    """The drift-minimizing task vector, (K, *S) -> (*S); the mean where no rows enter the tensor."""
    if slot.inputs is None:
        merged = slot.task_vectors.mean(dim=0)
    elif slot.role == Role.NORM_SCALE:
        merged = _weighted(slot)
    elif slot.role == Role.PROJECTION:  # stored (d_in, d_out)
        merged = _least_drift(slot.inputs, slot.task_vectors, params.rtol)
    else:
        columns = slot.task_vectors.flatten(2).transpose(1, 2)
        merged = _least_drift(slot.inputs, columns, params.rtol).T.reshape(slot.pretrained.shape)
    return params.scaling * merged


def _weighted(slot: Slot) -> Tensor:
    """Per channel, the mean weighted by each task's energy of the normalized input: (K, d) -> (d,)."""
    energy = torch.stack([rows.double().square().sum(dim=0) for rows in slot.inputs or ()])
    total = energy.sum(dim=0).clamp(min=1e-10)
    return ((energy * slot.task_vectors.double()).sum(dim=0) / total).to(slot.task_vectors.dtype)


def _least_drift(inputs: tuple[Tensor, ...], columns: Tensor, rtol: float | None) -> Tensor:
    """The pseudo-inverse solution (Σ G_k)⁺ Σ G_k T_k in float64: rows (n, d_in), columns (K, d_in, d_out)."""
    width = columns.shape[1]
    grams = [rows.double().T @ rows.double() for rows in inputs]
    target = torch.stack([gram @ column.double() for gram, column in zip(grams, columns, strict=True)]).sum(dim=0)
    values, vectors = torch.linalg.eigh(torch.stack(grams).sum(dim=0))
    kept = values > (width * EPS_FLOAT32 if rtol is None else rtol) * values[-1]
    basis = vectors[:, kept]
    solution: Tensor = basis @ ((basis.T @ target) / values[kept, None])
    return solution.to(columns.dtype)


register(
    Merge(
        key="lot",
        title="LOT",
        summary="Solves, per layer, for the task vector whose outputs drift least from the experts' on exemplars.",
        formula=r"T^* = \Big(\sum_k X_k^\top X_k\Big)^{+} \sum_k X_k^\top X_k T_k, \quad "
        r"\theta = \theta_0 + \lambda T^*",
        cite=Citation(
            key="lot2025",
            authors="Sun et al.",
            title="Towards minimizing feature drift in model merging: layer-wise task vector fusion for adaptive "
            "knowledge integration",
            venue="NeurIPS",
            year=2025,
        ),
        params=LotParams,
        needs=Needs.EXEMPLARS,
        run=lot,
        variant="Float64 eigen-decomposition with the cut-off of the published float32 pseudo-inverse. Tensors without "
        "inputs (shifts, embeddings) take the mean. Features come from each expert at full strength.",
    )
)
