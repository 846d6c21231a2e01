"""LOT: per layer, the task vector whose outputs drift least from every expert's outputs on its exemplars."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, eigen, gram_products, product
from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.methods.method import Citation, Merge, Needs, register
from merging.methods.moments import Moments
from merging.methods.params import Params, real
from merging.methods.shared import fields
from merging.methods.shared.least_squares import as_matrices, least_squares, to_stored_layout
from merging.methods.slot import Slot
from merging.models.families import ROWWISE_ROLES, WEIGHT_ROLES, Role

EPS_FLOAT32 = 2.0**-23  # the published code inverts in float32; this reproduces its cut-off, not its rounding
MIN_ENERGY = 1e-10  # sum of squares of a channel's inputs, up to which the channel counts as unused


@dataclass(frozen=True, kw_only=True)
class LotParams(Params):
    """The parameters of LOT."""

    scaling: float = fields.scaling(1.2, (0.5, 2.0))
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
        help="Directions with less of the inputs' energy than this fraction of the largest direction stay pretrained.",
    )


def lot(slot: Slot, params: LotParams, statistics: None) -> Tensor:
    """The task vector of least drift, (K, *S) -> (*S); the mean if no rows enter the tensor."""
    inputs = slot.inputs
    if inputs is None:
        merged = slot.task_vectors.mean(dim=0)
    elif slot.role == Role.NORM_SCALE:
        merged = _weighted_mean(slot, inputs)
    else:
        merged = _least_drift(slot, inputs, params.rtol)
    return params.scaling * merged


def _weighted_mean(slot: Slot, inputs: tuple[Moments, ...]) -> Tensor:
    """Per channel, the mean weighted by the sum of squares of each task's normalized inputs: (K, d) -> (d,)."""
    energy = torch.stack([moments.energy() for moments in inputs])
    vectors = to_float64(slot.task_vectors)
    total = energy.sum(dim=0)
    merged = (energy * vectors).sum(dim=0) / total.clamp(min=MIN_ENERGY)

    def compute_drift(scale: Tensor) -> float:
        return float((energy * (scale - vectors).square()).sum().cpu())

    used = total[total > MIN_ENERGY]
    drift, drift_mean, drift_zero = map(compute_drift, (merged, vectors.mean(dim=0), torch.zeros_like(merged)))
    _note_solution(slot, inputs, used, total, (drift, drift_mean, drift_zero))
    return merged.to(slot.task_vectors)


def _least_drift(slot: Slot, inputs: tuple[Moments, ...], rtol: float | None) -> Tensor:
    """The pseudo-inverse solution (Σ G_k)⁺ Σ G_k T_k in float64: (K, *S) -> (*S)."""
    regression = least_squares(slot, inputs)
    values, vectors = regression.spectrum()
    largest = values[-1]  # the values ascend
    above_cutoff = values > (inputs[0].width * EPS_FLOAT32 if rtol is None else rtol) * largest
    used = values[above_cutoff]
    solution = regression.solution(used, vectors[:, above_cutoff])
    mean = to_float64(as_matrices(slot).mean(dim=0)).T
    drifts = regression.least_value(solution), regression.value(mean), regression.zero_value
    _note_solution(slot, inputs, used, values, drifts)
    return to_stored_layout(solution.T.to(slot.task_vectors), slot)


def _note_solution(
    slot: Slot, inputs: tuple[Moments, ...], used: Tensor, values: Tensor, drifts: tuple[float, float, float]
) -> None:
    """Note a row of the table "lot": the used part of the inputs' spectrum, and the objective Σ_k ‖X_k (T - T_k)‖².

    ``values`` (d,) are the eigenvalues, ``used`` (r,) those that exceed the cut-off. ``drifts`` are the objective for
    the solution (before ``scaling``), for the mean task vector, and for zero (the pretrained weights).
    """
    trace, largest, used_trace = to_numbers(values.sum(), values.max(), used.sum())
    slot.note(
        "lot",
        rows=sum(moments.count for moments in inputs),
        width=inputs[0].width,
        directions=len(used),
        trace_kept=used_trace / trace if trace else 0.0,
        smallest=float(used.min().cpu()) / largest if len(used) else math.nan,
        **dict(zip(("drift", "drift_mean", "drift_zero"), drifts, strict=True)),
    )


def _algebra(params: LotParams, matrix: LinearMap) -> float:
    rows = matrix.tasks * matrix.rows
    side = min(rows, matrix.inputs)  # of the smaller Gram matrix, X Xᵀ or XᵀX
    solving = 3 * product(matrix.outputs, side, matrix.inputs)  # includes the drift of the mean for the table
    products = product(matrix.outputs, rows, matrix.inputs) if rows < matrix.inputs else gram_products(matrix)
    return products + eigen(side) + solving


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
        elementwise=lambda params, parameter: parameter.role in ROWWISE_ROLES,
        needs=Needs.EXEMPLARS,
        run=lot,
        algebra=_algebra,
        algebra_on=WEIGHT_ROLES,
        variant="Float64 eigen-decomposition with the cut-off of the published float32 pseudo-inverse. Tensors without "
        "inputs (shifts, embeddings) are the mean. Features come from each unscaled expert.",
    )
)
