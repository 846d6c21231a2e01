"""The queue of jobs as one session sees it: jobs that it submits work on the session's benchmark.

The queue refuses everything that the server's mode forbids, independently of the page. Functions that buttons call
directly are guarded: if the store cannot be written, the page reports it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import permissions
from app.permissions import requires
from app.session import click_errors
from merging.base.errors import ModeError, StoreError
from merging.base.modes import VisitorAction
from merging.study.run_queue import RunQueue
from merging.tasks.queue.job_kinds import TUNE
from merging.tasks.queue.job_records import Job

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.recipes.recipe import Recipe
    from merging.study.runs.run_store import Store

OTHER_SESSIONS_JOB = "Another session started this job; only that session can change it."
OTHER_SESSIONS_WAIT = "Other sessions wait for this job, too, so it is not paused. Cancel stops it only for you."
COMMANDS_WITHOUT_BENCHMARK = ("digest", "fit", "benchmark", "published", "scores")  # commands that need no benchmark


_SESSION_NAME_KEY = "_session_name"


def session_name() -> str:
    """A random name for this session, which no other can guess; it is stored in the session and with its orders."""
    if get_script_run_ctx(suppress_warning=True) is None:  # outside of any session
        return ""
    if _SESSION_NAME_KEY not in st.session_state:
        st.session_state[_SESSION_NAME_KEY] = secrets.token_hex(8)
    return str(st.session_state[_SESSION_NAME_KEY])


@dataclass(frozen=True)
class SessionQueue:
    """A runner that all sessions share, with one session's store and benchmark; see ``RunQueue`` for the methods."""

    runner: RunQueue
    store: Store
    folder: Path
    benchmark: Callable[[], Benchmark | None]  # opens the benchmark when a job needs it
    session: str = ""  # a random name where several sessions share the queue
    followed: Set[str] = frozenset()  # ids of other sessions' jobs that this session's page shows

    @property
    def device(self) -> str:
        """The device that jobs compute on."""
        return self.runner.device

    @requires(VisitorAction.MERGE)
    def submit(self, recipe: Recipe) -> Job:
        """Submit the merge of a recipe and its evaluation on this benchmark."""
        return self.runner.submit(recipe, benchmark=self.benchmark(), session=self.session)

    @requires(VisitorAction.MEASURE)
    def measure(self, key: str, run_id: str = "") -> Job:
        """Submit a measurement on this benchmark."""
        from merging.study.runs.run import split_run_ids

        runs = [self.store.get_run(one_id) for one_id in split_run_ids(run_id)]
        return self.runner.submit_measurement(key, run_id, str(self.folder), runs, self.session)

    @click_errors.guard_callback
    @requires(VisitorAction.MEASURE)
    def measure_after(self, job_id: str, keys: Sequence[str]) -> None:
        """Let these measurements of its run follow a job for this session, even if the browser is closed, or none."""
        self._require_own(job_id)
        self.runner.order_measurements(job_id, keys, self.session)

    @requires(VisitorAction.SWEEP)
    def sweep(self, sweep_id: str, title: str) -> Job:
        """Submit the missing points of a sweep, on this benchmark."""
        return self.runner.submit_sweep(sweep_id, title, str(self.folder), self.session)

    @requires(VisitorAction.SWEEP)
    def tune(self, tuning_id: str, title: str) -> Job:
        """Submit the missing points of a tuning, on this benchmark."""
        return self.runner.submit_command(
            TUNE, tuning_id, f"Tuning: {title}", benchmark=str(self.folder), session=self.session
        )

    def command(
        self, kind: str, subject: str, title: str, words: Sequence[str], next_recipe: Recipe | None = None
    ) -> Job:
        """Submit a command, with this benchmark unless the command needs none; ``next_recipe`` is merged after it."""
        permissions.require(VisitorAction.EXPORT if words[0] == "export" else VisitorAction.COMMAND)
        folder = "" if words[0] in COMMANDS_WITHOUT_BENCHMARK and next_recipe is None else str(self.folder)
        return self.runner.submit_command(kind, subject, title, words, next_recipe, folder, self.session)

    @requires(VisitorAction.MANAGE)
    def submit_again(self, job_id: str) -> Job:
        """Submit a job that has ended once more, unchanged and on its own benchmark."""
        self._require_own(job_id)
        return self.runner.submit_again(job_id, self.session)

    def list_jobs(self) -> list[Job]:
        """All jobs on any benchmark, newest first."""
        return self.runner.list_jobs()

    def own_jobs(self) -> list[Job]:
        """The jobs that this session submitted or follows, newest first; all jobs if the queue is not shared."""
        return self.runner.list_jobs(
            self.runner.list_awaited_jobs(self.session) | self.followed if self.session else None
        )

    def may_stop(self, job_id: str) -> bool:
        """Whether this session may stop or leave a job: in a shared queue, only a job that it submitted."""
        return not self.session or job_id in self.runner.list_awaited_jobs(self.session)

    def _require_own(self, job_id: str) -> None:
        """Raises ModeError if the job is another session's."""
        if not self.may_stop(job_id):
            raise ModeError(OTHER_SESSIONS_JOB)

    def list_benchmark_jobs(self) -> list[Job]:
        """The jobs that work on this benchmark, or on none, newest first."""
        return [job for job in self.list_jobs() if not self.is_on_other_benchmark(job)]

    def is_on_other_benchmark(self, job: Job) -> bool:
        """Whether a job works on another benchmark than this session."""
        return bool(job.benchmark) and Path(job.benchmark) != self.folder

    def get(self, run_id: str) -> Job:
        """The job with that id; a run that is stored for this benchmark counts as done."""
        try:
            return self.runner.get(run_id)
        except StoreError:
            if (run := self.store.find(run_id)) is None:
                raise
            return Job(run_id, run.name, "done", fraction=1.0, recipe_yaml=run.recipe_yaml, subject=run_id)

    def details(self, job_id: str) -> list[str]:
        """The latest progress messages of a job, oldest first."""
        return self.runner.list_details(job_id)

    @click_errors.guard_callback
    def cancel(self, job_id: str) -> None:
        """Ask a job to stop; in a shared queue, leave it to the other sessions that wait for it."""
        self._require_own(job_id)
        self.runner.cancel(job_id, self.session or None)

    @click_errors.guard_callback
    @requires(VisitorAction.MANAGE)
    def pause(self, job_id: str) -> None:
        """Ask a job that can pause to stop at its next point or step."""
        self._require_own(job_id)
        if self.session and self.runner.is_awaited_by_others(job_id, self.session):
            raise ModeError(OTHER_SESSIONS_WAIT)
        self.runner.pause(job_id)

    @click_errors.guard_callback
    @requires(VisitorAction.MANAGE)
    def dismiss(self, job_id: str) -> None:
        """Forget a job that has ended."""
        self._require_own(job_id)
        self.runner.dismiss(job_id)

    def close(self) -> None:
        """Stop everything, for tests and for shutting down."""
        self.runner.close()
