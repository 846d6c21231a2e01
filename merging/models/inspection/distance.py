"""The distance of experts from the pretrained model, over all numbers or over a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import stdev

import torch
from torch import Tensor

from merging.base.progress import Meter
from merging.models.checkpoint import Checkpoint
from merging.models.families import UNMERGED, Parameter
from merging.models.inspection.tensor_pieces import RUN_COUNT, RUN_LENGTH, Piece, tensor_pieces

MAX_RELATED_CHANGE, MIN_RELATED_COSINE = 0.5, 0.5  # limits of the relative change and the cosine after fine-tuning
LOST_SHARE_LIMIT = 0.1  # share of changes lost to rounding; above, there is a warning
TYPICAL_SCALING = 0.3  # of the merge for which lost changes are counted
HUGE_NUMBER = 1e19  # the squares of larger numbers overflow float32
SAMPLE_GROUPS = 8  # groups of a sample; their spread shows the error of an estimate
# A sample decides if it is this many standard errors, and this far, from the limit.
MARGIN_ERRORS, MIN_MARGIN = 4.0, 0.05


@dataclass
class Distance:
    """The distance of one expert from the pretrained model: sums over all numbers, and the largest numbers.

    Sums over a sample are scaled to whole tensors. ``grouped`` has the four sums of each group of the sample.
    """

    change_squared: float = 0.0
    expert_squared: float = 0.0
    pretrained_squared: float = 0.0
    product: float = 0.0
    grouped: list[list[float]] = field(default_factory=list)  # SAMPLE_GROUPS rows; empty if every number was read
    changed: int = 0  # numbers that differ; counted only for types of two bytes
    lost: int = 0  # changes that vanish when the merged model is stored in the pretrained model's type
    compared: bool = False  # whether the two models have a tensor in common
    huge_numbers: dict[str, float] = field(default_factory=dict)  # tensor -> largest number above HUGE_NUMBER
    # Tensor -> largest number that a merge at scaling 1 can reach, if it overflows the pretrained model's type.
    out_of_range: dict[str, float] = field(default_factory=dict)

    def add(self, base: Tensor, change: Tensor) -> None:
        """Add numbers ``base`` (n,) of the pretrained model and their changes (n,): a whole tensor or a span of it."""
        expert = base + change
        self._add_sums([float(torch.dot(*pair)) for pair in _pair_vectors(base, expert, change)])

    def add_runs(self, base: Tensor, change: Tensor) -> None:
        """Add the runs of samples, ``base`` and ``change`` (n,) with n = tensors · RUN_COUNT · RUN_LENGTH.

        Both are scaled by the square root of the count of numbers that each one represents.
        """
        expert = base + change
        rows = [
            (left * right).view(-1, SAMPLE_GROUPS, RUN_LENGTH).sum((0, 2)).tolist()
            for left, right in _pair_vectors(base, expert, change)
        ]
        self._add_sums([sum(row) for row in rows])
        groups = [list(sums) for sums in zip(*rows, strict=True)]
        previous_groups = self.grouped or [[0.0] * len(rows)] * SAMPLE_GROUPS
        self.grouped = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(previous_groups, groups, strict=True)
        ]

    def _add_sums(self, sums: list[float]) -> None:
        self.compared = True
        self.change_squared += sums[0]
        self.expert_squared += sums[1]
        self.pretrained_squared += sums[2]
        self.product += sums[3]

    @property
    def _sums(self) -> list[float]:
        return [self.change_squared, self.expert_squared, self.pretrained_squared, self.product]

    @property
    def sampled(self) -> bool:
        """Whether only some numbers were read, so that ratio and cosine are estimates."""
        return bool(self.grouped)

    @property
    def ratio(self) -> float:
        """Norm of the change over the norm of the pretrained weights; NaN if these are zero or absent."""
        return _compute_ratio(self._sums)

    @property
    def cosine(self) -> float:
        """Cosine between the expert's and the pretrained weights; NaN if either are zero or absent."""
        return _compute_cosine(self._sums)

    @property
    def unchanged(self) -> bool:
        """Whether no number that was read has changed; False if nothing could be compared."""
        return self.change_squared == 0 and self.compared

    @property
    def content_key(self) -> tuple[float, ...]:
        """Sums that are equal for two experts only if the numbers that were read are equal."""
        return self.change_squared, self.expert_squared, self.product

    @property
    def unrelated(self) -> bool:
        """Whether the expert does not look fine-tuned from the pretrained model; False if the sample is too small."""
        is_far, is_unlike = (
            self.ratio - self._margin(_compute_ratio) > MAX_RELATED_CHANGE,
            self.cosine + self._margin(_compute_cosine) < MIN_RELATED_COSINE,
        )
        return is_far or is_unlike

    @property
    def undecided(self) -> bool:
        """Whether a sample leaves open if the expert is related: it is too close to a limit, or too small."""
        is_related = (
            self.ratio + self._margin(_compute_ratio) <= MAX_RELATED_CHANGE
            and self.cosine - self._margin(_compute_cosine) >= MIN_RELATED_COSINE
        )
        return self.sampled and not is_related and not self.unrelated

    def _margin(self, statistic: Callable[[list[float]], float]) -> float:
        """Margin of error of an estimate, by estimates from each group of the sample alone; 0 if all were read."""
        if not self.grouped:
            return 0.0
        sample_sums = [sum(sums) for sums in zip(*self.grouped, strict=True)]
        estimates = [
            statistic(
                [
                    s + SAMPLE_GROUPS * group_sum - sample_sum
                    for s, group_sum, sample_sum in zip(self._sums, sums, sample_sums, strict=True)
                ]
            )
            for sums in self.grouped
        ]
        if not all(map(math.isfinite, estimates)):  # all pretrained weights in a group of the sample are zero
            return math.inf
        return max(MARGIN_ERRORS * stdev(estimates) / math.sqrt(SAMPLE_GROUPS), MIN_MARGIN)

    @property
    def lost_share(self) -> float:
        """The fraction of changes that are lost to rounding."""
        return self.lost / self.changed if self.changed else 0.0

    def facts(self) -> dict[str, float | bool | None]:
        """Ratio, cosine and whether they are estimates, for JSON; None for an undefined ratio or cosine."""
        numbers = {"ratio": self.ratio, "cosine": self.cosine}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {**finite, "sampled": self.sampled}

    def text(self) -> str:
        """Change and cosine as a phrase."""
        if math.isnan(self.ratio):
            return "no weights to compare"
        return f"a change of {self.change_text()} of the weights and a cosine of {self.cosine_text()}"

    def change_text(self) -> str:
        """The change as a percentage: '4.11%', 'about 4.1%' for an estimate, '–' if it is undefined."""
        if math.isnan(self.ratio):
            return "–"
        return f"about {self.ratio:.1%}" if self.sampled else f"{self.ratio:.2%}"

    def cosine_text(self) -> str:
        """The cosine: '0.9992', 'about 0.999' for an estimate, '–' if it is undefined."""
        if math.isnan(self.cosine):
            return "–"
        return f"about {self.cosine:.3f}" if self.sampled else f"{self.cosine:.4f}"


