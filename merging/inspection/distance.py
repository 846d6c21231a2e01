"""The distance of experts from the pretrained model, in one pass over all numbers or over a sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import Parameter, Role
from merging.progress import Meter

FAR, ALIKE = 0.5, 0.5  # a larger relative change, or a smaller cosine, is not from fine-tuning
LOST = 0.1  # share of changes lost to rounding above which there is a warning
TYPICAL_SCALING = 0.3
HUGE = 1e19  # squares of larger numbers overflow float32
SAMPLE = 4096  # numbers per tensor of a sample
PIECE = 1 << 20


@dataclass
class Distance:
    """The distance of one expert from the pretrained model: sums over the numbers read, and the largest numbers."""

    change_squared: float = 0.0
    expert_squared: float = 0.0
    pretrained_squared: float = 0.0
    product: float = 0.0
    changed: int = 0
    lost: int = 0  # changes that vanish when the merged model is stored in the pretrained model's type
    sampled: bool = False
    compared: bool = False  # whether the two have a tensor in common
    huge: dict[str, float] = field(default_factory=dict)  # tensor -> largest number
    out_of_range: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Norm of the change over the norm of the weights; NaN where there are none."""
        return math.sqrt(self.change_squared / self.pretrained_squared) if self.pretrained_squared else math.nan

    @property
    def cosine(self) -> float:
        """Cosine between the expert's weights and the pretrained ones; NaN where there are none."""
        norms = math.sqrt(self.expert_squared) * math.sqrt(self.pretrained_squared)
        return self.product / norms if norms else math.nan

    @property
    def unchanged(self) -> bool:
        """Whether no number that was read has changed; False if nothing could be compared."""
        return self.change_squared == 0 and self.compared

    @property
    def fingerprint(self) -> tuple[float, ...]:
        """Sums that two experts share only if their numbers are the same."""
        return self.change_squared, self.expert_squared, self.product

    @property
    def unrelated(self) -> bool:
        """Whether the expert does not look fine-tuned from the pretrained model."""
        return self.ratio > FAR or self.cosine < ALIKE

    @property
    def lost_share(self) -> float:
        """The share of changes that are lost to rounding."""
        return self.lost / self.changed if self.changed else 0.0

    def text(self) -> str:
        """Change and cosine in a few words."""
        where = " on a sample" if self.sampled else ""
        return f"a change of {self.ratio:.0%} of the weights and a cosine of {self.cosine:.2f}{where}"


def measure(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    parameters: Iterable[Parameter],
    sample: int | None,
    meter: Meter | None = None,
) -> dict[str, Distance]:
    """{expert: distance} over the parameters that the expert shares with the pretrained model.

    ``sample`` limits how many numbers of each tensor are read. Numbers that are not finite count as 0.

    Raises:
        Cancelled: the caller asked to stop.
    """
    distances = {name: Distance(sampled=sample is not None) for name in experts}
    for parameter in parameters:
        if parameter.role != Role.BUFFER and pretrained.infos[parameter.name].dtype.is_floating_point:
            _compare_tensor(pretrained, experts, parameter, sample, distances)
        if meter:
            work = pretrained.infos[parameter.name].numel * (len(experts) + 1)
            meter.advance(work, "Comparing every number", parameter.name)
    return distances


def _compare_tensor(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    parameter: Parameter,
    sample: int | None,
    distances: Mapping[str, Distance],
) -> None:
    name, info = parameter.name, pretrained.infos[parameter.name]
    matching = {
        key: expert
        for key, expert in experts.items()
        if name in expert.infos
        and expert.infos[name].shape == info.shape
        and expert.infos[name].dtype.is_floating_point
    }
    numel = info.numel if sample is None else min(sample, info.numel)
    for start in range(0, numel, PIECE):
        stop = min(start + PIECE, numel)
        base = _read(pretrained, name, start, stop)
        bound = base.abs()  # of merged numbers, at scaling 1
        for key, expert in matching.items():
            change = _read(expert, name, start, stop) - base
            _add(distances[key], name, base, change, info.dtype)
            bound += change.abs()
            _record_largest(distances[key].out_of_range, name, bound, torch.finfo(info.dtype).max)


def _read(checkpoint: Checkpoint, name: str, start: int, stop: int) -> Tensor:
    return checkpoint.read_flat(name, start, stop).double().nan_to_num(0.0, 0.0, 0.0)


def _add(distance: Distance, name: str, base: Tensor, change: Tensor, dtype: torch.dtype) -> None:
    expert = base + change
    distance.compared = True
    distance.pretrained_squared += float(base @ base)
    distance.expert_squared += float(expert @ expert)
    distance.change_squared += float(change @ change)
    distance.product += float(base @ expert)
    _record_largest(distance.huge, name, expert, HUGE)
    if dtype.itemsize < 4:
        moved = change != 0
        distance.changed += int(moved.sum())
        distance.lost += int((moved & ((base + TYPICAL_SCALING * change).to(dtype) == base.to(dtype))).sum())


def _record_largest(largest_by_tensor: dict[str, float], name: str, values: Tensor, limit: float) -> None:
    """Record the largest number of a tensor if it is above the limit."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest > limit:
        largest_by_tensor[name] = max(largest, largest_by_tensor.get(name, 0.0))
