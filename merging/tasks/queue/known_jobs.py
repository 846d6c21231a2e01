"""The jobs that a process knows: those in the store's files, and the sessions of this process that wait for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Set

from merging.base.errors import StoreError
from merging.base.files.temporary import is_temporary
from merging.tasks.queue.job_kinds import JobStore, find_job_kind
from merging.tasks.queue.job_reading import read_job
from merging.tasks.queue.job_records import Job, JobFiles, State
from merging.tasks.queue.turns import IMAGE_SECONDS, Turns

DETAIL_BYTES = 1 << 18  # at the end of the file of events, which ``list_details`` reads


class KnownJobs:
    """The jobs in a store, including those of other servers, and the queue of this process.

    ``max_running`` is the number of jobs that may compute at the same time. Every method may be called from any thread.
    """

    def __init__(self, store: JobStore, max_running: int = 1) -> None:
        self.store, self.max_running = store, max_running
        self._root = store.root / "jobs"
        self._changed = threading.Condition()
        self._queue: deque[str] = deque()
        self._turns = Turns(max_running=max_running)
        self._running: set[str] = set()

    def list_jobs(self, job_ids: Set[str] | None = None) -> list[Job]:
        """All jobs, or those with these ids, newest first."""
        ids = [job_id for job_id in self._list_ids() if job_ids is None or job_id in job_ids]
        jobs = [job for job_id in ids if (job := self._read_job(job_id)) is not None]
        return sorted(jobs, key=lambda job: job.submitted, reverse=True)

    def get(self, job_id: str) -> Job:
        """The job with an id; a stored run counts as done. Raises StoreError if there is none."""
        if (job := self._read_job(job_id)) is not None:
            return job
        if (run := self.store.find(job_id)) is not None:
            return Job(job_id, run.name, State.DONE, fraction=1.0, recipe_yaml=run.recipe_yaml, subject=job_id)
        raise StoreError(f"There is no job {job_id[:40]!r}.")

    def list_details(self, job_id: str) -> list[str]:
        """The detail (the current item) in each of a job's recent events, oldest first; older events are left out."""
        events = self._files(job_id).read_events(DETAIL_BYTES)
        return [str(event["detail"]) for event in events if "detail" in event][::-1]  # the newest is read first

    def list_awaited_jobs(self, session: str) -> set[str]:
        """The jobs that a session asked for and has not left."""
        with self._changed:
            return self._turns.list_awaited_jobs(session)

    def is_awaited_by_others(self, job_id: str, session: str) -> bool:
        """Whether another session waits for a job."""
        with self._changed:
            return self._turns.is_awaited_by_others(job_id, session)

    def charge_session(self, session: str, images: int) -> None:
        """Charge the images of a preview to a session's share of the computing."""
        with self._changed:
            self._turns.charge(session, images * IMAGE_SECONDS)

    def _may_start(self, job_id: str) -> bool:
        """Whether a job may start now, although other jobs are computing. A timed job computes alone."""
        running_anywhere = [
            job.id
            for job in self.list_jobs()
            if job.state == State.RUNNING and not job.halted_pid and not job.is_remote
        ]
        computing = self._running.union(running_anywhere)  # includes jobs of other servers on this computer
        if any(map(_is_timed, (job_id, *computing))):
            return not computing
        return len(computing) < self.max_running

    def _files(self, job_id: str) -> JobFiles:
        return JobFiles(self._root, job_id)

    def _list_ids(self) -> list[str]:
        """The ids of all jobs in the store: the names of their folders."""
        names = sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []
        return [name for name in names if not is_temporary(name)]

    def _read_job(self, job_id: str) -> Job | None:
        """The job by its files and this process's queue; None if there is none, or if its run was deleted."""
        with self._changed:
            is_waiting = job_id in self._queue
            position = self._turns.plan_order(self._queue).index(job_id) + 1 if is_waiting else 0
            starts_in = self._turns.estimate_wait(job_id, self._queue)
            return read_job(self._files(job_id), self.store, position, is_waiting or job_id in self._running, starts_in)


def _is_timed(job_id: str) -> bool:
    """Whether a job measures times, which are longer while other jobs compute."""
    return find_job_kind(job_id.partition("-")[0]).computes_alone  # ids of measurements begin with their kind
