"""Problems of the numbers in checkpoints: not finite, unchanged, unrelated, duplicated, lost to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from merging.base.numerics.finite import all_finite
from merging.base.progress import Meter
from merging.models.checkpoint import Checkpoint
from merging.models.families import TEXT_TOWER, UNUSED_TEXT, Parameter
from merging.models.inspection.distance import (
    HUGE_NUMBER,
    LOST_SHARE_LIMIT,
    MAX_RELATED_CHANGE,
    MIN_RELATED_COSINE,
    TYPICAL_SCALING,
    Distance,
    measure_distances,
)
from merging.models.inspection.fit_report import Problem, make_problem
from merging.models.inspection.tensor_pieces import tensor_pieces
from merging.models.tensor_info import dtype_name
from merging.tasks.context import QUIET, Context

CHECKING_PHASE = "Checking every number"
HALF_DTYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class NumberCheck:
    """The numbers of a pretrained model and of experts under its names; if ``sampled``, samples of large tensors."""

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    parameters: tuple[Parameter, ...]
    sampled: bool

    def check(self, context: Context = QUIET) -> tuple[list[Problem], dict[str, Distance]]:
        """All problems, and the distances of the experts. Progress is reported while every number is read.

        If a sample leaves open whether an expert is related, or shows no change, all numbers of the expert are read.

        Raises:
            Cancelled: the user cancelled.
        """
        meter = (context.without_progress() if self.sampled else context).meter(self._work())
        problems: list[Problem] = []
        for name, checkpoint in (("pretrained", self.pretrained), *self.experts.items()):
            problems.extend(self._not_finite(name, checkpoint, meter))
            if not self.sampled and checkpoint is not self.pretrained:
                problems.extend(self._changed_text(name, checkpoint))
        distances = measure_distances(self.pretrained, self.experts, self.parameters, self.sampled, meter)
        unclear = [
            name
            for name, distance in distances.items()
            if distance.sampled and (distance.undecided or distance.unchanged)
        ]
        if unclear:
            experts = {name: self.experts[name] for name in unclear}
            full_meter = context.meter(_numel(self.pretrained) * (len(experts) + 1))
            distances |= measure_distances(self.pretrained, experts, self.parameters, sampled=False, meter=full_meter)
        problems.extend(_find_distance_problems(self.pretrained, distances))
        problems.extend(self._repeated(distances, meter))
        return problems, distances

    def _work(self) -> int:
        """Number of scalars that a full check reads: all for finiteness and distances, experts again for digests."""
        pretrained_numel = _numel(self.pretrained)
        return (
            pretrained_numel + 2 * sum(map(_numel, self.experts.values())) + pretrained_numel * (len(self.experts) + 1)
        )

    def _not_finite(self, name: str, checkpoint: Checkpoint, meter: Meter) -> Iterator[Problem]:
        """Tensors with NaN or infinity among the numbers that are read."""
        if self.sampled and _sample_is_finite(checkpoint):
            meter.check()
            return
        for tensor, info in checkpoint.infos.items():
            meter.advance(info.numel, CHECKING_PHASE, name)
            if not info.dtype.is_floating_point:
                continue
            count, first_position, read_numel = 0, -1, 0
            for piece in tensor_pieces(tensor, info.numel, self.sampled):
                numbers = piece.read(checkpoint, tensor)
                if not all_finite(numbers, torch.float32):
                    bad = ~torch.isfinite(numbers)
                    first_position = piece.position(int(bad.int().argmax())) if first_position < 0 else first_position
                    count += int(bad.sum())
                read_numel += piece.numel
            if count:
                sample_note = (
                    ""
                    if read_numel == info.numel
                    else f" among the {read_numel:,} of {info.numel:,} numbers that were read"
                )
                values = f"{count} NaN or infinite{sample_note}, first at {first_position}"
                yield make_problem("error", name, tensor, "not finite", "finite numbers", values)

    def _changed_text(self, name: str, expert: Checkpoint) -> Iterator[Problem]:
        """Text tensors that differ from the pretrained ones, although they are not merged."""
        for parameter in self.parameters:
            is_comparable = expert.infos.get(parameter.name) == self.pretrained.infos[parameter.name]
            if parameter.part not in {UNUSED_TEXT, TEXT_TOWER} or not is_comparable:
                continue
            if not _holds_equal_tensor(self.pretrained, expert, parameter.name):
                yield make_problem("warning", name, parameter.name, "other text")

    def _repeated(self, distances: Mapping[str, Distance], meter: Meter) -> Iterator[Problem]:
        """Experts with the same numbers as another expert."""
        names_by_content: dict[object, str] = {}
        for name, expert in self.experts.items():
            if distances[name].unchanged:
                continue
            content: object = distances[name].content_key if self.sampled else expert.digest
            if content in names_by_content and (
                not self.sampled or self._same(expert, self.experts[names_by_content[content]])
            ):
                yield make_problem(
                    "warning", name, "every tensor", "same file twice", "another model", names_by_content[content]
                )
            names_by_content.setdefault(content, name)
            meter.advance(_numel(expert), CHECKING_PHASE, name)

    def _same(self, first: Checkpoint, second: Checkpoint) -> bool:
        """Whether all numbers of two experts with the same sample are the same."""
        return first.infos == second.infos and all(_holds_equal_tensor(first, second, name) for name in first.infos)


def _sample_is_finite(checkpoint: Checkpoint) -> bool:
    """Whether all numbers in the samples of a checkpoint's tensors are finite."""
    sizes = ((name, info.numel) for name, info in checkpoint.infos.items() if info.dtype.is_floating_point)
    samples = [
        piece.read(checkpoint, name) for name, numel in sizes for piece in tensor_pieces(name, numel, sampled=True)
    ]
    return not samples or bool(torch.isfinite(torch.cat(samples)).all())