def _pair_vectors(base: Tensor, expert: Tensor, change: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """The pairs of vectors (n,) whose products are summed, in the order of a distance's sums."""
    return (change, change), (expert, expert), (base, base), (base, expert)


def _compute_ratio(sums: list[float]) -> float:
    change_squared, _, pretrained_squared, _ = sums
    return math.sqrt(max(change_squared, 0.0) / pretrained_squared) if pretrained_squared > 0 else math.nan


def _compute_cosine(sums: list[float]) -> float:
    _, expert_squared, pretrained_squared, product = sums
    norms = math.sqrt(max(expert_squared, 0.0)) * math.sqrt(max(pretrained_squared, 0.0))
    return product / norms if norms else math.nan


def measure_distances(
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    parameters: Iterable[Parameter],
    sampled: bool,
    meter: Meter | None = None,
) -> dict[str, Distance]:
    """{expert: distance} over the parameters that the expert shares with the pretrained model.

    ``sampled`` reads a sample of each large tensor. Numbers that are not finite count as 0.

    Raises:
        Cancelled: the user cancelled.
    """
    distances = {name: Distance() for name in experts}
    if sampled:
        for batch in _make_batches(pretrained, experts, parameters):
            _add_batch(pretrained, experts, batch, distances)
            if meter:
                meter.check()
        return distances
    for parameter in parameters:
        if matching := _find_matching_experts(pretrained, experts, parameter):
            name, info = parameter.name, pretrained.infos[parameter.name]
            for piece in tensor_pieces(name, info.numel, sampled=False):
                _add_batch(pretrained, experts, _Batch(info.dtype, matching, ((name, piece),)), distances)
        if meter:
            work = pretrained.infos[parameter.name].numel * (len(experts) + 1)
            meter.advance(work, "Comparing every number", parameter.name)
    return distances


@dataclass(frozen=True)
class _Batch:
    """Pieces of tensors of one dtype, either samples or spans, and the experts that have these tensors."""

    dtype: torch.dtype
    experts: tuple[str, ...]
    pieces: tuple[tuple[str, Piece], ...]

    @property
    def sampled(self) -> bool:
        return self.pieces[0][1].sampled

    @property
    def weights(self) -> Tensor:
        """How many numbers of its tensor each number represents: (n,), or (1,) outside samples."""
        if not self.sampled:
            return torch.ones(1, dtype=torch.float64)
        piece_weights = torch.tensor([piece.weight for _, piece in self.pieces], dtype=torch.float64)
        return piece_weights.repeat_interleave(RUN_COUNT * RUN_LENGTH)

    def count(self, chosen: Tensor) -> int:
        """How many numbers of their tensors the ``chosen`` ones (n,) represent."""
        return round(float((self.weights * chosen).sum())) if self.sampled else int(chosen.count_nonzero())

    def read(self, checkpoint: Checkpoint) -> Tensor:
        """The numbers (n,) in float64, with 0 for those that are not finite."""
        parts = [piece.read(checkpoint, name).double() for name, piece in self.pieces]
        return torch.cat(parts).nan_to_num_(0.0, 0.0, 0.0)

    def record(self, largest_by_tensor: dict[str, float], values: Tensor, limit: float) -> None:
        """Record the largest of ``values`` (n,) of every tensor, if it is above the limit."""
        if not values.numel() or float(values.max()) <= limit:
            return
        for (name, _), piece_values in zip(
            self.pieces, values.split([piece.numel for _, piece in self.pieces]), strict=True
        ):
            if (largest := float(piece_values.max())) > limit:
                largest_by_tensor[name] = max(largest, largest_by_tensor.get(name, 0.0))


def _find_matching_experts(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], parameter: Parameter
) -> tuple[str, ...]:
    """The experts that have a parameter in the same shape; empty for parameters that are not compared."""
    info = pretrained.infos[parameter.name]
    if parameter.role in UNMERGED or not info.dtype.is_floating_point:
        return ()
    expert_infos = {key: expert.infos.get(parameter.name) for key, expert in experts.items()}
    return tuple(
        key
        for key, expert_info in expert_infos.items()
        if expert_info and expert_info.shape == info.shape and expert_info.dtype.is_floating_point
    )


