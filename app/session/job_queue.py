"""The queue of jobs as one session sees it: jobs that are submitted here work on that session's benchmark.

What buttons call directly is guarded: if the store cannot be written to, the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.session import clicks
from merging.errors import StoreError
from merging.jobs.records import Job
from merging.jobs.runner import Runner

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark
    from merging.recipes.recipe import Recipe
    from merging.runs.store import Store

NEUTRAL = ("digest", "fit", "benchmark", "published")  # commands that need no benchmark


@dataclass(frozen=True)
class SessionQueue:
    """A runner that all sessions share, with one session's store and benchmark; see ``Runner`` for the methods."""

    runner: Runner
    store: Store
    folder: Path
    benchmark: Callable[[], Benchmark | None]  # opened when it is needed

    @property
    def device(self) -> str:
        """The device that jobs compute on."""
        return self.runner.device

    def submit(self, recipe: Recipe) -> Job:
        """The job of a recipe, evaluated on this benchmark."""
        return self.runner.submit(recipe, benchmark=self.benchmark())

    def measure(self, key: str, run_id: str = "") -> Job:
        """The job that measures something on this benchmark."""
        return self.runner.measure(key, run_id, str(self.folder), self.store.run(run_id) if run_id else None)

    def sweep(self, sweep_id: str, title: str) -> Job:
        """The job that computes the missing points of a sweep on this benchmark."""
        return self.runner.sweep(sweep_id, title, str(self.folder))

    def command(self, kind: str, subject: str, title: str, words: Sequence[str], then: Recipe | None = None) -> Job:
        """The job that runs a command, with this benchmark unless the command needs none."""
        on = "" if words[0] in NEUTRAL and then is None else str(self.folder)
        return self.runner.command(kind, subject, title, words, then, on)

    def again(self, job_id: str) -> Job:
        """A job that has ended, submitted once more as it was, on its own benchmark."""
        return self.runner.again(job_id)

    def jobs(self) -> list[Job]:
        """All jobs on any benchmark, newest first."""
        return self.runner.jobs()

    def here(self) -> list[Job]:
        """The jobs that work on this benchmark, or on none, newest first."""
        return [job for job in self.jobs() if not self.elsewhere(job)]

    def elsewhere(self, job: Job) -> bool:
        """Whether a job works on another benchmark than this session."""
        return bool(job.benchmark) and Path(job.benchmark) != self.folder

    def get(self, run_id: str) -> Job:
        """The job of that id; a run that is stored for this benchmark counts as done."""
        try:
            return self.runner.get(run_id)
        except StoreError:
            if (run := self.store.find(run_id)) is None:
                raise
            return Job(run_id, run.title, "done", fraction=1.0, recipe_yaml=run.recipe_yaml, subject=run_id)

    def details(self, job_id: str) -> list[str]:
        """What a job's progress has said lately, oldest first."""
        return self.runner.details(job_id)

    @clicks.guarded
    def cancel(self, job_id: str) -> None:
        """Ask a job to stop."""
        self.runner.cancel(job_id)

    @clicks.guarded
    def pause(self, job_id: str) -> None:
        """Ask a job that can pause to stop at its next point or step."""
        self.runner.pause(job_id)

    @clicks.guarded
    def dismiss(self, job_id: str) -> None:
        """Forget a job that has ended."""
        self.runner.dismiss(job_id)

    def close(self) -> None:
        """Stop everything, for tests and for shutting down."""
        self.runner.close()