def _numel(checkpoint: Checkpoint) -> int:
    return sum(info.numel for info in checkpoint.infos.values())


def _holds_equal_tensor(first: Checkpoint, second: Checkpoint, name: str) -> bool:
    """Whether a tensor, which has the same shape and dtype in two checkpoints, holds the same numbers in both."""
    pieces = tensor_pieces(name, first.infos[name].numel, sampled=False)
    return all(torch.equal(piece.read(first, name), piece.read(second, name)) for piece in pieces)


def _find_distance_problems(pretrained: Checkpoint, distances: Mapping[str, Distance]) -> Iterator[Problem]:
    """Experts that equal the pretrained model, come from another model, or have changes that its dtype cannot hold."""
    for name, distance in distances.items():
        if distance.unchanged:
            finding = "the pretrained model's numbers"
            yield make_problem("warning", name, "every tensor", "not changed", "a fine-tuned model", finding)
        if distance.unrelated:
            expected = f"a change below {MAX_RELATED_CHANGE:.0%} of the weights and a cosine above {MIN_RELATED_COSINE}"
            yield make_problem("warning", name, "every tensor", "unrelated", expected, distance.text())
        if distance.lost_share > LOST_SHARE_LIMIT:
            kind = dtype_name(next(i.dtype for i in pretrained.infos.values() if i.dtype in HALF_DTYPES))
            vanishing = f"{distance.lost_share:.0%} of the changes, scaled by {TYPICAL_SCALING}, vanish in {kind}"
            yield make_problem("warning", name, "every tensor", "rounding", "changes that the type can hold", vanishing)
        for tensor, largest in distance.huge_numbers.items():
            yield make_problem("warning", name, tensor, "huge numbers", f"below {HUGE_NUMBER:.0e}", f"{largest:.3g}")
        for tensor, largest in distance.out_of_range.items():
            kind = dtype_name(pretrained.infos[tensor].dtype)
            yield make_problem("warning", name, tensor, "range", kind, f"{largest:.6g}")
