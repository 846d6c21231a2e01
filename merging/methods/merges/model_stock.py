"""Model Stock: per tensor, a point between the pretrained weights and the experts' mean, by their agreement."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.files.tables import Columns
from merging.base.numerics.flops import task_products
from merging.base.numerics.linear_algebra import to_float64
from merging.methods.method import Citation, EarlierEdits, Merge, register
from merging.methods.params import Params, choice, flag, real
from merging.methods.shared import fields
from merging.methods.slot import Slot, SlotStream, Survey
from merging.models.families import WEIGHT_ROLES
from merging.models.task_checkpoints import group_by_task

EXPERTS, MEAN_OF_TASKS, SUM_OF_TASKS = "experts", "mean_of_tasks", "sum_of_tasks"
GRAM_PARTS = 4  # of a piece, whose products are in the task vectors' dtype: cosines lose no digit that counts
LEAST_DIVISOR = 1e-6  # of the coefficient; smaller ones count as 0
# Tensor -> the factor of each group's mean task vector: of all checkpoints together, or of each task's.
Coefficients = dict[str, list[float]]
MIXED = (
    "Model Stock took the checkpoints of all tasks as one group. To have a point for each task's own checkpoints, as "
    "its paper does, set across to mean_of_tasks or sum_of_tasks."
)


@dataclass(frozen=True, kw_only=True)
class ModelStockParams(Params):
    """The parameters of Model Stock."""

    across: str = choice(
        EXPERTS,
        MEAN_OF_TASKS,
        SUM_OF_TASKS,
        label="Across",
        help="Experts: one point for all checkpoints. Tasks: a point for the checkpoints of each task, which are then "
        "averaged, or summed as in task arithmetic.",
        later=True,
    )
    scaling: float = fields.scaling(0.3, (0.0, 1.0), when=("across", SUM_OF_TASKS), later=True)
    split_qkv: bool = fields.split_qkv()
    signed: bool = flag(
        False, later=True, label="Signed cosines",
        help="Let task vectors that oppose each other move the tensor away from the mean; off: as if orthogonal.",
    )  # fmt: skip
    least_norm: float = real(
        0.0, low=0.0, high=1000.0, later=True, label="Least product of norms",
        help="The product of two task vectors' norms counts as at least this, so that tiny ones count as orthogonal.",
    )  # fmt: skip


def survey(slots: SlotStream, params: ModelStockParams) -> Survey:
    """The coefficients of every tensor, from the Gram matrices of its task vectors."""
    experts = len(slots.experts)
    grams = {p.name: torch.zeros((experts, experts), dtype=torch.float64) for p in slots.parameters}
    for name, gram in slots.map(lambda slot: (slot.name, _compute_gram(slot))):
        grams[name] += gram
    tasks = group_by_task(slots.experts)
    groups = [list(range(experts))] if params.across == EXPERTS else list(tasks.values())
    numbered = [(number, rows) for number, rows in enumerate(groups) for _ in slots.parameters]
    parameters = list(slots.parameters) * len(groups)
    cosines = [
        mean_cosine(grams[p.name][rows][:, rows], params.least_norm)
        for p, (_, rows) in zip(parameters, numbered, strict=True)
    ]
    factors = [
        merge_coefficient(cosine, len(rows), params.signed) for cosine, (_, rows) in zip(cosines, numbered, strict=True)
    ]
    count = len(slots.parameters)
    coefficients = {p.name: factors[index::count] for index, p in enumerate(slots.parameters)}
    columns = {
        "tensor": [p.name for p in parameters],
        **({} if params.across == EXPERTS else {"task": [list(tasks)[number] for number, _ in numbered]}),
        "order": [p.order for p in parameters],
        "section": [p.section for p in parameters],
        "role": [str(p.role) for p in parameters],
        "part": [p.part for p in parameters],
        "numel": list(slots.numels) * len(groups),
        "cosine": cosines,
        "coefficient": factors,
    }
    warnings = (MIXED,) if params.across == EXPERTS and 1 < len(tasks) < experts else ()
    return Survey(coefficients, {"coefficients": Columns(columns)}, warnings)


def _compute_gram(slot: Slot) -> Tensor:
    """The Gram matrix (K, K) of a slot's task vectors: products of parts, added in float64, on the CPU."""
    parts = slot.task_vectors.flatten(1).chunk(GRAM_PARTS, dim=1)
    return torch.stack([to_float64(part @ part.T) for part in parts]).sum(dim=0).cpu()


