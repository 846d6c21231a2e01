"""The check whether pretrained and experts fit together: every tensor that does not, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import torch

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import TEXT_TOWER, UNKNOWN, UNUSED_TEXT, Parameter, Role, guess
from merging.checkpoints.heads import refuse_head
from merging.checkpoints.tensor_info import dtype_name
from merging.errors import FamilyError
from merging.formats.opening import Source, open_checkpoint
from merging.inspection.distance import ALIKE, FAR, HUGE, LOST, SAMPLE, TYPICAL_SCALING, Distance, measure
from merging.inspection.fit_report import FIXES, FitReport, Problem
from merging.inspection.name_mismatch import other_names
from merging.progress import Cancel, Meter, ProgressCallback
from merging.text import first_few

PIECE = 1 << 20  # scalars read at a time when values are checked
CHECKING = "Checking every number"
RUNNING = (".running_mean", ".running_var")
HALVES = (torch.float16, torch.bfloat16)


def fit(
    pretrained: Source,
    experts: Mapping[str, Source],
    *,
    values: bool | None = None,
    sample: bool = False,
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> FitReport:
    """The report on pretrained and experts; tensors are compared under the pretrained model's names.

    Every number is read: all must be finite, and each expert's distance from the pretrained model is reported. With
    ``sample`` only some numbers of every tensor are read, unless ``values`` is true; with ``values=False`` and no
    sample, none. Progress is reported only if every number is read.

    A pretrained model of no known family is compared, too, although nothing can be merged with it.

    Raises:
        CheckpointError: a file that is no checkpoint or holds a head alone, or an adapter that does not belong to the
            pretrained model.
        Cancelled: ``cancel`` asked to stop.
    """
    values = not sample if values is None else values
    base = refuse_head(open_checkpoint(pretrained, "pretrained"))
    opened = {name: refuse_head(open_checkpoint(expert, name, like=base)) for name, expert in experts.items()}
    return _report(base, opened, values, sample, progress, cancel)


def _report(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], values: bool, sample: bool,
    progress: ProgressCallback | None, cancel: Cancel | None,
) -> FitReport:  # fmt: skip
    no_family = ""
    try:
        parameters = pretrained.parameters
    except FamilyError as error:
        parameters, no_family = guess(pretrained.infos), str(error)
    problems = list(_structure(pretrained, experts, parameters))
    distances: Mapping[str, Distance] = {}
    meter = Meter(_work(pretrained, experts), progress, cancel) if values else None
    if values or sample:
        most = None if values else SAMPLE
        for name, checkpoint in (("pretrained", pretrained), *experts.items()):
            problems.extend(_not_finite(name, checkpoint, most, meter))
            if values and checkpoint is not pretrained:
                problems.extend(_changed_text(pretrained, name, checkpoint, parameters))
        distances = measure(pretrained, experts, parameters, most, meter)
        problems.extend(_distance_problems(pretrained, distances))
        problems.extend(_repeated(experts, distances, meter))
    notes = (*_counts(pretrained, parameters), *_opening_notes({"pretrained": pretrained, **experts}))
    return FitReport(tuple(problems), len(parameters), notes, distances, no_family)


def _work(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> int:
    """Scalars to read if values are checked: all for finiteness and distances, the experts' again for digests."""
    own = sum(info.numel for info in pretrained.infos.values())
    others = sum(info.numel for expert in experts.values() for info in expert.infos.values())
    return own + 2 * others + own * (len(experts) + 1)


def _counts(pretrained: Checkpoint, parameters: Iterable[Parameter]) -> Iterator[str]:
    """Sentences on how many tensors are merged and how many are not."""
    merged = [p for p in parameters if p.role != Role.BUFFER]
    kept = [p for p in parameters if p.role == Role.BUFFER]
    numbers = sum(pretrained.infos[p.name].numel for p in merged)
    yield f"{len(merged)} tensors with {numbers:,} numbers are merged."
    if kept:
        parts = first_few(f"{count} {part}" for part, count in Counter(p.part for p in kept).items())
        yield f"{len(kept)} tensors are kept as the pretrained model has them: {parts}."
    if any(parameter.name.endswith(RUNNING) for parameter in merged):
        yield "Running statistics of batch norms are merged like weights; compute them anew for the merged model."


def _opening_notes(checkpoints: Mapping[str, Checkpoint]) -> Iterator[str]:
    """The notes on how the checkpoints were opened."""
    for name, checkpoint in checkpoints.items():
        yield from (f"{name}: {note}" for note in checkpoint.notes)


def _problem(severity: str, checkpoint: str, tensor: str, kind: str, expected: str = "", found: str = "") -> Problem:
    return Problem(severity, checkpoint, tensor, kind, expected, found, FIXES[kind])


def _structure(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], parameters: Iterable[Parameter]
) -> Iterator[Problem]:
    if not experts:
        yield _problem("error", "experts", "(none)", "nothing to merge", "at least one expert", "none")
    for parameter in parameters:
        info = pretrained.infos[parameter.name]
        if parameter.role != Role.BUFFER and not info.dtype.is_floating_point:
            kind = dtype_name(info.dtype)
            yield _problem("error", "pretrained", parameter.name, "type", "a floating-point type", kind)
    for name, checkpoint in (("pretrained", pretrained), *experts.items()):
        for caution in checkpoint.cautions:
            yield _problem("warning", name, "the file", "opened", "", caution)
    for name, expert in experts.items():
        yield from _against(pretrained, name, expert, parameters)


