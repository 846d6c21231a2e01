"""CAT: remove from every task vector the few directions in which it disturbs another task most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, eigen, product, symmetric_product
from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.methods.method import Citation, Edit, Needs, register
from merging.methods.params import Params, choice, integer, real
from merging.methods.shared import fields
from merging.methods.shared.cat_conflicts import (
    Conflict,
    LinearConflicts,
    ScalarConflicts,
    join_conflicts,
    mean_squares,
)
from merging.methods.shared.least_squares import as_matrices, to_stored_layout
from merging.methods.slot import Slot, SlotStream, Survey
from merging.models.families import ROWWISE_ROLES, WEIGHT_ROLES, Role

SEQUENTIAL = "sequential"
SCALAR_ROLES = {Role.SHIFT, Role.EMBEDDING, Role.NORM_SCALE}  # tensors of these roles act scalar by scalar
COMPONENTS_BOUND = {"low": 0, "high": 100_000, "slider": (0, 64)}
TRADEOFF_BOUND = {"low": 0.0, "high": 1e12, "slider": (0.0, 20.0), "step": 0.5}


@dataclass(frozen=True, kw_only=True)
class CatParams(Params):
    """The parameters of CAT."""

    components: int = integer(
        4,
        **COMPONENTS_BOUND,
        symbol="c",
        label="Components",
        help="Output directions dropped from each matrix, per other task.",
    )
    tradeoff: float = real(
        5.0,
        **TRADEOFF_BOUND,
        symbol=r"\alpha",
        label="Trade-off",
        help="Weight of a direction's use to its own task relative to its harm.",
    )
    norm_components: int = integer(
        4,
        **COMPONENTS_BOUND,
        symbol="c_s",
        label="Norm components",
        help="Entries dropped from each norm scale, per other task.",
    )
    norm_tradeoff: float = real(
        10.0, **TRADEOFF_BOUND, symbol=r"\beta", label="Norm trade-off", help="The trade-off for norm scales."
    )
    shift_components: int = integer(
        4,
        **COMPONENTS_BOUND,
        symbol="c_b",
        label="Shift components",
        help="Entries dropped from each shift and embedding, per other task.",
    )
    mode: str = choice(
        "joint", SEQUENTIAL, label="Order", help="Drop the directions of all tasks at once, or task by task in turn."
    )
    split_qkv: bool = fields.split_qkv()


Conflicts = dict[str, tuple[Conflict, ...]]  # tensor -> each task's conflict with the others' vectors
Objective = LinearConflicts | ScalarConflicts


def survey(slots: SlotStream, params: CatParams) -> Survey:
    """Every task's conflict with the other tasks' vectors, per tensor."""
    if len(slots.experts) == 1:
        return Survey({}, warnings=("cat with one expert changes nothing: there is no other task to disturb.",))
    return Survey(dict(pair for pair in slots.map(partial(_find_conflicts, params=params)) if pair is not None))


def _find_conflicts(slot: Slot, params: CatParams) -> tuple[str, tuple[Conflict, ...]] | None:
    """A tensor's name, and every task's conflict in it; None leaves the tensor unchanged."""
    objective = _choose_objective(slot, params)
    return None if objective is None else (slot.name, tuple(_list_conflicts(slot, params.mode, *objective)))


def _choose_objective(slot: Slot, params: CatParams) -> tuple[Callable[[Tensor], Objective], int] | None:
    """The objective as a function of task vectors, and the number of components; None leaves a tensor unchanged."""
    if slot.role in {Role.SHIFT, Role.EMBEDDING}:
        return (lambda vectors: ScalarConflicts(vectors, None)), params.shift_components
    count = params.norm_components if slot.role == Role.NORM_SCALE else params.components
    inputs = slot.inputs if count else None
    if inputs is None:
        return None
    if slot.role == Role.NORM_SCALE:
        energies = mean_squares(inputs)
        return (lambda vectors: ScalarConflicts(vectors, energies, params.norm_tradeoff)), count
    return (lambda vectors: LinearConflicts(vectors, inputs, params.tradeoff)), count


def _list_conflicts(
    slot: Slot, mode: str, make_objective: Callable[[Tensor], Objective], count: int
) -> Iterator[Conflict]:
    """The conflict of every task, in order; in sequential mode, earlier conflicts are removed before later ones."""
    vectors = _as_matrices(slot, to_float64(slot.task_vectors))
    objective = make_objective(vectors)
    for task in range(len(vectors)):
        conflict = objective.find_top(task, count)
        yield conflict
        slot.report_share((task + 1) / len(vectors))
        if mode == SEQUENTIAL:
            vectors = torch.stack(
                [vector if i == task else conflict.remove_from(vector) for i, vector in enumerate(vectors)]
            )
            objective = make_objective(vectors)


def cat(slot: Slot, params: CatParams, statistics: Conflicts) -> Tensor:
    """Task vectors without the other tasks' conflicts, (K, *S) -> (K, *S)."""
    if (conflicts := statistics.get(slot.name)) is None:
        return slot.task_vectors
    trimmed = []
    for i, vector in enumerate(_as_matrices(slot, slot.task_vectors)):
        other_conflicts, cleared = [conflict for k, conflict in enumerate(conflicts) if k != i], vector
        for conflict in other_conflicts if params.mode == SEQUENTIAL else [join_conflicts(other_conflicts)]:
            cleared = conflict.remove_from(cleared)
        trimmed.append(cleared)
        _note_removal(slot, slot.experts[i], conflicts[i], vector, cleared)
    stack = torch.stack(trimmed)
    return stack.reshape_as(slot.task_vectors) if slot.role in SCALAR_ROLES else to_stored_layout(stack, slot)


