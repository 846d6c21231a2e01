"""Lets a method learn: hands it the merged model and the images of its tasks, and keeps what it learned."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from merging.base.text import first_few
from merging.engine.learning.blend import PART, EngineBlend
from merging.engine.learning.learning_state import LearningState
from merging.engine.stream import Stage, Stream
from merging.images.exemplars import TaskExemplars
from merging.methods.slot import Survey
from merging.recipes import chain_rules

FEW = 32  # images of a task below which what is learned from them is in doubt


def learn(
    stage: Stage,
    before: tuple[Stage, ...],
    slots: Stream,
    tasks: Mapping[str, TaskExemplars],
    kept: LearningState,
    files: ExitStack,
) -> Survey:
    """What the method of a stage learns after the stages ``before`` it, on these images.

    Temporary files that its statistics need last as long as ``files``. What the run kept is removed where it fails.

    Raises:
        NeedsError: images or heads that do not fit the tower.
        MergingError: a loss that is not finite, or no room for temporary files.
        Cancelled, Paused: the caller asked for it.
    """
    inputs, meter = slots.inputs, slots.meter
    chosen = {name: tasks[name] for name in inputs.names}
    assert stage.method.learn is not None
    with kept.remove_on_failure():
        work = stage.method.learns_on(stage.params, [len(task.images) for task in chosen.values()]) * slots.numel
        blend = EngineBlend(inputs, before, slots, chosen, kept, meter, files, work)
        survey = stage.method.learn(blend, stage.params)
        kept.finish_part(PART)
    chain = chain_rules.list_doubts([(one.method, one.params) for one in (*before, stage)])
    return replace(survey, warnings=(*survey.warnings, *chain, *warn_of_few_images(chosen), *kept.warnings))


def warn_of_few_images(tasks: Mapping[str, TaskExemplars]) -> list[str]:
    """A sentence on tasks with few images to learn from, if there are some."""
    few = [name for name, task in tasks.items() if len(task.images) < FEW]
    return [f"There are fewer than {FEW} images to learn from of {first_few(few)}."] if few else []
