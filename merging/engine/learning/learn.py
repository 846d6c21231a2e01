"""Runs a method that learns: passes it the merged model and the images of its tasks, and saves its state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from merging.base.text import first_few
from merging.engine.learning.blend import STATE_PART, EngineBlend
from merging.engine.learning.learning_state import LearningState
from merging.engine.stream import Stage, Stream
from merging.images.exemplars import TaskExemplars
from merging.methods.slot import Survey
from merging.recipes import chain_rules

MIN_IMAGES = 32  # images per task below which a warning questions the result of learning


def learn(
    stage: Stage,
    before: tuple[Stage, ...],
    slots: Stream,
    tasks: Mapping[str, TaskExemplars],
    learning_state: LearningState,
    files: ExitStack,
) -> Survey:
    """The values that a stage's method learns on these images, after the stages ``before`` it.

    They are the statistics that ``run`` receives, with tables and warnings for the user. A stage is a step of the chain
    with its statistics. Temporary files of the learned values last as long as ``files``. If learning fails, its saved
    state is removed.

    Raises:
        NeedsError: images or heads do not fit the tower.
        MergingError: a loss is not finite, or temporary files have no room.
        Cancelled, Paused: the caller asked for it.
    """
    inputs, meter = slots.inputs, slots.meter
    expert_tasks = {name: tasks[name] for name in inputs.names}
    assert stage.method.learn is not None
    with learning_state.remove_on_failure():
        work = (
            stage.method.count_images_processed(stage.params, [len(task.images) for task in expert_tasks.values()])
            * slots.numel
        )
        blend = EngineBlend(inputs, before, slots, expert_tasks, learning_state, meter, files, work)
        learned = stage.method.learn(blend, stage.params)
        learning_state.finish_part(STATE_PART)
    # Sentences on steps of the chain whose learning may have little effect.
    weak_learning_warnings = chain_rules.list_doubts([(step.method, step.params) for step in (*before, stage)])
    few_images = warn_of_few_images(expert_tasks)
    return replace(
        learned, warnings=(*learned.warnings, *weak_learning_warnings, *few_images, *learning_state.warnings)
    )


def warn_of_few_images(tasks: Mapping[str, TaskExemplars]) -> list[str]:
    """A sentence on tasks with few images to learn from; empty if there are none."""
    names = [name for name, task in tasks.items() if len(task.images) < MIN_IMAGES]
    return [f"There are fewer than {MIN_IMAGES} images to learn from of {first_few(names)}."] if names else []
