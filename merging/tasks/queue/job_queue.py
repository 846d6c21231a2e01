"""A queue of jobs, each in a child process, so that a job that runs out of memory does not end the server.

The state of a job is on the disk (see ``job_records``), so that a second tab or a restarted server sees it. A session
is one browser tab. Several servers, also on other computers, may share a store; each runs the jobs that it has created.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from merging.base import settings
from merging.base.errors import MergingError, StoreError
from merging.base.files.locks import hold_lock
from merging.base.files.processes import ProcessId
from merging.base.free_memory import MemoryWatch
from merging.tasks.queue.child_process import Process
from merging.tasks.queue.cleanup import release_space, stop_child, stop_orphan, sweep_up
from merging.tasks.queue.job_kinds import JobStore
from merging.tasks.queue.job_records import Job, JobFiles, State
from merging.tasks.queue.known_jobs import KnownJobs
from merging.tasks.queue.outcome import determine_final_state
from merging.tasks.queue.spare_process import SpareProcess
from merging.tasks.queue.turns import DEFAULT_JOB_SECONDS

POLL_SECONDS = 0.1  # between two checks of a running child
ORPHAN_POLL_SECONDS = 0.5  # between two checks whether a child of another server has ended
MAX_LOCK_SECONDS = 5.0  # that a server waits while another one submits a job
ALIVE_SIGNAL_SECONDS = 30.0  # between two signals to other computers that this server is alive
CANCEL_POLL_SECONDS = 1.0  # between two checks whether another server has cancelled the running job
log = logging.getLogger(__name__)


class JobQueue(KnownJobs, ABC):
    """Runs one job at a time, or several that share workers; sessions that ask for jobs take turns.

    Every method may be called from any thread. The child that does a job is the waiting ``spare`` process if there is
    one, which is replaced when a job ends.
    """

    def __init__(self, store: JobStore, *, device: str = "auto") -> None:
        super().__init__(store, settings.max_running_jobs())
        self.device, self.spare = device, SpareProcess()
        self._cancelled: set[str] = set()
        self._alive_signal_time = 0.0  # time of the last signal to other computers, on the monotonic clock
        self._closing = False
        self._threads: list[threading.Thread] = []  # one for each job that may run
        jobs = [(files, record) for files in map(self._files, self._list_ids()) if (record := files.read()) is not None]
        sweep_up(store, [record for _, record in jobs])  # removes unfinished files of writers that have ended
        for files, record in jobs:
            release_space(files, record)  # frees the disk space that dead jobs had reserved

    def _submit(
        self,
        job_id: str,
        session: str,
        estimate: Callable[[], float | None],
        is_stored: Callable[[], bool],
        *,
        benchmark: str,
        **about: Any,
    ) -> Job:
        """The live job with an id, else a new one at the end of the queue; none is queued if the result is stored.

        ``about`` are further fields of its record.
        """
        files = self._files(job_id)
        with self._submission_lock():
            record, job = files.read(), self._find_earlier(job_id, benchmark, session)
            if (job is None or not job.is_live) and not is_stored():
                seconds = self._turns.admit(session, estimate, self._queue)
                created = files.create(**about, benchmark=benchmark, earlier=record)
                self._enqueue(job_id, created, session, seconds)
        return self.get(job_id)

    def submit_again(self, job_id: str, session: str = "") -> Job:
        """Submit again, unchanged, a job that has ended; a live job is not affected.

        Raises:
            StoreError: there is no such job.
        """
        files = self._files(job_id)
        with self._submission_lock():
            record = files.read()
            if record is not None and not self.get(job_id).is_live and not self._closing:
                self._enqueue(job_id, files.create_again(record), session)
        return self.get(job_id)

    @abstractmethod
    def _submit_next(self, recipe_yaml: str, benchmark: str, ordered: Mapping[str, Sequence[str]]) -> None:
        """Submit the recipe that was stored with a command, and after it the measurements that sessions ordered.

        Raises MergingError.
        """

    @abstractmethod
    def _measure_run(self, run_id: str, ordered: Mapping[str, Sequence[str]], benchmark: str) -> str:
        """Submit to each session what it ordered for a stored run; return why one is refused, or an empty text."""

    def order_measurements(self, job_id: str, keys: Sequence[str], session: str = "") -> None:
        """Let these measurements of its run follow a job for a session; without ``keys`` none of its own follow.

        Raises:
            StoreError: the job has no files, or they cannot be written.
        """
        files = self._files(job_id)
        with self._submission_lock():
            files.order_measurements(keys, session)
        if files.list_ordered() and self.get(job_id).state == State.DONE:  # it ended just now
            self._submit_late(files)

    @contextlib.contextmanager
    def _submission_lock(self) -> Iterator[None]:
        """Let one thread of one server submit at a time, so that the same job is not created twice."""
        with self._changed, hold_lock(self.store.root / "locks" / "submitting.lock", max_seconds=MAX_LOCK_SECONDS):
            yield

    def _find_earlier(self, job_id: str, benchmark: str, session: str) -> Job | None:
        """The existing job with an id, or None; if it is live, the session now waits for it, too.

        Raises:
            StoreError: the job is live on another benchmark, or the queue is closed.
        """
        if self._closing:
            raise StoreError("The queue is closed; it takes no more jobs.")
        job = self._read_job(job_id)
        if job is not None and job.is_live and job.benchmark != benchmark:
            raise StoreError(f"“{job.title}” is being computed on another benchmark; wait until that is done.")
        if job is not None and job.is_live:
            self._turns.record_waiting(job_id, session)
        return job

    def pause(self, job_id: str) -> None:
        """Ask a running job to pause after its current point of a sweep or step of learning.

        A waiting job pauses at once; jobs that cannot pause continue.
        """
        with self._changed:
            if job_id in self._queue:
                self._queue.remove(job_id)
                self._turns.record_end(job_id)
                self._files(job_id).update(state=State.PAUSED, finished=time.time())
            elif (job := self._read_job(job_id)) is not None and job.is_live and job.can_pause:
                self._files(job_id).ask_to_pause()

    def _enqueue(self, job_id: str, created: bool, session: str = "", seconds: float = DEFAULT_JOB_SECONDS) -> None:
        """Append a job to the queue if this server has ``created`` its files; otherwise another one has queued it."""
        if not created:
            return
        self._turns.record_waiting(job_id, session, seconds, is_new=True)
        self._cancelled.discard(job_id)
        self._queue.append(job_id)
        self._start_threads()
        self._changed.notify_all()

    def cancel(self, job_id: str, session: str | None = None) -> None:
        """Stop a job; a running one ends within three seconds. A job that has ended does not change.

        With a ``session``, only this session leaves the job, which stops if no other session waits for it.
        """
        with self._changed:
            if session is not None and not self._turns.record_leaving(job_id, session):
                if session in (files := self._files(job_id)).list_ordered():
                    with self._submission_lock():
                        files.order_measurements((), session)
                return
            if job_id in self._queue:
                self._queue.remove(job_id)
                self._turns.record_end(job_id)
                self._files(job_id).update(state=State.CANCELLED, finished=time.time())
                self.store.delete_learned_state(job_id)
            elif job_id in self._running:
                self._cancelled.add(job_id)
                self._changed.notify_all()
            elif (job := self._read_job(job_id)) is not None and job.is_live:
                self._files(job_id).mark_cancelled()
                if not job.is_remote:  # its own server sees the mark
                    threading.Thread(target=stop_orphan, args=(self.store, self._files(job_id)), daemon=True).start()

    def dismiss(self, job_id: str) -> None:
        """Delete the files of a job that has ended, and its learned state; its run stays.

        Raises:
            StoreError: there is no such job, or the store is read-only.
        """
        with self._changed:
            if not self.get(job_id).is_live:
                self._files(job_id).remove()
                self.store.delete_learned_state(job_id)

    def close(self) -> None:
        """Stop running jobs and the queue; all jobs are then "interrupted". For tests and for shutting down."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self.spare.close()

    # The threads that work through the queue

    def _start_threads(self) -> None:
        while len(self._threads) < self.max_running:
            self._threads.append(threading.Thread(target=self._work_through_queue, name="merge-queue", daemon=True))
            self._threads[-1].start()

    def _work_through_queue(self) -> None:
        while (job_id := self._take_next_job()) is not None:
            try:
                self._run_job(job_id)
            except Exception as error:  # the queue continues with the next job
                log.exception("Job %s could not be run", job_id)
                self._files(job_id).update(state=State.FAILED, error=f"The job could not be run: {error}")
            with self._changed:
                self._turns.record_end(job_id)
                self._running.remove(job_id)

    def _take_next_job(self) -> str | None:
        """The next job, as soon as one may start; None when the queue closes."""
        with self._changed:
            while not self._closing:
                if self._queue and self._may_start(job_id := self._turns.plan_order(self._queue)[0]):
                    self._queue.remove(job_id)
                    self._turns.record_start(job_id)
                    self._running.add(job_id)
                    return job_id
                self._signal_alive()
                self._changed.wait(ORPHAN_POLL_SECONDS if self._queue else None)
            for job_id in self._queue:
                self._files(job_id).update(state=State.INTERRUPTED)
            self._queue.clear()
            return None

    def _signal_alive(self) -> None:
        """Signal to other computers, every ``ALIVE_SIGNAL_SECONDS`` seconds, that this server still has its jobs."""
        if time.monotonic() - self._alive_signal_time > ALIVE_SIGNAL_SECONDS:
            self._alive_signal_time = time.monotonic()
            for job_id in (*self._queue, *self._running):
                self._files(job_id).signal_alive()

    def _run_job(self, job_id: str) -> None:
        files = self._files(job_id)
        if files.is_cancelled():
            files.update(state=State.CANCELLED, finished=time.time())
            return
        memory = MemoryWatch()
        process = files.start(self.store.root, self.device, self.spare.start_command, len(self._running))
        files.update(state=State.RUNNING, started=time.time(), worker=ProcessId.from_pid(process.pid))
        stopped = self._await_child(process, job_id, memory)
        if (record := files.read()) is not None:
            sweep_up(self.store, [record])
        state, error = determine_final_state(
            files, self.store, process.returncode, stopped, self._closing, memory.ran_out()
        )
        if state == State.DONE:
            state, error = self._submit_following(files)
        files.update(state=state, error=error, finished=time.time())
        if state == State.DONE and files.list_ordered():  # ordered in this moment
            self._submit_late(files)
        self.spare.renew()

    def _submit_late(self, files: JobFiles) -> None:
        """Submit what was ordered while the job ended; its record states why something is refused."""
        state, error = self._submit_following(files)
        if error:
            files.update(state=state, error=error)

    def _submit_following(self, files: JobFiles) -> tuple[State, str]:
        """Submit what follows a job that is done, a recipe or measurements; return the job's state and a problem."""
        record, recipe_yaml = files.read(), files.recipe_yaml()
        with self._submission_lock():
            ordered = files.take_ordered()
        if record is not None and record.words and recipe_yaml:
            try:
                self._submit_next(recipe_yaml, record.benchmark, ordered)
            except MergingError as problem:
                return State.FAILED, str(problem)
        elif record is not None and ordered:
            return State.DONE, self._measure_run(record.subject, ordered, record.benchmark)
        return State.DONE, ""

    def _await_child(self, process: Process, job_id: str, memory: MemoryWatch) -> bool:
        """Wait for a child to end while watching the memory; return whether this queue stopped it."""
        checked_at = time.monotonic()
        while process.poll() is None:
            memory.sample()
            if self._queue:
                self.spare.renew()
            with self._changed:
                if time.monotonic() - checked_at > CANCEL_POLL_SECONDS:
                    checked_at = time.monotonic()
                    self._cancelled |= {job_id} if self._files(job_id).is_cancelled() else set()
                self._signal_alive()
                stop = self._closing or job_id in self._cancelled
                if not stop:
                    self._changed.wait(POLL_SECONDS)
            if stop:
                stop_child(process, self._files(job_id), keep_state=self._closing)
                return True
        return False
