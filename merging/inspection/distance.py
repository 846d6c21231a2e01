"""How far experts are from the pretrained model, in one pass over the numbers or over a sample of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import Parameter, Role
from merging.progress import Meter

FAR, ALIKE = 0.5, 0.5  # a change of that share of the weights, or a cosine below that, is no fine-tuning
LOST = 0.1  # share of changes lost to rounding above which it is said
TYPICAL_SCALING = 0.3
HUGE = 1e19  # above, squares do not fit into float32
SAMPLE = 4096  # numbers per tensor of a sample
PIECE = 1 << 20


@dataclass
class Distance:
    """One expert against the pretrained model: sums over the numbers looked at, and what is odd about single ones."""

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
        """Whether nothing was trained, as far as was looked; not where nothing could be compared."""
        return self.change_squared == 0 and self.compared

    @property
    def mark(self) -> tuple[float, ...]:
        """What only the same numbers have in common."""
        return self.change_squared, self.expert_squared, self.product

    @property
    def unrelated(self) -> bool:
        """Whether the expert looks like no fine-tuned form of the pretrained model."""
        return self.ratio > FAR or self.cosine < ALIKE

    @property
    def lost_share(self) -> float:
        """Share of the changes that rounding eats."""
        return self.lost / self.changed if self.changed else 0.0

    def text(self) -> str:
        """The numbers in a few words."""
        where = " on a sample" if self.sampled else ""
        return f"a change of {self.ratio:.0%} of the weights and a cosine of {self.cosine:.2f}{where}"


def measure(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    parameters: Iterable[Parameter],
    sample: int | None,
    meter: Meter | None = None,
) -> dict[str, Distance]:
    """The distance of every expert over those parameters that it shares with the pretrained model.

    ``sample`` limits how many numbers of each tensor are read. Numbers that are not finite are left out.

    Raises:
        Cancelled: the meter was asked to stop.
    """
    found = {name: Distance(sampled=sample is not None) for name in experts}
    for parameter in parameters:
        if parameter.role != Role.BUFFER and pretrained.infos[parameter.name].dtype.is_floating_point:
            _tensor(pretrained, experts, parameter, sample, found)
        if meter:
            work = pretrained.infos[parameter.name].numel * (len(experts) + 1)
            meter.advance(work, "Comparing every number", parameter.name)
    return found


def _tensor(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    parameter: Parameter,
    sample: int | None,
    found: Mapping[str, Distance],
) -> None:
    name, info = parameter.name, pretrained.infos[parameter.name]
    alike = {
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
        reach = base.abs()
        for key, expert in alike.items():
            change = _read(expert, name, start, stop) - base
            _add(found[key], name, base, change, info.dtype)
            reach += change.abs()
            _note(found[key].out_of_range, name, reach, torch.finfo(info.dtype).max)


def _read(checkpoint: Checkpoint, name: str, start: int, stop: int) -> Tensor:
    return checkpoint.read_flat(name, start, stop).double().nan_to_num(0.0, 0.0, 0.0)


def _add(found: Distance, name: str, base: Tensor, change: Tensor, dtype: torch.dtype) -> None:
    expert = base + change
    found.compared = True
    found.pretrained_squared += float(base @ base)
    found.expert_squared += float(expert @ expert)
    found.change_squared += float(change @ change)
    found.product += float(base @ expert)
    _note(found.huge, name, expert, HUGE)
    if dtype.itemsize < 4:
        moved = change != 0
        found.changed += int(moved.sum())
        found.lost += int((moved & ((base + TYPICAL_SCALING * change).to(dtype) == base.to(dtype))).sum())


def _note(where: dict[str, float], name: str, values: Tensor, limit: float) -> None:
    """Remember the largest number of a tensor if it is over the limit."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest > limit:
        where[name] = max(largest, where.get(name, 0.0))
