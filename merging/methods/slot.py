"""The data that a method sees: one tensor of the pretrained model with the task vectors of all experts.

A task vector is an expert's tensor minus the pretrained one. A survey is a pass of a method over all tensors before the
merge, for statistics that one tensor does not show, such as a threshold over the whole model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from merging.models.families import Parameter, Role

if TYPE_CHECKING:
    from torch import Tensor

    from merging.base.files.tables import Table
    from merging.base.numerics.low_rank import LowRank
    from merging.methods.moments import Moments

T = TypeVar("T")


class Gradients(StrEnum):
    """Statistics of the gradients of a task's loss, one number per weight: means over gradients of single exemplars."""

    FISHER = "squared gradients of each expert's loss, labels drawn from its own prediction"
    SENSITIVITY = "absolute gradients of the pretrained model's loss, true labels"


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor as a method sees it; one flat piece of it if every step of the chain works scalar by scalar.

    ``pretrained`` is (*S); ``task_vectors`` is (K, *S), one row per expert in the order of ``experts``. Both are in the
    compute dtype, must not be changed in place, and are valid until the loop that yielded the slot continues. ``start``
    is the flat offset of a piece in its tensor, 0 for whole tensors. ``gradients`` (K, *S) are present for methods that
    declare them: row k is of task k's loss. ``factors`` has every task vector of a whole matrix as a product
    (d_out, d_in) of thin factors, if these are known; after an edit it is None.

    A method that takes long over one tensor calls ``report_share`` with the share of the tensor that is done, in
    [0, 1]: progress and cancellation depend on it, and it may raise Cancelled. With ``note`` a method adds a row to a
    table about the merged tensors: the arguments are the table's name, and the columns as keywords. Both calls work for
    whole tensors only, and notes are stored in the merging pass, not in surveys.
    """

    parameter: Parameter
    experts: tuple[str, ...]
    pretrained: Tensor
    task_vectors: Tensor
    start: int = 0
    read_inputs: Callable[[], tuple[Moments, ...] | None] = lambda: None
    report_share: Callable[[float], None] = lambda share: None
    note: Callable[..., None] = lambda table, **row: None
    gradients: Mapping[Gradients, Tensor] = field(default_factory=dict)
    factors: tuple[LowRank, ...] | None = None

    @property
    def inputs(self) -> tuple[Moments, ...] | None:
        """Moments of the rows that the network multiplies by this tensor, one per expert; None if there are none.

        Shifts and embeddings multiply no rows. Reading the property is slow: the exemplars run through the network.
        """
        return self.read_inputs()

    @property
    def name(self) -> str:
        """The tensor's name in the pretrained checkpoint."""
        return self.parameter.name

    @property
    def role(self) -> Role:
        """The tensor's role in the network."""
        return self.parameter.role

    @property
    def block(self) -> int | None:
        """Index of the residual block from 0, None outside the blocks."""
        return self.parameter.block

    def with_task_vectors(self, task_vectors: Tensor) -> Slot:
        """The same slot with edited task vectors (K, *S)."""
        return dataclasses.replace(self, task_vectors=task_vectors, factors=None)

    @property
    def small_factors(self) -> tuple[LowRank, ...] | None:
        """The factors if the sum of their ranks is below the matrix's shorter side, so that they save work."""
        if self.factors is None:
            return None
        (height, _), (_, width) = self.factors[0].up.shape, self.factors[0].down.shape
        return self.factors if sum(factor.rank for factor in self.factors) < min(height, width) else None


class SlotStream(Protocol):
    """All tensors for a survey, as the earlier steps of the chain leave them; every loop reads them again.

    ``map`` yields the results of a function on every slot, in the slots' order; it processes several tensors at once.
    ``sample_slots`` yields one in ``stride`` scalars of each expert, spread over all tensors, as flat slots, whose
    ``start`` says nothing.
    """

    @property
    def experts(self) -> tuple[str, ...]: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def numels(self) -> tuple[int, ...]: ...  # scalars per tensor, in the order of ``parameters``

    @property
    def numel(self) -> int: ...  # scalars per expert, over all tensors

    # Dead scalars and tensors are those of the unused text tower in a published image encoder; 0 unless the recipe
    # counts them in every global quantile. Their task vectors are exactly zero and are not streamed.
    @property
    def dead_numel(self) -> int: ...

    @property
    def dead_tensors(self) -> int: ...

    def __iter__(self) -> Iterator[Slot]: ...

    def map(self, work: Callable[[Slot], T]) -> Iterator[T]: ...

    def sample_slots(self, stride: int) -> Iterator[Slot]: ...


@dataclass(frozen=True, slots=True)
class ResultBeforeCount:
    """The result of a merge for a slot before a count over all tensors is complete, such as the votes of TIES.

    ``change`` (*S) is the merged task vector so far, ``count`` (a scalar) what the slot adds to the count, and
    ``final`` (a scalar) whether the change is the same for every possible count. Slots that are not final are merged
    again once the count is known.
    """

    change: Tensor
    count: Tensor
    final: Tensor


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a survey: ``statistics`` for the method itself, tables and warnings for the user."""

    statistics: Any
    tables: Mapping[str, Table] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
