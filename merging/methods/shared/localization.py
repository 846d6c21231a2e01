"""Masks of the few scalars that carry a task: their counts, and the scores from which a mask is learned."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from merging.base.errors import MergingError
from merging.base.text import first_few
from merging.methods.learning import Masks
from merging.methods.shared.trimming import kth_smallest_of_slots, magnitudes
from merging.methods.slot import Slot, SlotStream
from merging.models.families import Parameter

if TYPE_CHECKING:
    import pandas as pd

PIECE_SCALARS = 1 << 20  # scalars whose masks are compared at a time
L1, RELEASED = "l1", "released"  # the regularizers: the paper's L1 norm, or that of the released code


def size_limits(slots: SlotStream, density: float, min_count: int = 0) -> tuple[float, ...]:
    """Per expert, the least absolute value of its int(density · P) largest scalars; infinite if that count is 0.

    P is the number of scalars of a task vector. The count is at least ``min_count``.
    """
    numel = slots.numel + slots.dead_numel  # with the zeros of an unused text tower, if the recipe counts them
    count = max(int(density * numel), min_count)
    if count == 0:
        return (float("inf"),) * len(slots.experts)
    return tuple(kth_smallest_of_slots(slots, magnitudes, [numel - count] * len(slots.experts)))


def reaches_limit(slot: Slot, limits: Sequence[float]) -> Tensor:
    """The masks (K, *S) of the scalars whose absolute values reach their expert's limit."""
    shape = (-1, *[1] * slot.pretrained.dim())
    return slot.task_vectors.abs() >= slot.task_vectors.new_tensor(limits).reshape(shape)


class MaskCounts:
    """Counts of scalars: those that each expert's mask keeps, by tensor, and those that two experts' masks share."""

    def __init__(self, experts: Sequence[str], parameters: Sequence[Parameter], numels: Sequence[int]) -> None:
        self._experts, self._parameters, self._numels = tuple(experts), tuple(parameters), tuple(numels)
        self._kept = {parameter.name: torch.zeros(len(experts), dtype=torch.int64) for parameter in parameters}
        self._shared = torch.zeros(len(experts), len(experts), dtype=torch.float64)

    def count_shared(self, masks: Tensor) -> Tensor:
        """The numbers (K, K) of scalars that pairs of masks (K, *S) of a tensor or a piece share."""
        shared = torch.zeros_like(self._shared)
        for piece in masks.reshape(len(self._experts), -1).split(PIECE_SCALARS, dim=1):
            exact = piece.to(torch.float32)  # counts up to 2²⁴ are exact in float32
            shared += (exact @ exact.T).to("cpu", torch.float64)
        return shared

    def add(self, name: str, shared: Tensor) -> None:
        """Add the counts (K, K) that ``count_shared`` returned for a tensor or a piece."""
        self._shared += shared
        self._kept[name] += shared.diagonal().long()

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the masks, by name.

        ``localization`` has the number of scalars kept per expert and tensor, ``overlap`` the share of each expert's
        mask that another expert's mask also keeps.
        """
        import pandas as pd

        rows = [
            (expert, p.name, p.order, p.part, int(self._kept[p.name][k]), numel)
            for k, expert in enumerate(self._experts)
            for p, numel in zip(self._parameters, self._numels, strict=True)
        ]
        sizes = self._shared.diagonal().clamp(min=1)
        shares = [
            (expert, other_expert, float(self._shared[i, j] / sizes[i]))
            for i, expert in enumerate(self._experts)
            for j, other_expert in enumerate(self._experts)
        ]
        return {
            "localization": pd.DataFrame(rows, columns=["expert", "tensor", "order", "part", "kept", "numel"]),
            "overlap": pd.DataFrame(shares, columns=["expert", "other", "share"]),
        }

    def warnings(self, method: str) -> tuple[str, ...]:
        """A warning if any expert's mask keeps nothing or everything."""
        total, sizes = sum(self._numels), self._shared.diagonal().tolist()
        if not any(size in (0, total) for size in sizes):
            return ()
        shares = [f"{expert} {size / max(total, 1):.1%}" for expert, size in zip(self._experts, sizes, strict=True)]
        return (f"{method} made masks that are empty or full, so its learning rate does not suit this model; they keep "
                f"{', '.join(shares)}.",)  # fmt: skip


