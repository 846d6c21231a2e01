"""The kinds of jobs, as the queue knows them. Functions have dotted names, so that no code of a job is imported.

A merge, a sweep and a tuning have kinds of their own, and the kind of a job that measures is the measurement's key. A
job of any other kind is a command of the command line; its record has the command's words.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from merging.base.errors import StoreError

MERGE, SWEEP, TUNE = "merge", "sweep", "tune"
PUBLISHED = "published"  # the command of that name, which fetches and computes an experiment
MEASUREMENT_FINDER = (
    "merging.study.analysis.measurement_registry:find_job_kind"  # takes a measurement's key; raises StoreError
)


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """One kind of job. Functions are "module:function", imported on first use.

    ``command`` are the first words of its command line, with fields of the job's record and ``{recipe}``, the recipe's
    file, in braces; empty words are left out. ``can_pause`` is whether it can stop half-way and continue later, or a
    function of a recipe's YAML that returns that. With ``in_store``, the store has its learned state (what it has
    learned so far, if it learns) and later its result under the id of the job. For other kinds ``remains_note`` is the
    sentence on what remains of a stopped job. ``writes`` is the folder in the store that it writes to. A job that
    ``computes_alone`` has the machine for itself. ``reads_table`` is the table that a run must have for it.
    ``expected_seconds`` is a function of its key and the store's folder that estimates its seconds, or returns None.
    """

    title: str = ""
    command: tuple[str, ...] = ()
    can_pause: bool | str = False
    in_store: bool = False
    remains_note: str = ""
    writes: str = ""
    computes_alone: bool = False
    reads_table: str = ""
    expected_seconds: str = ""

    def is_pausable(self, recipe_yaml: str) -> bool:
        """Whether a job of this kind with a recipe can pause."""
        if isinstance(self.can_pause, bool):
            return self.can_pause
        return bool(recipe_yaml) and bool(_find_named(self.can_pause)(recipe_yaml))

    def estimate(self, key: str, root: Path) -> float | None:
        """Estimated seconds of a job of this kind, by earlier jobs of the store in ``root``; None if unknown."""
        seconds: float | None = _find_named(self.expected_seconds)(key, root) if self.expected_seconds else None
        return seconds


COMMAND_KIND = JobKind()
JOB_KINDS: Mapping[str, JobKind] = {
    MERGE: JobKind(
        command=("run", "{recipe}", "--base", "{base}", "{need_model}"),
        can_pause="merging.study.run_queue:does_learn",
        in_store=True,
    ),
    SWEEP: JobKind(
        command=("sweep", "--stored", "{subject}"),
        can_pause=True,
        remains_note="The points computed so far are stored.",
    ),
    TUNE: JobKind(
        command=("tune", "--stored", "{subject}"),
        can_pause=True,
        remains_note="The points computed so far are stored.",
    ),
    PUBLISHED: JobKind(
        can_pause=True,
        remains_note="What was fetched and computed so far is stored; started again, the job continues from there.",
        writes="benchmarks/{subject}",
    ),
}


@lru_cache(maxsize=256)
def find_job_kind(key: str) -> JobKind:
    """The kind of jobs with a key; ``COMMAND_KIND`` for jobs that are commands."""
    try:
        return JOB_KINDS[key] if key in JOB_KINDS else find_measurement(key)
    except StoreError:
        return COMMAND_KIND


def find_measurement(key: str) -> JobKind:
    """The kind of jobs of the measurement with a key. Raises StoreError with the nearest key if there is none."""
    kind: JobKind = _find_named(MEASUREMENT_FINDER)(key)
    return kind


def _find_named(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


class StoredResult(Protocol):
    """The part of a stored result that the queue reads."""

    @property
    def name(self) -> str: ...

    @property
    def recipe_yaml(self) -> str: ...


class JobStore(Protocol):
    """The part of a store that the queue uses; results and learned states have the ids of jobs."""

    root: Path

    def find(self, run_id: str, /) -> StoredResult | None: ...

    def find_on_shared_disk(self, run_id: str, /) -> StoredResult | None: ...

    def learning_file(self, run_id: str, /) -> Path: ...

    def delete_learned_state(self, run_id: str, /) -> None: ...

    def sweep(self) -> None: ...
