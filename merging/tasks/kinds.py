"""The kinds of tasks: what processes compute for each other. A kind is one file, and one line in ``KINDS``.

Requests are plain data, and answers are plain data or the bytes of a safetensors file, so that no function or object of
a user travels. No name that comes from outside is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from merging.base.errors import WorkerError
from merging.tasks.context import Context

ABOUT, POINT, TRIAL, TENSOR, SCORE, RUN, MEASURE = "about", "point", "trial", "tensor", "score", "run", "measure"
KINDS: Mapping[str, str] = {
    ABOUT: "merging.tasks.workers.worker_facts:KIND",
    POINT: "merging.study.sweeps.point_task:KIND",
    TRIAL: "merging.study.trials.trial_task:KIND",
    TENSOR: "merging.study.runs.tensor_task:KIND",
    SCORE: "merging.study.runs.score_task:KIND",
    RUN: "merging.study.runs.run_task:KIND",
    MEASURE: "merging.study.measurement_task:KIND",
}
STAGED: Mapping[str, str] = {
    "preview": "merging.study.previews.preview_stages:preview_stages",
    "image": "merging.study.image_stages:image_stages",
}
Plain = dict[str, Any]
Request = Mapping[str, Any]


class StageAnswer(NamedTuple):
    """What is known after a stage of a request; whether that is all, or suffices where others wait."""

    answer: Plain
    done: bool = False
    suffices: bool = False


Stages = Iterator[StageAnswer | None]  # None: a piece of a stage was computed
StagedKind = Callable[[Request, Context], Stages]  # its iterator raises MergingError, or Cancelled if asked to stop


@dataclass(frozen=True)
class TaskKind:
    """One kind of task; ``noun`` names it in sentences.

    ``open_inputs`` opens what tasks share whose requests agree in ``shared``; it stays in memory for the next one.
    Nothing stays without ``shared``. ``name_task`` says what this process calls the task, by the files that it sees: a
    task that was asked for under another name is refused, so that a stale copy of a file cannot give a number. Without
    it a request is about the worker itself. ``compute`` gives the answer. Answers of kinds that are ``stored`` stay if
    others are left for later; those of kinds ``in_store`` are written there by the worker, which must see its folder.
    """

    noun: str
    open_inputs: Callable[[Request], Any]
    compute: Callable[[Any, Request, Context], Plain | bytes]
    name_task: Callable[[Any, Request], str] | None = None
    shared: tuple[str, ...] = ()
    stored: bool = False
    in_store: bool = False


def find_kind(key: str) -> TaskKind:
    """The kind of that key. Raises WorkerError if there is none."""
    if key not in KINDS:
        raise WorkerError(f"There is no kind of task {key[:40]!r}; a worker does one of {', '.join(KINDS)}.")
    module, _, name = KINDS[key].partition(":")
    kind: TaskKind = getattr(importlib.import_module(module), name)
    return kind


def find_staged_kind(key: str) -> StagedKind:
    """What answers requests of a kind in stages. Raises KeyError if there is none."""
    module, _, name = STAGED[key].partition(":")
    kind: StagedKind = getattr(importlib.import_module(module), name)
    return kind