def _as_matrices(slot: Slot, vectors: Tensor) -> Tensor:
    """Task vectors (K, *S) as matrices (K, d_out, d_in), or flat (K, n) for roles that act scalar by scalar."""
    return vectors.flatten(1) if slot.role in SCALAR_ROLES else as_matrices(slot, vectors)


def _note_removal(slot: Slot, expert: str, conflict: Conflict, before: Tensor, after: Tensor) -> None:
    """Note a row of the table "cat": the share of the squared norm that an expert loses, and its task's conflict.

    ``conflicts`` counts the directions or scalars of the conflict; the other columns are the sum of their scores and
    the largest score.
    """
    norm_before, norm_after, score_sum = to_numbers(
        *(torch.linalg.vector_norm(to_float64(vector)) for vector in (before, after)), conflict.scores.sum()
    )
    removed, scores = 1 - (norm_after / norm_before) ** 2 if norm_before else 0.0, conflict.scores.cpu()
    columns = {
        "conflicts": len(scores),
        "conflict_sum": score_sum,
        "conflict_top": max(scores.tolist(), default=0.0),
    }
    slot.note("cat", expert=expert, removed=removed, **columns)


def _algebra(params: CatParams, matrix: LinearMap) -> float:
    rows = min(matrix.rows, matrix.inputs)
    products = product(matrix.outputs, matrix.inputs, rows) + symmetric_product(matrix.outputs, rows)
    objective = matrix.tasks * products
    return (matrix.tasks + 1) * objective + matrix.tasks * eigen(matrix.outputs, params.components)


register(
    Edit(
        key="cat",
        title="CAT",
        summary="Removes from each task vector the directions that disturb other tasks more than they serve its own.",
        formula=r"B_k = \mathrm{eig}_c \sum_{i \neq k} \tau_i (X_k^\top X_k - \alpha X_i^\top X_i) \tau_i^\top, \quad "
        r"\tau_i \leftarrow \tau_i - \Pi_{B_k : k \neq i}\, \tau_i, \quad "
        r"g_k = \sum_{i \neq k} (\hat x_k^2 - \beta \hat x_i^2)\, \tau_i^2, \quad "
        r"\tau_i[\mathrm{top}_c\, g_k] \leftarrow 0 \;\; \forall k \neq i",
        cite=Citation(
            key="sun2025cat",
            authors="Sun et al.",
            title="CAT Merging: a training-free approach for resolving conflicts in model merging",
            venue="ICML",
            year=2025,
        ),
        params=CatParams,
        elementwise=lambda params, parameter: parameter.role in ROWWISE_ROLES,
        needs=Needs.EXEMPLARS,
        run=cat,
        algebra=_algebra,
        algebra_on=WEIGHT_ROLES,
        survey=survey,
        variant="Squared norms, as in the paper's derivation, not the unsquared ones of its Algorithm 1. Means over "
        "rows, so tasks may have different numbers of exemplars. Only positive conflicts count. By default, directions "
        "come from the untrimmed task vectors and one projection removes them all, so the order of tasks has no "
        "effect; sequential is Algorithm 1. Features come from each unscaled expert, and trimmed vectors are not "
        "rescaled. Embeddings follow the rule for shifts; a weight with unknown inputs is left unchanged.",
    )
)
