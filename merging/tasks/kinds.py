"""The kinds of tasks that processes compute for each other. A kind is one file, and one line in ``TASK_KINDS``.

Requests are plain data, and answers are plain data or the bytes of a safetensors file, so no function or object of a
user is sent to another process. Modules are imported only by the names in this file, never by a name in a request.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from merging.base.errors import WorkerError
from merging.tasks.context import Context

# A worker's facts about itself; one point of a sweep; one trial of a measurement; one tensor of a merge; the scores of
# one model; a whole run; a whole measurement.
ABOUT, POINT, TRIAL, TENSOR, SCORE, RUN, MEASURE = "about", "point", "trial", "tensor", "score", "run", "measure"
TASK_KINDS: Mapping[str, str] = {
    ABOUT: "merging.tasks.workers.worker_facts:KIND",
    POINT: "merging.study.sweeps.point_task:KIND",
    TRIAL: "merging.study.trials.trial_task:KIND",
    TENSOR: "merging.study.runs.tensor_task:KIND",
    SCORE: "merging.study.runs.score_task:KIND",
    RUN: "merging.study.runs.run_task:KIND",
    MEASURE: "merging.study.measurement_task:KIND",
}
# Kinds of requests of the app that a process answers in stages, each answer better than the one before.
STAGED_KINDS: Mapping[str, str] = {
    "preview": "merging.study.previews.preview_stages:preview_stages",
    "image": "merging.study.image_stages:image_stages",
}
Plain = dict[str, Any]
Request = Mapping[str, Any]


class StageAnswer(NamedTuple):
    """The answer after a stage.

    ``done`` is whether the answer is complete, ``suffices`` whether it is good enough to be the last one while requests
    of other sessions wait.
    """

    answer: Plain
    done: bool = False
    suffices: bool = False


Stages = Iterator[StageAnswer | None]  # None: a piece of a stage is computed, but the stage is not complete
StagedKind = Callable[[Request, Context], Stages]  # its iterator raises MergingError, or Cancelled if asked to stop


@dataclass(frozen=True)
class TaskKind:
    """One kind of task; ``noun`` names it in sentences.

    ``open_inputs`` opens the inputs that tasks share if their requests agree in the keys ``shared_keys``. They stay in
    memory for the next task, unless ``shared_keys`` is empty. ``name_task`` computes the task's name from the files
    that this process sees. A request with another name is refused, so that a stale copy of a file cannot yield a wrong
    result. Without ``name_task``, a request asks about the worker itself. ``compute`` returns the answer. If a kind is
    ``stored``, its finished answers stay stored when the work pauses. If it ``writes_to_store``, the worker writes its
    answers to the store, whose folder it must see.
    """

    noun: str
    open_inputs: Callable[[Request], Any]
    compute: Callable[[Any, Request, Context], Plain | bytes]
    name_task: Callable[[Any, Request], str] | None = None
    shared_keys: tuple[str, ...] = ()
    stored: bool = False
    writes_to_store: bool = False


def find_kind(key: str) -> TaskKind:
    """The kind with a key. Raises WorkerError if there is none."""
    if key not in TASK_KINDS:
        raise WorkerError(f"There is no kind of task {key[:40]!r}; a worker does one of {', '.join(TASK_KINDS)}.")
    module, _, name = TASK_KINDS[key].partition(":")
    kind: TaskKind = getattr(importlib.import_module(module), name)
    return kind


def find_staged_kind(key: str) -> StagedKind:
    """The function that answers requests of a kind in stages. Raises KeyError if there is none."""
    module, _, name = STAGED_KINDS[key].partition(":")
    kind: StagedKind = getattr(importlib.import_module(module), name)
    return kind
