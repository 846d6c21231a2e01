"""Checks whether experts fit their pretrained model, and names every tensor that does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import torch

from merging.base.errors import FamilyError
from merging.base.text import first_few, plural
from merging.models.checkpoint import DIGEST_PIECE, Checkpoint
from merging.models.families import TEXT_TOWER, UNKNOWN, UNMERGED, UNUSED_TEXT, Parameter, Role, guess_parameters
from merging.models.formats.model_sources import Source, open_checkpoint
from merging.models.head_detection import refuse_head
from merging.models.inspection.architecture_problems import find_layer_differences, find_stated_differences
from merging.models.inspection.distance import Distance
from merging.models.inspection.fit_report import ALL_READ_SENTENCE, SAMPLED_SENTENCE, FitReport, Problem, make_problem
from merging.models.inspection.name_mismatch import find_mismatch
from merging.models.inspection.number_problems import NumberCheck
from merging.models.inspection.tensor_pieces import MAX_WHOLE_NUMEL, SampledCheckpoint
from merging.models.team.team import Team, form_team
from merging.models.team.vocabulary_choices import COMMON
from merging.models.tensor_info import TensorInfo, dtype_name
from merging.models.tower_names import PROJ, find_tower_tensor, group_tower_names
from merging.tasks.context import QUIET, Context

READ_ALL_BYTES = 64_000_000  # bytes of all models up to which every number is read, even if a sample is requested
RUNNING_STATISTICS = (".running_mean", ".running_var")
OPTIONAL_ROLES = UNMERGED - {Role.STATISTIC}  # roles of tensors that experts need not have


def check_fit(
    pretrained: Source,
    experts: Mapping[str, Source],
    *,
    values: bool | None = None,
    sample: bool = False,
    vocabulary: str = COMMON,
    context: Context = QUIET,
) -> FitReport:
    """The report on a pretrained model and its experts; tensors are compared under the pretrained model's names.

    For networks other than CLIP, differences that a team's policies resolve are in the notes; ``vocabulary`` is such a
    policy.

    ``sample`` and ``values`` decide which numbers are read, to check that they are finite and to measure each expert's
    distance from the pretrained model:

    - by default, or with ``values=True``: every number;
    - with ``sample=True``: some numbers of every large tensor if all models together have more than ``READ_ALL_BYTES``
      bytes, else every number;
    - with ``sample=True, values=False``: some numbers of every large tensor, whatever the size of the models;
    - with ``values=False`` alone: none.

    Progress is reported only while every number is read. If a sample leaves open whether an expert is related, all
    numbers of the expert are read.

    A pretrained model of no known family is compared, too, although nothing can be merged with it.

    Raises:
        CheckpointError: a file is not a checkpoint or holds only a head, or an adapter does not belong to the
            pretrained model.
        Cancelled: the user cancelled.
    """
    base = refuse_head(open_checkpoint(pretrained, "pretrained"))
    expert_checkpoints = {
        name: refuse_head(open_checkpoint(expert, name, like=base)) for name, expert in experts.items()
    }
    if values is None:
        values = (
            not sample
            or sum(checkpoint.nbytes for checkpoint in (base, *expert_checkpoints.values())) <= READ_ALL_BYTES
        )
    if sample and not values:  # a sample of a small tensor is the whole tensor
        values = all(info.numel <= MAX_WHOLE_NUMEL for info in base.infos.values())
    team = form_team(base, expert_checkpoints, vocabulary)
    return _make_report(team, ALL_READ_SENTENCE if values else SAMPLED_SENTENCE if sample else "", context)


def _make_report(team: Team, read_sentence: str, context: Context) -> FitReport:
    """The report on a team; ``read_sentence`` says which numbers to read: all, a sample, or (empty) none."""
    pretrained, experts, no_family = team.pretrained, team.experts, ""
    try:
        parameters = pretrained.parameters
    except FamilyError as error:
        parameters, no_family = guess_parameters(pretrained.infos), str(error)
    problems = [make_problem("error", m.expert, m.tensor, m.kind, "", m.sentence) for m in team.misfits]
    if is_quantized := any(problem.problem == "quantized" for problem in problems):
        read_sentence = ""  # packed numbers cannot be compared
    else:
        problems += _find_structure_problems(pretrained, experts, parameters)
    distances: Mapping[str, Distance] = {}
    if read_sentence:
        models = (pretrained, experts)
        if read_sentence == SAMPLED_SENTENCE:
            models = (
                SampledCheckpoint(pretrained),
                {name: SampledCheckpoint(checkpoint) for name, checkpoint in experts.items()},
            )
        numbers = NumberCheck(*models, parameters, sampled=read_sentence == SAMPLED_SENTENCE)
        number_problems, distances = numbers.check(context)
        problems += number_problems
    notes = (
        ()
        if is_quantized
        else (
            *_describe_counts(pretrained, parameters),
            *team.notes,
            *_list_opening_notes({"pretrained": pretrained, **experts}),
        )
    )
    return FitReport(tuple(problems), len(parameters), notes, distances, read_sentence, no_family)


def _describe_counts(pretrained: Checkpoint, parameters: Iterable[Parameter]) -> Iterator[str]:
    """Sentences on how many tensors are merged and how many are not."""
    merged = [p for p in parameters if p.role not in UNMERGED]
    copied = [p for p in parameters if p.role == Role.BUFFER]
    numbers = sum(pretrained.infos[p.name].numel for p in merged)
    are = "is" if len(merged) == 1 else "are"
    yield f"{plural(len(merged), 'tensor')} with {plural(numbers, 'number')} {are} merged."
    if copied:
        parts = first_few(f"{count} {part}" for part, count in Counter(p.part for p in copied).items())
        tensors = plural(len(copied), "tensor is", "tensors are")
        yield f"{tensors} copied from the pretrained model: {parts}."
    visual = group_tower_names(pretrained.infos)
    if not pretrained.is_inferred and "conv1.weight" in visual and PROJ not in visual:
        yield "The pretrained model has no output projection (visual.proj), so the merged model has none."
    if any(parameter.name.endswith(RUNNING_STATISTICS) for parameter in merged):
        yield "Running statistics of batch norms are merged like weights; compute them again for the merged model."


def _list_opening_notes(checkpoints: Mapping[str, Checkpoint]) -> Iterator[str]:
    """The notes of all checkpoints on how they were opened."""
    for name, checkpoint in checkpoints.items():
        yield from (f"{name}: {note}" for note in checkpoint.notes)


def _find_structure_problems(
    pretrained: Checkpoint, experts: Mapping[str, Checkpoint], parameters: Iterable[Parameter]
) -> Iterator[Problem]:
    """Problems of names, shapes, dtypes and architectures, without reading numbers."""
    if not experts:
        yield make_problem("error", "experts", "(none)", "nothing to merge", "at least one expert", "none")
    for parameter in parameters:
        info = pretrained.infos[parameter.name]
        if parameter.role not in OPTIONAL_ROLES and not info.dtype.is_floating_point:
            kind = dtype_name(info.dtype)
            yield make_problem("error", "pretrained", parameter.name, "type", "a floating-point type", kind)
    for name, checkpoint in (("pretrained", pretrained), *experts.items()):
        for caution in checkpoint.cautions:
            yield make_problem("warning", name, "the file", "opened", "", caution)
    yield from find_stated_differences(pretrained, experts)
    for name, expert in experts.items():
        yield from _compare_expert(pretrained, name, expert, parameters)


def _compare_expert(
    pretrained: Checkpoint, name: str, expert: Checkpoint, parameters: Iterable[Parameter]
) -> Iterator[Problem]:
    """Problems of the names, shapes and dtypes of one expert."""
    if mismatch := find_mismatch(list(pretrained.infos), list(expert.infos)):
        yield make_problem("error", name, "every tensor", *mismatch)
        return
    layer_problems, uneven_tensors = find_layer_differences(pretrained, name, expert)
    yield from layer_problems
    for parameter in parameters:
        if parameter.name in uneven_tensors:  # reported as a whole layer
            continue
        expected, actual = pretrained.infos[parameter.name], expert.infos.get(parameter.name)
        if actual is None:
            if parameter.role not in OPTIONAL_ROLES:  # buffers come from the pretrained model anyway
                yield make_problem("error", name, parameter.name, "missing", str(expected.shape), "nothing")
        elif actual.shape != expected.shape:
            yield _make_shape_problem(parameter, name, expected.shape, actual.shape)
        elif actual.dtype.is_floating_point != expected.dtype.is_floating_point:
            is_trained = parameter.role not in OPTIONAL_ROLES and (
                parameter.part != UNKNOWN or parameter.name.endswith((".weight", ".bias"))
            )
            severity = "error" if is_trained else "warning"
            yield make_problem(
                severity, name, parameter.name, "type", dtype_name(expected.dtype), dtype_name(actual.dtype)
            )
        elif actual.dtype != expected.dtype and not expert.adds_changes:
            yield make_problem(
                "warning", name, parameter.name, "precision", dtype_name(expected.dtype), dtype_name(actual.dtype)
            )
    if pretrained.is_inferred:
        yield from _find_network_problems(pretrained, name, expert, uneven_tensors)
    else:
        yield from _find_extra_tensors(
            pretrained, name, {n: i for n, i in expert.infos.items() if n not in uneven_tensors}
        )


def _find_extra_tensors(pretrained: Checkpoint, name: str, infos: Mapping[str, TensorInfo]) -> Iterator[Problem]:
    """The tensors of an expert that the pretrained model does not have."""
    for extra, info in infos.items():
        if extra not in pretrained.infos:
            tower_tensor = find_tower_tensor(extra)
            kind = "projection" if tower_tensor is not None and tower_tensor.name == PROJ else "extra"
            yield make_problem("warning", name, extra, kind, "no such tensor", str(info.shape))


def _find_network_problems(
    pretrained: Checkpoint, name: str, expert: Checkpoint, uneven_tensors: frozenset[str]
) -> Iterator[Problem]:
    """Tensors that a merge of networks other than CLIP would lose, and integers that differ, except single counters."""
    for tensor, info in expert.infos.items():
        if tensor in uneven_tensors:
            continue
        pretrained_info = pretrained.infos.get(tensor)
        if pretrained_info is None:
            yield make_problem("error", name, tensor, "only here", "no such tensor", str(info.shape))
        elif pretrained_info.shape == info.shape != () and not (
            info.dtype.is_floating_point or pretrained_info.dtype.is_floating_point
        ):
            for start in range(0, info.numel, DIGEST_PIECE):
                span = (tensor, start, min(start + DIGEST_PIECE, info.numel))
                if not torch.equal(pretrained.read_flat(*span).long(), expert.read_flat(*span).long()):
                    yield make_problem("error", name, tensor, "other integers", "the pretrained model's", "others")
                    break


def _make_shape_problem(parameter: Parameter, name: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> Problem:
    """The problem of a tensor with another shape; another image size is a separate kind of problem."""
    if parameter.part == "positional_embedding" and len(expected) == len(actual) == 2 and expected[1] == actual[1]:
        return make_problem(
            "error", name, parameter.name, "resolution", _describe_tokens(expected[0]), _describe_tokens(actual[0])
        )
    severity = "warning" if parameter.part in {UNUSED_TEXT, TEXT_TOWER} else "error"  # copied from the pretrained model
    return make_problem(severity, name, parameter.name, "shape", str(expected), str(actual))


def _describe_tokens(tokens: int) -> str:
    """The image size in words that a number of position embeddings belongs to."""
    side = round(max(tokens - 1, 0) ** 0.5)
    return f"images of {side} × {side} patches" if side**2 == tokens - 1 else f"{tokens} positions"
