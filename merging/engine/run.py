"""Running a recipe: checks, surveys, and a pass that merges and writes tensor by tensor.

Memory holds one tensor of every expert (for elementwise chains one piece of a tensor), never a model per expert. All
checks come before the first number is written. A run that fails half-way returns nothing.

A survey is a pass of one method over all tensors, for its statistics; a stage is a step of the chain with these. Dead
scalars are those of the unused text tower in a published image encoder, which a recipe may count in global quantiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import torch
from torch import Tensor

from merging.base.devices import choose_device, describe_device, retry_on_oom
from merging.base.files.tables import Frames, Table
from merging.base.progress import Meter
from merging.base.threads import limit_to_one_thread
from merging.engine.capture.gradient_reader import FileGradients, GradientsOf
from merging.engine.chain_work import count_passes
from merging.engine.layer_inputs import CallerInputs, CapturedInputs, LayerInputs, LayerInputSource
from merging.engine.merged_inputs import MergedInputs
from merging.engine.merging_pass import (
    RemoteTensors,
    make_cut_predicate,
    run_merging_pass,
    write_remote,
    write_unmerged,
)
from merging.engine.needs import (
    check_exemplars,
    check_kind,
    check_needs,
    check_test_data,
    warn_of_few_matrices,
    warn_of_unused_images,
)
from merging.engine.outputs import MERGED, LastSlot, MemorySink, Notes, Output, Rows, Sink, StoredSlot
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stage, Stream
from merging.images.exemplars import TaskExemplars
from merging.methods.method import Merge, Needs
from merging.methods.slot import Survey
from merging.methods.split_qkv import find_packed_tensors, split_method
from merging.models.checkpoint import Checkpoint, UnusedText
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import FitReport
from merging.models.team.team import TeamMember, head_tensors
from merging.recipes.chain_rules import refuse_too_many
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    import pandas as pd

    from merging.engine.learning.learning_state import LearningState
    from merging.engine.modules.modules import Modules
    from merging.recipes.recipe import Recipe


@dataclass(frozen=True)
class MergeResult:
    """The result of a merge. Every state dict has the names, shapes, dtypes and order of the pretrained model.

    ``state_dict`` is empty if the caller's sinks received the tensors. ``task_state_dicts`` is {expert: state dict} for
    merges that give one model per task, else None. ``tables`` are tidy tables by name (tensors, saliency, masks,
    thresholds, ...). ``warnings`` are sentences on possible problems of the result. ``modules`` are those that an adapt
    put on top of the merged model, None without an adapt. ``heads`` are the tensors that are not merged but belong to
    one task each, {expert: {tensor: value}}; empty for CLIP.
    """

    state_dict: dict[str, Tensor] = field(repr=False)
    task_state_dicts: dict[str, dict[str, Tensor]] | None = field(repr=False)
    tables: dict[str, pd.DataFrame] = field(repr=False)
    recipe: Recipe
    device: str
    seconds: float
    warnings: tuple[str, ...] = ()
    modules: Modules | None = None
    heads: dict[str, dict[str, Tensor]] = field(default_factory=dict, repr=False)


class ChainData(TypedDict, total=False):
    """The data that a caller may pass beside the checkpoints; see ``merging.merge``."""

    layer_inputs: LayerInputs | LayerInputSource | None
    gradients: GradientsOf | None
    exemplars: Mapping[str, Any] | None
    test_data: Mapping[str, Any] | None


def run_recipe(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    *,
    context: Context = QUIET,
    learning_state: LearningState | None = None,
    make_sink: Callable[[str], Sink] | None = None,
    only: Collection[str] | None = None,
    remote: RemoteTensors | None = None,
    **data: Unpack[ChainData],
) -> MergeResult:
    """Run a recipe on opened checkpoints, without its adapt; see ``merging.merge`` for the arguments and errors.

    ``make_sink`` is called with "merged", or with each expert's name for merges that give one model per task. The sinks
    then receive the tensors piece by piece, and the result's state dicts stay empty. With ``only``, just these tensors
    and the buffers are written, with the same numbers as in the whole merge. ``layer_inputs`` may also be moments.
    A merge that learns continues from ``learning_state``. ``remote`` computes the tensors that it names.
    """
    started = time.monotonic()
    if unknown := data.keys() - ChainData.__annotations__.keys():
        raise TypeError(f"A merge takes no argument {', '.join(sorted(unknown))}.")
    layer_inputs, gradients = data.get("layer_inputs"), data.get("gradients")
    report = check_fit(pretrained, experts, values=False)  # not the values: the run itself finds NaN and infinity
    report.raise_if_unfit()
    refuse_too_many(recipe.methods, len(experts))
    check_kind(recipe, pretrained, layer_inputs, gradients)  # of network: images run through CLIP only
    task_exemplars = check_exemplars(data.get("exemplars"))
    task_images = check_test_data(data.get("test_data"))
    check_needs(recipe, experts, layer_inputs, task_exemplars, task_images, gradients)
    sink = cache(make_sink or (lambda _: MemorySink(pretrained)))  # a retry with less memory writes to the same sinks

    def merge_on(device: torch.device) -> MergeResult:
        source = _make_layer_input_source(recipe, pretrained, experts, layer_inputs, task_exemplars, device)
        dead = pretrained.unused_text if recipe.count_dead_params else UnusedText()
        inputs = _add_merged_inputs(recipe, RunInputs(pretrained, experts, source, device, dead), task_exemplars)
        meter = context.meter(inputs.work * count_passes(recipe))
        meter.check()
        output = Output(pretrained, inputs.names if recipe.per_task else (MERGED,), sink)
        tasks = {need: (task_images if need == Needs.TEST_DATA else task_exemplars) or {} for need in Needs}
        with limit_to_one_thread(device), ExitStack() as files:
            inputs = files.enter_context(_add_gradients(recipe, inputs, task_exemplars, meter, gradients))
            return _merge(recipe, inputs, _LearningInputs(tasks, learning_state, files), meter, output, only, remote)

    result, oom_warnings = retry_on_oom(choose_device(context.device), merge_on)
    warnings = (
        *_fit_warnings(report),
        *warn_of_few_matrices(recipe, pretrained),
        *warn_of_unused_images(recipe, task_exemplars, task_images),
        *result.warnings,
        *oom_warnings,
    )
    heads = head_tensors(pretrained)
    return replace(result, seconds=time.monotonic() - started, warnings=warnings, heads=heads)


def _merge(
    recipe: Recipe,
    inputs: RunInputs,
    learning: _LearningInputs,
    meter: Meter,
    output: Output,
    only: Collection[str] | None,
    remote: RemoteTensors | None,
) -> MergeResult:
    """The result of one merge, from its surveys to the last tensor, on the device of the inputs."""
    notes = Notes()
    stages, tables, warnings = _run_surveys(recipe, inputs, meter, learning)
    # If all tensors are written, the same object is used, because it holds the buffers of the survey. Merges whose
    # layer inputs pass through merged layers need all tensors.
    if remote is not None:
        only = {parameter.name for parameter in inputs.parameters} - set(remote.names)
    selected = inputs if only is None or inputs.merged_inputs else replace(inputs, subset=frozenset(only))
    run_merging_pass(inputs, selected, stages, meter, output, notes)
    if remote is not None:
        write_remote(remote, inputs, meter, output, notes)
    write_unmerged(inputs, output)

    states = {name: sink.state_dict for name, sink in output.sinks.items() if isinstance(sink, MemorySink)}
    return MergeResult(
        state_dict={} if recipe.per_task else states.get(MERGED, {}),
        task_state_dicts=states if recipe.per_task else None,
        tables=Frames({**output.tables(inputs, recipe.per_task), **tables, **notes.tables()}),
        recipe=recipe,
        device=describe_device(inputs.device),
        seconds=0.0,
        warnings=warnings,
    )


def _make_layer_input_source(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    layer_inputs: LayerInputs | LayerInputSource | None,
    exemplars: Mapping[str, TaskExemplars] | None,
    device: torch.device,
) -> LayerInputSource | None:
    """The moments that the chain reads, from the caller or captured from exemplars; None if no method reads any."""
    if not any(method.reads_layer_inputs for method, _ in recipe.data_methods):
        return None
    if layer_inputs is not None and hasattr(layer_inputs, "moments"):  # a source already
        return layer_inputs
    if layer_inputs is not None:
        return CallerInputs(layer_inputs, experts, pretrained, device)
    images = {name: task.images for name, task in (exemplars or {}).items()}
    return CapturedInputs(experts, images, device, like=pretrained)


def _add_merged_inputs(recipe: Recipe, inputs: RunInputs, exemplars: Mapping[str, TaskExemplars] | None) -> RunInputs:
    """The inputs with layer inputs that pass through the merged layers, if the merge needs them."""
    merge = recipe.methods[-1]
    if not isinstance(merge, Merge) or not merge.through_merged:
        return inputs
    images = {name: task.images for name, task in (exemplars or {}).items()}
    merged_inputs = MergedInputs(inputs.pretrained, inputs.experts, images, inputs.device, inputs.dtype)
    return replace(inputs, merged_inputs=merged_inputs)


@contextmanager
def _add_gradients(
    recipe: Recipe,
    inputs: RunInputs,
    exemplars: Mapping[str, TaskExemplars] | None,
    meter: Meter,
    caller_gradients: GradientsOf | None = None,
) -> Iterator[RunInputs]:
    """The inputs with the gradients that the chain needs, valid inside the ``with`` block."""
    kinds = {method.gradients for method, _ in recipe.data_methods if method.gradients}
    if not kinds:
        yield inputs
        return
    if caller_gradients is not None:
        shapes = {parameter.name: inputs.pretrained.infos[parameter.name].shape for parameter in inputs.parameters}
        stored = {name: expert.stored for name, expert in inputs.experts.items() if isinstance(expert, TeamMember)}
        readers = {
            kind: FileGradients(caller_gradients, kind, inputs.names, shapes, inputs.device, inputs.dtype, stored)
            for kind in kinds
        }
        yield replace(inputs, gradients=readers)
        return
    from merging.engine.gradients import gather_gradients  # its imports take a while

    seed = recipe.exemplars.seed if recipe.exemplars else 0
    with gather_gradients(kinds, inputs, exemplars or {}, seed, meter) as gradients:
        yield replace(inputs, gradients=gradients)


class SingleTensors:
    """A merge that computes single tensors, in any order, with the same numbers as the whole merge.

    Only chains for which ``merging.engine.chain_work.list_separable_tensors`` finds tensors can do this. Their surveys
    run in the constructor.
    """

    def __init__(
        self, recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], device: str = "auto"
    ) -> None:
        check_fit(pretrained, experts, values=False).raise_if_unfit()
        dead = pretrained.unused_text if recipe.count_dead_params else UnusedText()
        self._inputs = RunInputs(pretrained, experts, input_source=None, device=choose_device(device), dead=dead)
        with limit_to_one_thread(self._inputs.device):
            self._stages, _, _ = _run_surveys(recipe, self._inputs, Meter(0), NO_LEARNING)

    def compute(self, name: str) -> tuple[StoredSlot, Rows]:
        """Merge one tensor: its stored values, and the rows of tables that methods note on it."""
        inputs, notes = self._inputs, Notes()
        output = LastSlot(inputs.pretrained)
        with limit_to_one_thread(inputs.device):
            run_merging_pass(inputs, replace(inputs, subset=frozenset({name})), self._stages, Meter(0), output, notes)
        assert output.last is not None
        return output.last, notes.rows


@dataclass(frozen=True)
class _LearningInputs:
    """The inputs of a method that learns: images by kind and expert, the state of an interrupted run, open files."""

    tasks: Mapping[Needs, Mapping[str, TaskExemplars]]
    learning_state: LearningState | None
    files: ExitStack

    def run_learning(self, stage: Stage, before: tuple[Stage, ...], slots: Stream) -> Survey:
        """The result of the learning of a stage's method, after the stages ``before`` it."""
        from merging.engine.learning.learn import learn
        from merging.engine.learning.learning_state import LearningState  # its imports take a while

        tasks = self.tasks[stage.method.needs_for(stage.params)]
        return learn(stage, before, slots, tasks, self.learning_state or LearningState(), self.files)