class MaskScores:
    """One task's scores, one per scalar; their sigmoid is the soft mask on its task vector."""

    def __init__(self, limit: float, bias: float, lr: float, l1: float, regularizer: str) -> None:
        self.values: dict[str, Tensor] = {}
        self._limit, self._bias, self._lr = limit, bias, lr
        self._l1, self._regularizer = l1, regularizer

    def initialize(self, slot: Slot, gradient: Tensor | None) -> Tensor:
        """Set a tensor's first scores, positive where the task vector is large; return ``soft_masked``, (*S).

        ``gradient`` is not used: it belongs to the functions that ``Blend.update_tensors`` calls.
        """
        if slot.name in self.values:  # restored from a file
            self.values[slot.name] = self.values[slot.name].to(slot.pretrained)
        else:
            (is_large,) = reaches_limit(slot, [self._limit])  # the slot has one expert
            self.values[slot.name] = torch.where(is_large, self._bias, -self._bias).to(slot.pretrained)
        return self.soft_masked(slot)

    def soft_masked(self, slot: Slot) -> Tensor:
        """The task vector times its soft mask, of the tensor's shape (*S)."""
        return self.values[slot.name].sigmoid() * slot.task_vectors[0]

    def descend(self, slot: Slot, gradient: Tensor | None) -> Tensor:
        """Move the scores by the loss's gradient and the regularizer; return ``soft_masked``; all of shape (*S)."""
        scores = self.values[slot.name]
        soft = scores.sigmoid()
        slope = soft * (1 - soft)
        push = self._l1 if self._regularizer == L1 else -self._l1 * scores.sign()  # the released code pushes from zero
        if gradient is not None:  # the tensor is part of the tower that encodes images
            scores -= self._lr * gradient * slot.task_vectors[0] * slope
        scores -= push * slope
        return self.soft_masked(slot)

    def hard_mask(self) -> dict[str, Tensor]:
        """The hard mask: booleans of the tensor's shape (*S), by tensor name."""
        return {name: scores > 0 for name, scores in self.values.items()}

    def require_no_nan(self, expert: str) -> None:
        """Raise MergingError if any score is NaN: the hard mask would drop its scalar."""
        has_nan = torch.stack([scores.isnan().any() for scores in self.values.values()]).cpu().tolist()
        if names := list(itertools.compress(self.values, has_nan)):
            raise MergingError(
                f"Learning stopped: scores of {expert!r} are NaN in {first_few(names)}. Nothing was stored. A smaller "
                "learning rate may help; so may checking its images."
            )

    @property
    def mask_size(self) -> int:
        """The number of scalars that the hard mask keeps."""
        return int(torch.as_tensor(sum(torch.count_nonzero(mask) for mask in self.hard_mask().values())).cpu())

    def state(self) -> dict[str, Tensor]:
        """The scores, each of its tensor's shape (*S), as named tensors for a file."""
        return {f"score.{name}": scores for name, scores in self.values.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the scores, each of its tensor's shape (*S), that ``state`` returned."""
        prefix = "score."
        self.values = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


class MaskLearningHistory:
    """The learning of masks so far: finished masks, and the loss and the mask's size before every step."""

    def __init__(self, masks: Masks) -> None:
        self.masks, self.finished = masks, 0
        self.rows: list[tuple[float, float]] = []  # (loss, size), for all steps of the first task, then of the next

    def finish_task(self, scores: MaskScores) -> None:
        """Add the hard mask of the next task."""
        self.masks.append(scores.hard_mask())
        self.finished += 1

    def state(self) -> dict[str, Tensor]:
        """Rows (steps, 2) of loss and size, and packed masks (tasks, bytes), as named tensors for a file."""
        rows = {"rows": torch.tensor(self.rows, dtype=torch.float64)} if self.rows else {}
        return rows | ({"masks": self.masks.pack()} if self.finished else {})

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the rows (steps, 2) and masks (tasks, bytes) that ``state`` returned."""
        if "rows" in state:
            self.rows = [(loss, size) for loss, size in state["rows"].tolist()]
        if "masks" in state:
            self.masks.unpack(state["masks"])
            self.finished = len(state["masks"])

    def table(self, experts: Sequence[str], steps: int, numel: int) -> pd.DataFrame:
        """One row per expert and step: the loss and the mask's density before the step."""
        import pandas as pd

        rows = [
            (i % steps, experts[i // steps], loss, size / max(numel, 1)) for i, (loss, size) in enumerate(self.rows)
        ]
        return pd.DataFrame(rows, columns=["step", "expert", "loss", "density"])
