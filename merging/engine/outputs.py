"""Where merged tensors go, and what is counted and noted on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.tensor_info import dtype_name
from merging.engine.inputs import Inputs
from merging.errors import MergingError
from merging.methods.slot import Slot

if TYPE_CHECKING:
    import pandas as pd

MERGED = "merged"  # the name of a merge's one output; merges per task name their outputs by expert
TENSOR_COLUMNS = ("tensor", "order", "section", "role", "part", "numel", "itemsize")  # what a tensor is


class Sink(Protocol):
    """Takes merged tensors, whole or in flat pieces."""

    def write(self, name: str, values: Tensor, start: int = 0) -> None: ...


class MemorySink:
    """Collects a state dict."""

    def __init__(self, pretrained: Checkpoint) -> None:
        infos = pretrained.infos.items()
        self.state_dict = {name: torch.empty(info.shape, dtype=info.dtype) for name, info in infos}

    def write(self, name: str, values: Tensor, start: int = 0) -> None:
        """Put ``values`` at flat position ``start``."""
        self.state_dict[name].reshape(-1)[start : start + values.numel()].copy_(values.reshape(-1))


@dataclass
class Tally:
    """Counts of one tensor; the lists have one entry for each model that is made."""

    kept: list[int]
    squared: list[float]
    kept_by_any: int = 0
    pretrained_squared: float = 0.0

    def add(self, slot: Slot, changes: list[Tensor]) -> None:
        """Count one slot, whole or a piece."""
        for index, change in enumerate(changes):
            self.kept[index] += int(torch.count_nonzero(change))
            self.squared[index] += _squared_norm(change)
        self.pretrained_squared += _squared_norm(slot.pretrained)
        if len(changes) > 1:
            self.kept_by_any += int(torch.stack([change != 0 for change in changes]).any(dim=0).sum())
        else:
            self.kept_by_any = self.kept[0]


def merged_values(slot: Slot, change: Tensor, kept: Tensor | None) -> Tensor:
    """The merged tensor (*S), in the dtype of computation, of a change and what of it is kept (None: all)."""
    values = slot.pretrained + change
    # Bit for bit: adding zero would turn -0.0 into 0.0.
    return values if kept is None else torch.where(kept, values, slot.pretrained)


class Output:
    """Adds merged task vectors to the pretrained weights, hands them to sinks, and counts per tensor."""

    def __init__(self, pretrained: Checkpoint, names: tuple[str, ...], make_sink: Callable[[str], Sink]) -> None:
        self.sinks = {name: make_sink(name) for name in names}
        self._infos = pretrained.infos
        self._tallies: dict[str, Tally] = {}

    def add(self, slot: Slot, change: Tensor, kept: Tensor | None) -> None:
        """Write one slot; ``change`` is (*S), or (K, *S) with one sink per expert."""
        changes = [change] if len(self.sinks) == 1 and change.shape == slot.pretrained.shape else list(change)
        for sink, one in zip(self.sinks.values(), changes, strict=True):
            values = merged_values(slot, one, kept)
            stored = values.to(self._infos[slot.name].dtype)
            if not torch.isfinite(stored.sum(dtype=values.dtype)) and not torch.isfinite(stored).all():
                raise _overflow(slot.name, values, stored.dtype)
            sink.write(slot.name, stored, slot.start)
        count = len(changes)
        tally = self._tallies.setdefault(slot.name, Tally([0] * count, [0.0] * count))
        tally.add(slot, changes if kept is None else [one * kept for one in changes])

    def tables(self, inputs: Inputs, per_task: bool) -> dict[str, pd.DataFrame]:
        """The table "tensors": a row per written tensor; with one model per task "task_tensors": a row per expert, too.

        They say what the tensor is, how many of its scalars differ from pretrained (in any of the models, before they
        are rounded to its dtype), the norms of the change (the root of the mean square over the models) and of the
        weights, and the bytes that a scalar takes.
        """
        import pandas as pd

        rows = []
        for p, numel in zip(inputs.parameters, inputs.numels, strict=True):
            if (tally := self._tallies.get(p.name)) is None:
                continue
            facts = (p.name, p.order, p.section, str(p.role), p.part, numel, self._infos[p.name].dtype.itemsize)
            norm = (sum(tally.squared) / len(tally.squared)) ** 0.5
            rows.append((*facts, tally.kept_by_any, norm, tally.pretrained_squared**0.5))
        columns = [*TENSOR_COLUMNS, "kept_numel", "change_norm", "pretrained_norm"]
        tables = {"tensors": pd.DataFrame(rows, columns=columns)}
        if per_task:
            tallies = self._tallies.items()
            parts = [
                (expert, name, tally.kept[index], tally.squared[index] ** 0.5)
                for index, expert in enumerate(inputs.names)
                for name, tally in tallies
            ]
            tables["task_tensors"] = pd.DataFrame(parts, columns=["expert", "tensor", "kept_numel", "change_norm"])
        return tables


def _overflow(name: str, values: Tensor, dtype: torch.dtype) -> MergingError:
    size = float(values.abs().nan_to_num(float("inf")).max())
    kind = dtype_name(dtype)
    return MergingError(
        f"The merged tensor {name!r} cannot be stored: its largest number is {size:g}, and {kind} ends at "
        f"{torch.finfo(dtype).max:g}. Nothing was kept; use a smaller scaling."
    )


def _squared_norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64) ** 2)


class Notes:
    """Rows of tables, which methods note for single tensors while they merge."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, slot: Slot, row: Mapping[str, Any]) -> None:
        """Add a row to a table; its first columns say what the tensor is."""
        p = slot.parameter
        facts = {"tensor": p.name, "order": p.order, "section": p.section, "role": str(p.role), "part": p.part}
        self._rows.setdefault(table, []).append({**facts, "numel": slot.pretrained.numel(), **row})

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by name, in forward order."""
        import pandas as pd

        tables = {name: pd.DataFrame(rows) for name, rows in self._rows.items()}
        return {name: table.sort_values("order", kind="stable", ignore_index=True) for name, table in tables.items()}
