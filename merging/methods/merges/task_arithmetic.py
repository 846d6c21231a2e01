"""Task arithmetic: the scaled sum of task vectors."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.methods.method import Merge, register
from merging.methods.params import Params
from merging.methods.shared import citations, fields
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class TaskArithmeticParams(Params):
    """The parameters of task arithmetic."""

    scaling: float = fields.scaling(0.3, (0.0, 1.0))


def task_arithmetic(slot: Slot, params: TaskArithmeticParams, statistics: None) -> Tensor:
    """The scaled sum of the task vectors, (K, *S) -> (*S)."""
    return params.scaling * slot.task_vectors.sum(dim=0)


register(
    Merge(
        key="task_arithmetic",
        title="Task Arithmetic",
        summary="Adds the scaled sum of the task vectors to the pretrained weights.",
        formula=r"\theta = \theta_0 + \lambda \sum_k \tau_k",
        cite=citations.TASK_ARITHMETIC,
        params=TaskArithmeticParams,
        run=task_arithmetic,
        elementwise=lambda params, parameter: True,
        variant="One coefficient for all tasks; 0.3 is the published value for eight tasks.",
    )
)