def _against(
    pretrained: Checkpoint, name: str, expert: Checkpoint, parameters: Iterable[Parameter]
) -> Iterator[Problem]:
    if mismatch := other_names(list(pretrained.infos), list(expert.infos)):
        yield _problem("error", name, "every tensor", *mismatch)
        return
    for parameter in parameters:
        expected, actual = pretrained.infos[parameter.name], expert.infos.get(parameter.name)
        if actual is None:
            if parameter.role != Role.BUFFER:  # buffers come from the pretrained model anyway
                yield _problem("error", name, parameter.name, "missing", str(expected.shape), "nothing")
        elif actual.shape != expected.shape:
            yield _shape(parameter, name, expected.shape, actual.shape)
        elif actual.dtype.is_floating_point != expected.dtype.is_floating_point:
            trained = parameter.role != Role.BUFFER and (
                parameter.part != UNKNOWN or parameter.name.endswith((".weight", ".bias"))
            )
            severity = "error" if trained else "warning"
            yield _problem(severity, name, parameter.name, "type", dtype_name(expected.dtype), dtype_name(actual.dtype))
        elif actual.dtype != expected.dtype:
            yield _problem(
                "warning", name, parameter.name, "precision", dtype_name(expected.dtype), dtype_name(actual.dtype)
            )
    for extra in expert.infos:
        if extra not in pretrained.infos:
            yield _problem("warning", name, extra, "extra", "no such tensor", str(expert.infos[extra].shape))


def _shape(parameter: Parameter, name: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> Problem:
    """The problem of a tensor of another shape; another image size has a kind of its own."""
    if parameter.part == "positional_embedding" and len(expected) == len(actual) == 2 and expected[1] == actual[1]:
        return _problem("error", name, parameter.name, "resolution", _patches(expected[0]), _patches(actual[0]))
    severity = "warning" if parameter.part in {UNUSED_TEXT, TEXT_TOWER} else "error"  # kept from the pretrained model
    return _problem(severity, name, parameter.name, "shape", str(expected), str(actual))


def _patches(tokens: int) -> str:
    side = round(max(tokens - 1, 0) ** 0.5)
    return f"images of {side} × {side} patches" if side**2 == tokens - 1 else f"{tokens} positions"


def _repeated(
    experts: Mapping[str, Checkpoint], distances: Mapping[str, Distance], meter: Meter | None
) -> Iterator[Problem]:
    """Experts with the same numbers as another expert; on a sample, with the same sums to the last bit."""
    seen: dict[object, str] = {}
    for name, expert in experts.items():
        if distances[name].unchanged:
            continue
        content: object = distances[name].fingerprint if meter is None else expert.digest
        if content in seen:
            yield _problem("warning", name, "every tensor", "same file twice", "another model", seen[content])
        seen.setdefault(content, name)
        if meter:
            meter.advance(sum(info.numel for info in expert.infos.values()), CHECKING, name)


def _distance_problems(pretrained: Checkpoint, distances: Mapping[str, Distance]) -> Iterator[Problem]:
    """Experts that equal the pretrained model, come from another one, or have changes that its dtype cannot hold."""
    for name, distance in distances.items():
        if distance.unchanged:
            same = "the pretrained one" + (", on a sample" if distance.sampled else "")
            yield _problem("warning", name, "every tensor", "not changed", "a fine-tuned model", same)
        if distance.unrelated:
            near = f"a change below {FAR:.0%} of the weights and a cosine above {ALIKE}"
            yield _problem("warning", name, "every tensor", "unrelated", near, distance.text())
        if distance.lost_share > LOST:
            kind = dtype_name(next(i.dtype for i in pretrained.infos.values() if i.dtype in HALVES))
            vanishing = f"{distance.lost_share:.0%} of the changes, scaled by {TYPICAL_SCALING}, vanish in {kind}"
            yield _problem("warning", name, "every tensor", "rounding", "changes that the type can hold", vanishing)
        for tensor, largest in distance.huge.items():
            yield _problem("warning", name, tensor, "huge numbers", f"below {HUGE:.0e}", f"{largest:.3g}")
        for tensor, largest in distance.out_of_range.items():
            kind = dtype_name(pretrained.infos[tensor].dtype)
            yield _problem("warning", name, tensor, "range", kind, f"{largest:.6g}")


def _changed_text(
    pretrained: Checkpoint, name: str, expert: Checkpoint, parameters: Iterable[Parameter]
) -> Iterator[Problem]:
    """Text tensors that differ from the pretrained ones, although they are not merged."""
    for parameter in parameters:
        info = pretrained.infos[parameter.name]
        if parameter.part not in {UNUSED_TEXT, TEXT_TOWER} or expert.infos.get(parameter.name) != info:
            continue
        for start in range(0, info.numel, PIECE):
            span = (parameter.name, start, min(start + PIECE, info.numel))
            if not torch.equal(pretrained.read_flat(*span), expert.read_flat(*span)):
                yield _problem("warning", name, parameter.name, "other text")
                break


def _not_finite(name: str, checkpoint: Checkpoint, most: int | None, meter: Meter | None) -> Iterator[Problem]:
    """Tensors with NaN or infinity among the first ``most`` numbers of each (None: all)."""
    for tensor, info in checkpoint.infos.items():
        if meter:
            meter.advance(info.numel, CHECKING, name)
        if not info.dtype.is_floating_point:
            continue
        count, first, numel = 0, -1, info.numel if most is None else min(most, info.numel)
        for start in range(0, numel, PIECE):
            bad = ~torch.isfinite(checkpoint.read_flat(tensor, start, min(start + PIECE, numel)))
            if bad.any():
                first = start + int(bad.int().argmax()) if first < 0 else first
                count += int(bad.sum())
        if count:
            among = f" of the first {numel:,}" if numel < info.numel else ""
            values = f"{count} NaN or infinite{among}, first at {first}"
            yield _problem("error", name, tensor, "not finite", "finite numbers", values)