NO_LEARNING = _LearningInputs({}, None, ExitStack())  # for chains in which no method learns


def _run_surveys(
    recipe: Recipe, inputs: RunInputs, meter: Meter, learning: _LearningInputs
) -> tuple[tuple[Stage, ...], dict[str, Table], tuple[str, ...]]:
    """Every stage with its survey's statistics, the surveys' tables and warnings.

    A survey sees the task vectors as the earlier stages leave them.
    """
    stages: tuple[Stage, ...] = ()
    tables: dict[str, Table] = {}
    warnings: tuple[str, ...] = ()
    packed = find_packed_tensors(inputs.parameters, inputs.pretrained.infos)
    for registered_method, step in zip(recipe.methods, recipe.steps, strict=True):
        method, statistics = split_method(registered_method, step.params, packed), None
        learns = method.learns(step.params)
        if learns or method.surveys(step.params):
            before = tuple(stage for stage in stages if not stage.after_merge)
            chain = (*before, Stage(method, step.params))
            in_pieces = all(stage.is_elementwise for stage in chain)
            stream = Stream(
                inputs, before, in_pieces, meter, f"Surveying for {method.title}", cut=make_cut_predicate(inputs, chain)
            )
            if learns:
                survey = learning.run_learning(Stage(method, step.params), before, stream)
            else:
                assert method.survey is not None
                survey = method.survey(stream, step.params)
            statistics = survey.statistics
            for name, table in survey.tables.items():
                tables[f"{name}_{len(stages) + 1}" if name in tables else name] = table  # by the number of the step
            warnings += survey.warnings
        stages = (*stages, Stage(method, step.params, statistics))
    return stages, tables, warnings


