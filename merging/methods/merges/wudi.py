"""WUDI: the sum of the task vectors, changed by Adam to interfere less with each task's input subspace."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, product, symmetric_product
from merging.base.numerics.linear_algebra import fill_symmetric, lower_gram, to_float64
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, choice, integer, real
from merging.methods.shared import fields
from merging.methods.slot import Slot
from merging.models.families import Role

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8  # fixed, as in the authors' code
REPORT_INTERVAL = 5  # steps between reports of progress


@dataclass(frozen=True, kw_only=True)
class WudiParams(Params):
    """The parameters of WUDI."""

    steps: int = integer(
        300,
        low=0,
        high=100_000,
        slider=(100, 1000),
        step=50,
        label="Steps",
        help="Adam steps per layer; 0 gives the sum.",
    )
    lr: float = real(
        1e-5,
        low=0.0,
        high=1.0,
        open_low=True,
        slider=(1e-6, 1e-4),
        step=1e-6,
        symbol=r"\eta",
        label="Learning rate",
        help="About how far one step moves each weight, whatever its scale.",
    )
    scaling: float = fields.scaling(1.0, (0.0, 2.0))
    others: str = choice(
        "pretrained",
        "mean",
        label="Other tensors",
        help="Tensors other than linear weights stay pretrained or are averaged.",
    )
    split_qkv: bool = fields.split_qkv()


def wudi(slot: Slot, params: WudiParams, statistics: None) -> Tensor:
    """The optimized task vector of a linear weight, (K, m, n) -> (m, n); zero or the mean (*S) for other tensors."""
    vectors = slot.task_vectors
    if slot.role != Role.LINEAR:
        merged = torch.zeros_like(slot.pretrained) if params.others == "pretrained" else vectors.mean(dim=0)
    elif int(vectors.flatten(1).any(dim=1).sum().cpu()) <= 1:
        merged = vectors.sum(dim=0)  # is already the optimum, around which Adam would oscillate
    else:
        merged = _optimize(slot, params)
    return params.scaling * merged


def _optimize(slot: Slot, params: WudiParams) -> Tensor:
    """The result (m, n) of Adam on Σ ‖(X − τ_k) τ_kᵀ‖² / ‖τ_k‖² from X = Σ τ_k; the gradient is 2 (X A − B)."""
    total, target = normal_equations(slot.task_vectors)
    merged = slot.task_vectors.sum(dim=0)
    mean, square = torch.zeros_like(merged), torch.zeros_like(merged)
    for step in range(1, params.steps + 1):
        gradient = torch.addmm(target, merged, total, beta=-2, alpha=2)
        mean.lerp_(gradient, 1 - ADAM_BETAS[0])
        square.mul_(ADAM_BETAS[1]).addcmul_(gradient, gradient, value=1 - ADAM_BETAS[1])
        size = (square / (1 - ADAM_BETAS[1] ** step)).sqrt_().add_(ADAM_EPS)
        merged.addcdiv_(mean, size, value=-params.lr / (1 - ADAM_BETAS[0] ** step))
        if step % REPORT_INTERVAL == 0:
            slot.report_share(step / params.steps)
    return merged


def normal_equations(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """A = Σ G_k (n, n) and B = Σ τ_k G_k (m, n) of vectors (K, m, n), with G_k = τ_kᵀ τ_k / ‖τ_k‖².

    Both are computed in float64, then rounded to the dtype of ``vectors``.
    """
    height, width = vectors.shape[1:]
    total, target = to_float64(vectors.new_zeros(width, width)), to_float64(torch.zeros_like(vectors[0]))
    for vector in vectors:
        exact = to_float64(vector)
        if energy := float(exact.square().sum().cpu()):
            gram = fill_symmetric(lower_gram(exact.T[None])) / energy
            total += gram
            target += fill_symmetric(lower_gram(exact[None])) @ (exact / energy) if height < width else exact @ gram
    return total.to(vectors), target.to(vectors)


def _algebra(params: WudiParams, matrix: LinearMap) -> float:
    outputs, inputs = matrix.outputs, matrix.inputs
    per_task = symmetric_product(inputs, outputs) + product(outputs, matrix.short, inputs)
    if outputs < inputs:
        per_task += symmetric_product(outputs, inputs)
    return matrix.tasks * per_task + params.steps * product(outputs, inputs, inputs)


register(
    Merge(
        key="wudi",
        title="WUDI",
        summary="Starts from the sum of the task vectors and takes Adam steps that reduce the tasks' interference.",
        formula=r"\theta = \theta_0 + \lambda X, \quad X \leftarrow \mathrm{Adam}_{\eta} \sum_k "
        r"\|(X - \tau_k)\, \tau_k^\top\|_F^2 / \|\tau_k\|_F^2, \quad X_0 = \sum_k \tau_k",
        cite=Citation(
            key="cheng2025wudi",
            authors="Cheng et al.",
            title="Whoever started the interference should end it: guiding data-free model merging via task vectors",
            venue="ICML",
            year=2025,
            arxiv="2503.08099",
        ),
        params=WudiParams,
        elementwise=lambda params, parameter: parameter.role != Role.LINEAR,
        run=wudi,
        algebra_on=frozenset({Role.LINEAR}),
        algebra=_algebra,
        variant="Applies to linear weights only, as the authors do; mergekit and FusionBench include other tensors, "
        "and FusionBench averages the remaining ones (here: others = mean). Norms are squared, as in the authors' "
        "released script. Attention's q, k and v are one matrix unless split_qkv is on. Steps run in the precision of "
        "the checkpoints (float64 or float32), with sums over tasks in float64. With at most one nonzero task vector "
        "nothing is optimized.",
    )
)