def mean_cosine(gram: Tensor, least_norm: float = 0.0) -> float:
    """Mean cosine over the pairs of vectors with this Gram matrix (K, K); 1 if there is no pair.

    A zero vector counts as orthogonal to all others. Products of two norms count as at least ``least_norm``.
    """
    experts = len(gram)
    if experts == 1:
        return 1.0
    norms = gram.diagonal().sqrt()
    cosines = gram / torch.outer(norms, norms).clamp(min=least_norm)
    first, second = torch.triu_indices(experts, experts, offset=1)
    return float(cosines[first, second].nan_to_num(nan=0.0).mean())


def merge_coefficient(cosine: float, experts: int, signed: bool = False) -> float:
    """The position of the merged weights between the pretrained weights (0) and the experts' mean (1).

    ``signed`` admits negative cosines, and positions outside of [0, 1]; it is 0 where the formula divides by 0.
    """
    agreement = min(max(cosine, -1.0 if signed else 0.0), 1.0)
    divisor = 1 + (experts - 1) * agreement
    return experts * agreement / divisor if abs(divisor) >= LEAST_DIVISOR else 0.0


def model_stock(slot: Slot, params: ModelStockParams, coefficients: Coefficients) -> Tensor:
    """The mean task vector times the tensor's coefficient, or the mean or sum of those of tasks, (K, *S) -> (*S)."""
    factors = coefficients[slot.name]
    if params.across == EXPERTS:
        return factors[0] * slot.task_vectors.mean(dim=0)
    tasks = group_by_task(slot.experts).values()
    points = [factor * slot.task_vectors[rows].mean(dim=0) for factor, rows in zip(factors, tasks, strict=True)]
    total = torch.stack(points)
    return total.mean(dim=0) if params.across == MEAN_OF_TASKS else params.scaling * total.sum(dim=0)


def find_refusal(params: ModelStockParams, before: EarlierEdits) -> str:
    """The reason to refuse a random edit before this merge; empty if there is none."""
    if random_edits := sorted({"dare", "della", "random_mask"} & {key for key, _ in before}):
        return f"model_stock uses the angles between task vectors, which are random after {random_edits[0]}."
    return ""


register(
    Merge(
        key="model_stock",
        title="Model Stock",
        summary="Takes, per tensor, a point between the pretrained weights and the experts' mean: the less the task "
        "vectors align, the closer to pretrained.",
        formula=r"\theta = \theta_0 + \frac{K c}{1 + (K - 1)\, c}\, \bar\tau, \quad "
        r"c = \max\big(0,\; \mathrm{mean}_{i<j} \cos(\tau_i, \tau_j)\big)",
        cite=Citation(
            key="jang2024stock",
            authors="Jang et al.",
            title="Model Stock: all we need is just a few fine-tuned models",
            venue="ECCV",
            year=2024,
            arxiv="2403.19522",
        ),
        params=ModelStockParams,
        run=model_stock,
        algebra=lambda params, matrix: task_products(matrix),
        algebra_on=WEIGHT_ROLES,
        survey=survey,
        refuses=find_refusal,
        elementwise=lambda params, parameter: True,
        several_checkpoints=True,
        variant="By default cross-task Model Stock: the paper merges several runs of one task, whose task vectors "
        "align. Those of different tasks are nearly orthogonal, so the result is weight averaging scaled down tensor "
        "by tensor. With across, each task's own checkpoints are merged as in the paper, and then the tasks; LwPTV's "
        "table has sum_of_tasks with two runs of each. A task with one checkpoint is unchanged. "
        "Cosines are averaged over pairs (some code averages angles), and a negative mean counts as 0 by default "
        "(mergekit: signed, with 1e-6 as the least product of norms). A zero task vector counts as orthogonal to the "
        "others. A single expert is unchanged.",
    )
)
