"""The outputs of a merge: sinks for merged tensors, counts per tensor, and notes (rows of tables) of methods."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from merging.base.errors import MergingError
from merging.base.files.tables import Columns
from merging.base.numerics.finite import all_finite
from merging.base.numerics.linear_algebra import move_to_float64_device
from merging.engine.run_inputs import RunInputs
from merging.methods.slot import Slot
from merging.models.checkpoint import Checkpoint
from merging.models.tensor_info import dtype_name

if TYPE_CHECKING:
    import pandas as pd

MERGED = "merged"  # the name of a merge's one output; merges per task name their outputs by expert
TENSOR_COLUMNS = ("tensor", "order", "section", "role", "part", "numel", "itemsize")  # that describe a tensor

HostTally = tuple[list[int], list[float]]  # the fields of a ``Tally`` as numbers
Rows = dict[str, list[dict[str, Any]]]  # by table


class Sink(Protocol):
    """Receives merged tensors, whole or in flat pieces; a piece that is written again replaces the earlier one."""

    def write(self, name: str, values: Tensor, start: int = 0) -> None:
        """Write ``values``, (*S) or flat (n,), from flat position ``start`` of a tensor."""
        ...


class MemorySink:
    """Collects a state dict."""

    def __init__(self, pretrained: Checkpoint) -> None:
        infos = pretrained.infos.items()
        self.state_dict = {name: torch.empty(info.shape, dtype=info.dtype) for name, info in infos}

    def write(self, name: str, values: Tensor, start: int = 0) -> None:
        """Write ``values``, (*S) or flat (n,), from flat position ``start`` of a tensor."""
        self.state_dict[name].reshape(-1)[start : start + values.numel()].copy_(values.reshape(-1))


@dataclass(frozen=True)
class Tally:
    """Counts and squared norms of one tensor or piece: a number for each merged model, and one more.

    They stay on the device, because copying them to the host would wait for the device at every tensor.
    """

    kept: Tensor  # (models + 1,): the number of scalars that each model changes, then that any model changes
    squared: Tensor  # (models + 1,): the squared norm of each model's change, then of the pretrained weights

    @classmethod
    def from_slot(cls, slot: Slot, changes: list[Tensor]) -> Tally:
        """The tally of one slot, whole or a piece; ``changes`` has a change (*S) per merged model."""
        masks = [_find_nonzero(change) for change in changes]
        any_mask = reduce(torch.logical_or, masks)
        squared = [_squared_norm(values) for values in (*changes, slot.pretrained)]
        return cls(torch.stack([_count_true(mask) for mask in (*masks, any_mask)]), torch.stack(squared))


@dataclass(frozen=True)
class StoredSlot:
    """The result of one slot, whole or a piece: values (*S) of each merged model in the stored dtype, and counts."""

    name: str
    start: int
    values: list[Tensor]
    tally: Tally

    @property
    def span(self) -> tuple[int, int]:
        """The first flat scalar, and the one after the last."""
        return self.start, self.start + self.values[0].numel()


def merged_values(slot: Slot, change: Tensor, kept: Tensor | None) -> Tensor:
    """The merged tensor (*S), in the compute dtype: pretrained + ``change`` (*S), where the mask ``kept`` (*S) is true.

    ``kept`` is None if all scalars are kept.
    """
    values = slot.pretrained + change
    # Not ``pretrained + 0``, which would turn -0.0 into 0.0.
    return values if kept is None else torch.where(kept, values, slot.pretrained)


class Output:
    """Adds merged task vectors to the pretrained weights, passes them to sinks, and counts per tensor.

    ``prepare`` computes the values of a slot and may run in several threads; ``add`` writes them, one slot at a time.
    """

    def __init__(self, pretrained: Checkpoint, names: tuple[str, ...], make_sink: Callable[[str], Sink]) -> None:
        self.sinks = {name: make_sink(name) for name in names}
        self._infos = pretrained.infos
        self._tallies: dict[str, dict[int, Tally | HostTally]] = {}  # by tensor and start of the piece

    def prepare(self, slot: Slot, change: Tensor, kept: Tensor | None) -> StoredSlot:
        """The values and counts of a slot: ``change`` is (*S), or (K, *S) with one sink per expert; ``kept`` is (*S).

        Raises:
            MergingError: a merged number exceeds the stored dtype.
        """
        changes = [change] if len(self.sinks) == 1 and change.shape == slot.pretrained.shape else list(change)
        models = []
        for model_change in changes:
            values = merged_values(slot, model_change, kept)
            stored = values.to(self._infos[slot.name].dtype)
            if not all_finite(stored, values.dtype):
                raise _make_overflow_error(slot.name, values, stored.dtype)
            # Whole matrices are (d_out, d_in); pieces are flat.
            transposed = slot.parameter.transposed and stored.dim() == 2
            models.append(stored.mT.contiguous() if transposed else stored)
        tally = Tally.from_slot(slot, changes if kept is None else [model_change * kept for model_change in changes])
        return StoredSlot(slot.name, slot.start, models, tally)

    def add(self, stored: StoredSlot) -> None:
        """Write one slot, and count it; a slot that is added again replaces the earlier one."""
        for sink, values in zip(self.sinks.values(), stored.values, strict=True):
            sink.write(stored.name, values, stored.start)
        # As numbers, because small host tensors that outlive the pieces would fragment memory.
        tally = stored.tally
        self._tallies.setdefault(stored.name, {})[stored.start] = _to_host([tally])[0] if tally.kept.is_cpu else tally

    def tables(self, inputs: RunInputs, per_task: bool) -> dict[str, Columns]:
        """The table "tensors", with a row per written tensor, and with one model per task also "task_tensors".

        A row of "tensors" has the number of scalars that differ from pretrained in any model, before rounding to the
        stored dtype, the norm of the change as the root mean square over the models, and the norm of the pretrained
        weights. "task_tensors" has a row per expert and tensor.
        """
        rows, tallies = [], self._host_tallies()
        for p, numel in zip(inputs.parameters, inputs.numels, strict=True):
            if p.name not in tallies:
                continue
            description = (p.name, p.order, p.section, str(p.role), p.part, numel, self._infos[p.name].dtype.itemsize)
            (*_, kept_by_any), (*squared, pretrained) = tallies[p.name]
            rows.append((*description, kept_by_any, (sum(squared) / len(squared)) ** 0.5, pretrained**0.5))
        tables = {"tensors": Columns.from_rows((*TENSOR_COLUMNS, "kept_numel", "change_norm", "pretrained_norm"), rows)}
        if per_task:
            expert_rows = [
                (expert, name, kept[index], squared[index] ** 0.5)
                for index, expert in enumerate(inputs.names)
                for name, (kept, squared) in tallies.items()
            ]
            tables["task_tensors"] = Columns.from_rows(("expert", "tensor", "kept_numel", "change_norm"), expert_rows)
        return tables

    def _host_tallies(self) -> dict[str, HostTally]:
        """The tally of every tensor, summed over its pieces, on the host."""
        all_tallies = [tally for pieces in self._tallies.values() for tally in pieces.values()]
        on_device = [tally for tally in all_tallies if isinstance(tally, Tally)]
        copied = iter(_to_host(on_device) if on_device else [])
        on_host = iter([next(copied) if isinstance(tally, Tally) else tally for tally in all_tallies])
        return {
            name: reduce(_add_tallies, itertools.islice(on_host, len(pieces))) for name, pieces in self._tallies.items()
        }


class _NullSink:
    """Receives tensors and discards them."""

    def write(self, name: str, values: Tensor, start: int = 0) -> None:
        """Discard ``values``, (*S) or (n,)."""


class LastSlot(Output):
    """Stores the slot that was added last, and writes nothing."""

    def __init__(self, pretrained: Checkpoint) -> None:
        super().__init__(pretrained, (MERGED,), lambda _: _NullSink())
        self.last: StoredSlot | None = None

    def add(self, stored: StoredSlot) -> None:
        """Store a slot in place of the previous one."""
        self.last = stored


def _find_nonzero(values: Tensor) -> Tensor:
    """The mask (*S) of numbers that are not zero; on the CPU numpy compares many times as fast as torch."""
    return torch.from_numpy(np.asarray(values.numpy() != 0)) if values.is_cpu else values != 0


def _count_true(mask: Tensor) -> Tensor:
    """The number of true booleans, a scalar; numpy also counts faster."""
    return torch.tensor(np.count_nonzero(mask.numpy())) if mask.is_cpu else torch.count_nonzero(mask)


def _to_host(tallies: Sequence[Tally]) -> list[HostTally]:
    """Tallies as numbers, in one copy to the host."""
    kept = torch.stack([tally.kept for tally in tallies]).cpu()
    squared = torch.stack([tally.squared for tally in tallies]).cpu()
    return list(zip(kept.tolist(), squared.tolist(), strict=True))


def _add_tallies(first: HostTally, second: HostTally) -> HostTally:
    kept = [a + b for a, b in zip(first[0], second[0], strict=True)]
    squared = [a + b for a, b in zip(first[1], second[1], strict=True)]
    return kept, squared


def _make_overflow_error(name: str, values: Tensor, dtype: torch.dtype) -> MergingError:
    size = float(values.abs().nan_to_num(float("inf")).max().cpu())
    kind = dtype_name(dtype)
    return MergingError(
        f"The merged tensor {name!r} cannot be stored: its largest number is {size:g}, and {kind} ends at "
        f"{torch.finfo(dtype).max:g}. Nothing was saved; use a smaller scaling."
    )


def _squared_norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(move_to_float64_device(values), dtype=torch.float64)
    return norm**2


class Notes:
    """Rows of tables that methods note for single tensors while they merge."""

    def __init__(self) -> None:
        self.rows: Rows = {}

    def extend(self, rows: Rows) -> None:
        """Add rows that other processes noted."""
        for table, table_rows in rows.items():
            self.rows.setdefault(table, []).extend(table_rows)

    def add(self, table: str, slot: Slot, row: Mapping[str, Any]) -> None:
        """Add a row to a table; its first columns describe the tensor."""
        p = slot.parameter
        description = {"tensor": p.name, "order": p.order, "section": p.section, "role": str(p.role), "part": p.part}
        self.rows.setdefault(table, []).append({**description, "numel": slot.pretrained.numel(), **row})

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by name, in forward order."""
        if not self.rows:
            return {}
        import pandas as pd

        tables = {name: pd.DataFrame(rows) for name, rows in self.rows.items()}
        return {name: table.sort_values("order", kind="stable", ignore_index=True) for name, table in tables.items()}
