"""The kinds of jobs: what the queue knows of each. It imports nothing that a job does: functions have dotted names.

A measurement's kind is its key. What is no kind is a command of the command line, whose record has its words.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from merging.base.errors import StoreError

MERGE, SWEEP = "merge", "sweep"
PUBLISHED = "published"  # the command of that name, which fetches and computes an experiment
MEASUREMENT = (
    "merging.study.analysis.measurement_registry:find_job_kind"  # of the measurement with a key; raises StoreError
)


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """One kind of job. Functions are "module:function", imported on first use.

    ``command`` begins its command line: fields of its record in braces, and ``{recipe}``, the file of its recipe; empty
    words are left out. ``can_pause`` says whether it can stop half-way and go on later, or is the function of a
    recipe's YAML that does. ``in_store``: its result is in the store under the id of the job, and what it has learned
    until then beside it. Of others ``kept`` is the sentence on what stays of one that has stopped. ``writes`` is the
    folder that it writes to, in the store. What is ``timed`` computes alone. ``expected_seconds`` is the function of
    its key and the folder of the store that estimates them, or gives None.
    """

    title: str = ""
    command: tuple[str, ...] = ()
    can_pause: bool | str = False
    in_store: bool = False
    kept_note: str = ""
    writes: str = ""
    timed: bool = False
    expected_seconds: str = ""

    def pauses(self, recipe_yaml: str) -> bool:
        """Whether a job of this kind with a recipe can pause."""
        if isinstance(self.can_pause, bool):
            return self.can_pause
        return bool(recipe_yaml) and bool(_find_named(self.can_pause)(recipe_yaml))

    def estimate(self, key: str, root: Path) -> float | None:
        """Seconds that a job of this kind should take, by the store in ``root``; None if that is not known."""
        seconds: float | None = _find_named(self.expected_seconds)(key, root) if self.expected_seconds else None
        return seconds


COMMAND = JobKind()
KINDS: Mapping[str, JobKind] = {
    MERGE: JobKind(
        command=("run", "{recipe}", "--base", "{base}", "{need_model}"),
        can_pause="merging.study.run_queue:does_learn",
        in_store=True,
    ),
    SWEEP: JobKind(
        command=("sweep", "--stored", "{subject}"), can_pause=True, kept_note="The points computed so far are kept."
    ),
    PUBLISHED: JobKind(
        can_pause=True,
        kept_note="What was fetched and computed so far is kept; started again, it goes on from there.",
        writes="benchmarks/{subject}",
    ),
}


@lru_cache(maxsize=256)
def find_job_kind(key: str) -> JobKind:
    """The kind of jobs of that key; ``COMMAND`` for all that have words of their own."""
    try:
        return KINDS[key] if key in KINDS else find_measurement(key)
    except StoreError:
        return COMMAND


def find_measurement(key: str) -> JobKind:
    """The kind of the jobs of a measurement. Raises StoreError with the nearest key if there is none."""
    kind: JobKind = _find_named(MEASUREMENT)(key)
    return kind


def _find_named(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


class StoredResult(Protocol):
    """What the queue reads of a stored result."""

    @property
    def name(self) -> str: ...

    @property
    def recipe_yaml(self) -> str: ...


class JobStore(Protocol):
    """The store that jobs write to, as the queue needs it; results and what was learned have the ids of jobs."""

    root: Path

    def find(self, run_id: str, /) -> StoredResult | None: ...

    def find_promised(self, run_id: str, /) -> StoredResult | None: ...

    def learning_file(self, run_id: str, /) -> Path: ...

    def delete_learned(self, run_id: str, /) -> None: ...

    def sweep(self) -> None: ...