def _make_batches(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], parameters: Iterable[Parameter]
) -> Iterator[_Batch]:
    """The samples of all parameters, in as few batches as possible."""
    batches: dict[tuple[torch.dtype, tuple[str, ...], bool], list[tuple[str, Piece]]] = {}
    for parameter in parameters:
        if matching := _find_matching_experts(pretrained, experts, parameter):
            info = pretrained.infos[parameter.name]
            for piece in tensor_pieces(parameter.name, info.numel, sampled=True):
                batches.setdefault((info.dtype, matching, piece.sampled), []).append((parameter.name, piece))
    for (dtype, matching, _), pieces in batches.items():
        yield _Batch(dtype, matching, tuple(pieces))


def _add_batch(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], batch: _Batch, distances: Mapping[str, Distance]
) -> None:
    """Add a batch to the distances of its experts."""
    base = batch.read(pretrained)
    limit = torch.finfo(batch.dtype).max
    largest_base = bound = _find_largest(base)  # no merged number at scaling 1 is larger than ``bound``
    for key in batch.experts:
        change = batch.read(experts[key]) - base
        _add_numbers(distances[key], batch, base, change)
        if batch.dtype.itemsize < 4:
            _count_lost(distances[key], batch, base, change)
        largest_change = _find_largest(change)
        if largest_base + largest_change > HUGE_NUMBER:
            batch.record(distances[key].huge_numbers, (base + change).abs(), HUGE_NUMBER)
        bound += largest_change
    if bound > limit:
        sizes = base.abs()
        for key in batch.experts:
            sizes += (batch.read(experts[key]) - base).abs()
            batch.record(distances[key].out_of_range, sizes, limit)


def _find_largest(values: Tensor) -> float:
    """The largest absolute value of ``values`` (n,); 0 if there is none."""
    return max(abs(float(end)) for end in values.aminmax()) if len(values) else 0.0


def _add_numbers(distance: Distance, batch: _Batch, base: Tensor, change: Tensor) -> None:
    """Add pretrained numbers (n,) and their changes (n,) to the sums of a distance."""
    if batch.sampled:
        scale = batch.weights.sqrt()
        distance.add_runs(scale * base, scale * change)
    else:
        distance.add(base, change)


def _count_lost(distance: Distance, batch: _Batch, base: Tensor, change: Tensor) -> None:
    """Count the changes (n,) of the pretrained numbers ``base`` (n,), and those that rounding to their type loses."""
    changed = change != 0
    lost = changed & ((TYPICAL_SCALING * change).add_(base).to(batch.dtype) == base.to(batch.dtype))
    distance.changed += batch.count(changed)
    distance.lost += batch.count(lost)