@contextmanager
def edited_tensors(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    *,
    layer_inputs: LayerInputs | LayerInputSource | None,
    exemplars: Mapping[str, TaskExemplars] | None,
    device: torch.device,
    meter: Meter,
    phase: str,
    only: Collection[str],
) -> Iterator[Stream]:
    """A stream of the tensors ``only``, whole, as the edits of a recipe leave them; valid inside the ``with`` block.

    The recipe's merge does not run.
    """
    from merging.recipes.recipe import Recipe

    # A recipe must have a merge; this one has no survey and needs no data.
    edits = replace(recipe, merge=Recipe.build("weight_averaging").merge, adapt=None)
    source = _make_layer_input_source(edits, pretrained, experts, layer_inputs, exemplars, device)
    dead = pretrained.unused_text if recipe.count_dead_params else UnusedText()
    surveys = count_passes(edits) - 1  # without the pass that merges
    meter.total += RunInputs(pretrained, experts, input_source=None, device=device).work * surveys
    with _add_gradients(edits, RunInputs(pretrained, experts, source, device, dead), exemplars, meter) as inputs:
        stages, _, _ = _run_surveys(edits, inputs, meter, NO_LEARNING)  # no edit learns
        before = tuple(stage for stage in stages[:-1] if not stage.after_merge)
        yield Stream(replace(inputs, subset=frozenset(only)), before, in_pieces=False, meter=meter, phase=phase)


def _fit_warnings(report: FitReport) -> tuple[str, ...]:
    """A sentence per checkpoint and kind of problem, without the doubts that the caller states before a merge."""
    return tuple(group.sentence() for group in report.groups if not group.describe_doubt())
