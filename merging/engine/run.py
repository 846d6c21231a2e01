"""Runs a recipe: check, survey, stream tensor by tensor, write.

Memory holds one tensor (or, for elementwise chains, one piece of a tensor) times the number of experts, never a model
per expert. Everything is checked before the first number is written, and a result that fails half-way is not returned.
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
from merging.engine.merging_pass import RemoteTensors, find_cut_tensors, merging_pass, write_remote, write_unmerged
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
from merging.methods.split_qkv import packed_tensors, split_method
from merging.models.checkpoint import Checkpoint, UnusedText
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import FitReport
from merging.models.team.team import TeamMember, head_tensors
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    import pandas as pd

    from merging.engine.learning.learning_state import LearningState
    from merging.engine.modules.modules import Modules
    from merging.recipes.recipe import Recipe


@dataclass(frozen=True)
class MergeResult:
    """The result of a merge. Names, shapes, dtypes and order of every state dict are the pretrained model's.

    ``state_dict`` is empty where sinks took the tensors; ``task_state_dicts`` is {expert: state dict} for merges that
    give one model per task, else None. ``tables`` are tidy, by name (tensors, saliency, masks, thresholds, ...).
    ``warnings`` are sentences on what may be wrong with the result. ``modules`` is what an adapt put on top of the
    merged model, None without one. ``heads`` are the tensors that each task keeps, {expert: {tensor: value}}; empty for
    CLIP.
    """

    state_dict: dict[str, Tensor]
    task_state_dicts: dict[str, dict[str, Tensor]] | None
    tables: dict[str, pd.DataFrame]
    recipe: Recipe
    device: str
    seconds: float
    warnings: tuple[str, ...] = ()
    modules: Modules | None = None
    heads: dict[str, dict[str, Tensor]] = field(default_factory=dict)


class ChainData(TypedDict, total=False):
    """What a chain is given beside its checkpoints; see ``merging.merge``."""

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
    kept: LearningState | None = None,
    make_sink: Callable[[str], Sink] | None = None,
    only: Collection[str] | None = None,
    elsewhere: RemoteTensors | None = None,
    **data: Unpack[ChainData],
) -> MergeResult:
    """Run a recipe on opened checkpoints, without its adapt; see ``merging.merge`` for the arguments and errors.

    ``make_sink`` is called with "merged" (or with each expert's name, for merges that give one model per task); with it
    the tensors go there piece by piece and the result's state dicts stay empty. With ``only``, just these tensors and
    the buffers are written, with the numbers that the whole merge gives them. ``layer_inputs`` may be moments, too.
    A merge that learns goes on from what is ``kept``. The tensors that ``elsewhere`` names are computed there.
    """
    started = time.monotonic()
    if strange := data.keys() - ChainData.__annotations__.keys():
        raise TypeError(f"A merge is given no {', '.join(sorted(strange))}.")
    layer_inputs, gradients = data.get("layer_inputs"), data.get("gradients")
    report = check_fit(pretrained, experts, values=False)
    report.raise_if_bad()
    check_kind(recipe, pretrained, layer_inputs, gradients)
    task_exemplars = check_exemplars(data.get("exemplars"))
    task_images = check_test_data(data.get("test_data"))
    check_needs(recipe, experts, layer_inputs, task_exemplars, task_images, gradients)
    sink = cache(make_sink or (lambda _: MemorySink(pretrained)))  # a merge that begins anew writes into the same ones

    def merge_on(on: torch.device) -> MergeResult:
        evidence = _layer_input_source(recipe, pretrained, experts, layer_inputs, task_exemplars, on)
        dead = pretrained.unused_text if recipe.count_dead_params else UnusedText()
        inputs = _with_merged_inputs(recipe, RunInputs(pretrained, experts, evidence, on, dead), task_exemplars)
        meter = context.meter(inputs.work * count_passes(recipe))
        meter.check()
        output = Output(pretrained, inputs.names if recipe.per_task else (MERGED,), sink)
        tasks = {need: (task_images if need == Needs.TEST_DATA else task_exemplars) or {} for need in Needs}
        with limit_to_one_thread(on), ExitStack() as files:
            inputs = files.enter_context(_with_gradients(recipe, inputs, task_exemplars, meter, gradients))
            return _merge(recipe, inputs, _Learning(tasks, kept, files), meter, output, only, elsewhere)

    result, doubts = retry_on_oom(choose_device(context.device), merge_on)
    unseen = warn_of_unused_images(recipe, task_exemplars, task_images)
    warnings = (*_fit_warnings(report), *warn_of_few_matrices(recipe, pretrained), *unseen, *result.warnings, *doubts)
    heads = head_tensors(pretrained)
    return replace(result, seconds=time.monotonic() - started, warnings=warnings, heads=heads)


def _merge(
    recipe: Recipe,
    inputs: RunInputs,
    learning: _Learning,
    meter: Meter,
    output: Output,
    only: Collection[str] | None,
    elsewhere: RemoteTensors | None,
) -> MergeResult:
    """One merge, from surveys to the last tensor, on the device of the inputs."""
    notes = Notes()
    stages, tables, warnings = _survey(recipe, inputs, meter, learning)
    # The same inputs if nothing is left out: others would not reuse the buffers of the survey. Nothing is where
    # layers are merged one after the other.
    if elsewhere is not None:
        only = {parameter.name for parameter in inputs.parameters} - set(elsewhere.names)
    chosen = inputs if only is None or inputs.through_merged else replace(inputs, subset=frozenset(only))
    merging_pass(inputs, chosen, stages, meter, output, notes)
    if elsewhere is not None:
        write_remote(elsewhere, inputs, meter, output, notes)
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


def _layer_input_source(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    layer_inputs: LayerInputs | LayerInputSource | None,
    exemplars: Mapping[str, TaskExemplars] | None,
    device: torch.device,
) -> LayerInputSource | None:
    if not any(method.reads_layer_inputs for method, _ in recipe.data_methods):
        return None
    if layer_inputs is not None and hasattr(layer_inputs, "moments"):
        return layer_inputs
    if layer_inputs is not None:
        return CallerInputs(layer_inputs, experts, pretrained, device)
    images = {name: task.images for name, task in (exemplars or {}).items()}
    return CapturedInputs(experts, images, device, like=pretrained)


def _with_merged_inputs(recipe: Recipe, inputs: RunInputs, exemplars: Mapping[str, TaskExemplars] | None) -> RunInputs:
    """The inputs with layer inputs that come through the layers merged before, if the merge works on those."""
    merge = recipe.methods[-1]
    if not isinstance(merge, Merge) or not merge.through_merged:
        return inputs
    images = {name: task.images for name, task in (exemplars or {}).items()}
    path = MergedInputs(inputs.pretrained, inputs.experts, images, inputs.device, inputs.dtype)
    return replace(inputs, through_merged=path)


@contextmanager
def _with_gradients(
    recipe: Recipe,
    inputs: RunInputs,
    exemplars: Mapping[str, TaskExemplars] | None,
    meter: Meter,
    given: GradientsOf | None = None,
) -> Iterator[RunInputs]:
    """The inputs with the gradients that the chain needs, which last as long as the block."""
    kinds = {method.gradients for method, _ in recipe.data_methods if method.gradients}
    if not kinds:
        yield inputs
        return
    if given is not None:
        shapes = {parameter.name: inputs.pretrained.infos[parameter.name].shape for parameter in inputs.parameters}
        like = inputs.names, shapes, inputs.device, inputs.dtype
        stored = {name: expert.stored for name, expert in inputs.experts.items() if isinstance(expert, TeamMember)}
        yield replace(inputs, gradients={kind: FileGradients(given, kind, *like, stored=stored) for kind in kinds})
        return
    from merging.engine.gradients import gather_gradients  # its imports take a while

    seed = recipe.exemplars.seed if recipe.exemplars else 0
    with gather_gradients(kinds, inputs, exemplars or {}, seed, meter) as gradients:
        yield replace(inputs, gradients=gradients)


class SingleTensors:
    """A merge that computes single tensors, in any order, with the numbers that the whole merge gives them.

    It is for the chains of ``merging.engine.chain_work.separable_tensors``. What they survey is surveyed once, when it
    is made.
    """

    def __init__(
        self, recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], device: str = "auto"
    ) -> None:
        check_fit(pretrained, experts, values=False).raise_if_bad()
        dead = pretrained.unused_text if recipe.count_dead_params else UnusedText()
        self._inputs = RunInputs(pretrained, experts, None, choose_device(device), dead)
        with limit_to_one_thread(self._inputs.device):
            self._stages, _, _ = _survey(recipe, self._inputs, Meter(0), _Learning({}, None, ExitStack()))

    def compute(self, name: str) -> tuple[StoredSlot, Rows]:
        """What is written of a tensor, and the rows of tables that methods note on it."""
        inputs, notes = self._inputs, Notes()
        output = LastSlot(inputs.pretrained)
        with limit_to_one_thread(inputs.device):
            merging_pass(inputs, replace(inputs, subset=frozenset({name})), self._stages, Meter(0), output, notes)
        assert output.last is not None
        return output.last, notes.rows


@dataclass(frozen=True)
class _Learning:
    """What a method learns from: images by what they are, what was kept of earlier runs, and a place for files."""

    tasks: Mapping[Needs, Mapping[str, TaskExemplars]]
    kept: LearningState | None
    files: ExitStack

    def survey(self, stage: Stage, before: tuple[Stage, ...], slots: Stream) -> Survey:
        from merging.engine.learning.learn import learn
        from merging.engine.learning.learning_state import LearningState  # its imports take a while

        tasks = self.tasks[stage.method.needs_for(stage.params)]
        return learn(stage, before, slots, tasks, self.kept or LearningState(), self.files)


def _survey(
    recipe: Recipe, inputs: RunInputs, meter: Meter, learning: _Learning
) -> tuple[tuple[Stage, ...], dict[str, Table], tuple[str, ...]]:
    """Every stage with its survey's statistics, each on the task vectors as the earlier stages leave them."""
    stages: tuple[Stage, ...] = ()
    tables: dict[str, Table] = {}
    warnings: tuple[str, ...] = ()
    packed = packed_tensors(inputs.parameters, inputs.pretrained.infos)
    for whole, step in zip(recipe.methods, recipe.steps, strict=True):
        method, statistics = split_method(whole, step.params, packed), None
        learns = method.learns(step.params)
        if learns or method.surveys(step.params):
            before = tuple(stage for stage in stages if not stage.after_merge)
            chain = (*before, Stage(method, step.params))
            in_pieces = all(stage.is_elementwise for stage in chain)
            stream = Stream(
                inputs, before, in_pieces, meter, f"Surveying for {method.title}", cut=find_cut_tensors(inputs, chain)
            )
            if learns:
                survey = learning.survey(Stage(method, step.params), before, stream)
            else:
                assert method.survey is not None
                survey = method.survey(stream, step.params)
            statistics = survey.statistics
            for name, table in survey.tables.items():
                tables[f"{name}_{len(stages) + 1}" if name in tables else name] = table
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
    """These tensors, whole, as the edits of a recipe leave them, while the block runs; its merge is left out."""
    from merging.recipes.recipe import Recipe

    edits = replace(recipe, merge=Recipe.build("weight_averaging").merge, adapt=None)
    evidence = _layer_input_source(edits, pretrained, experts, layer_inputs, exemplars, device)
    dead = pretrained.unused_text if recipe.count_dead_params else UnusedText()
    meter.total += RunInputs(pretrained, experts, None, device).work * (count_passes(edits) - 1)
    with _with_gradients(edits, RunInputs(pretrained, experts, evidence, device, dead), exemplars, meter) as inputs:
        stages, _, _ = _survey(edits, inputs, meter, _Learning({}, None, ExitStack()))  # no edit learns
        before = tuple(stage for stage in stages[:-1] if not stage.after_merge)
        yield Stream(replace(inputs, subset=frozenset(only)), before, False, meter, phase)


def _fit_warnings(report: FitReport) -> tuple[str, ...]:
    """A sentence per checkpoint and kind of problem; doubts are left to the caller, who states them before a merge."""
    return tuple(group.sentence() for group in report.groups if not group.doubt())
