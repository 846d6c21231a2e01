"""A queue of merges, measurements, sweeps and other commands, each in a child process, which may take all memory.

What is known about a job lies on the disk (see records), so that a second tab or a restarted server sees it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merging import settings
from merging.analysis import registry
from merging.classroom import expected
from merging.classroom.turns import UNKNOWN
from merging.errors import MergingError, StoreError
from merging.files.locks import held
from merging.files.processes import ProcessId
from merging.free_memory import MemoryWatch
from merging.jobs.child_process import Process
from merging.jobs.cleanup import release_room, stop_child, stop_orphan, sweep_up
from merging.jobs.known_jobs import KnownJobs
from merging.jobs.outcome import ended
from merging.jobs.records import SWEEP, Job, JobFiles, State, job_of
from merging.jobs.spare import Spare
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.runs.store import Store

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark

POLL = 0.1  # seconds between two checks of a running child
ORPHAN_POLL = 0.5  # seconds between two checks whether another server's child has ended
SUBMITTING = 5.0  # seconds at most that one server waits while another one submits a job
BEAT = 30.0  # seconds between two signs for other computers that this server still has its jobs
LOOK = 1.0  # seconds between two looks at whether another server has cancelled the running job
log = logging.getLogger(__name__)


class Runner(KnownJobs):
    """Runs one job at a time, or several that share workers, the sessions that ask for jobs in turn.

    Every method may be called from any thread.

    Only ``submit`` may take a moment: it reads the checkpoints that this process has not read yet, to name the run.
    A job on another ``benchmark`` than the one that the server was started on names it; its child works on that one.
    Children are made of the ``spare`` process, if one is to be kept ready. ``session`` is who asks, by a random name;
    jobs of one session, as all are where it is not given, compute in the order of submission.
    """

    def __init__(self, store: Store, *, device: str = "auto") -> None:
        super().__init__(store, settings.jobs_at_once())
        self.device, self.spare = device, Spare()
        self._cancelled: set[str] = set()
        self._beaten = 0.0  # when, on the monotonic clock
        self._closing = False
        self._threads: list[threading.Thread] = []  # one for each job that may run
        jobs = [(files, record) for files in map(self._files, self._ids()) if (record := files.read()) is not None]
        sweep_up(store, [record for _, record in jobs])
        for files, record in jobs:
            release_room(files, record)

    def submit(
        self, recipe: Recipe, *, base: Path | None = None, need_model: bool = False,
        benchmark: Benchmark | None = None, session: str = "",
    ) -> Job:  # fmt: skip
        """The job of a recipe: the one that is waiting, running or done, or a new one at the end of the queue.

        Large files that were never read on this machine are better read by a command first (see digests).

        Raises:
            CheckpointError: a checkpoint is missing or damaged.
            StoreError: the store cannot be written to, or the same merge is under way for another benchmark.
            ModeError: it takes too long here, or the session has had its share.
        """
        from merging.checkpoints.digests import DIGESTS  # loads torch, which listing jobs does not need
        from merging.runs.inputs import open_inputs

        DIGESTS.load(self.store.root)
        opened = open_inputs(recipe, base, benchmark)
        run_id = opened.run_id()
        return self._submit(
            run_id,
            session,
            lambda: expected.of_merge(opened, benchmark, self.store.runs(), self.device),
            lambda: self._is_stored(opened, run_id, need_model),
            recipe_yaml=recipe.to_yaml(),
            title=recipe.title or recipe.text(),
            base=(base or Path.cwd()).absolute(),
            need_model=need_model,
            subject=run_id,
            benchmark=str(benchmark.folder) if benchmark else "",
        )

    def measure(self, key: str, run_id: str = "", benchmark: str = "", of: Run | None = None, session: str = "") -> Job:
        """The job that measures something of a stored run, or of the benchmark: the live one, or a new one.

        Raises:
            StoreError: there is no such run or measurement, or it is under way on another benchmark.
            ModeError: it takes too long here, or the session has had its share.
        """
        title = registry.kind(key).title + (f": {(of or self.store.run(run_id)).title}" if run_id else "")
        return self.command(key, run_id, title, benchmark=benchmark, session=session)

    def sweep(self, sweep_id: str, title: str, benchmark: str = "", session: str = "") -> Job:
        """The job that computes what is missing of a stored sweep: the live one, or a new one.

        Raises:
            StoreError: it is under way on another benchmark.
        """
        return self.command(SWEEP, sweep_id, f"Sweep: {title}", benchmark=benchmark, session=session)

    def command(
        self, kind: str, subject: str, title: str, words: Sequence[str] = (), then: Recipe | None = None,
        benchmark: str = "", session: str = "",
    ) -> Job:  # fmt: skip
        """The job that runs a command of the command line: the live one, or a new one.

        ``kind`` says in one word what the command does, ``subject`` what it works on; measurements and sweeps have no
        ``words``. The recipe ``then`` is submitted once the command is done.
        """
        return self._submit(
            job_of(kind, subject), session, lambda: expected.of_job(kind, self.store), lambda: False,
            recipe_yaml=then.to_yaml() if then else "", title=title, base=Path.cwd(), kind=kind, subject=subject,
            words=tuple(words), benchmark=benchmark,
        )  # fmt: skip

    def _submit(
        self,
        job_id: str,
        session: str,
        takes: Callable[[], float | None],
        is_stored: Callable[[], bool],
        *,
        benchmark: str,
        **about: Any,
    ) -> Job:
        """The live job of that id, or a new one at the end of the queue; that it is stored is as good as a job."""
        files = self._files(job_id)
        with self._submitting():
            before, earlier = files.read(), self._earlier(job_id, benchmark, session)
            if (earlier is None or not earlier.live) and not is_stored():
                seconds = self._turns.admit(session, takes, self._queue)
                created = files.create(**about, benchmark=benchmark, earlier=before)
                self._enqueue(job_id, created, session, seconds)
        return self.get(job_id)

    def again(self, job_id: str, session: str = "") -> Job:
        """A job that has ended, submitted once more as it was; one that is live goes on.

        Raises:
            StoreError: there is no such job.
        """
        files = self._files(job_id)
        with self._submitting():
            before = files.read()
            if before is not None and not self.get(job_id).live and not self._closing:
                self._enqueue(job_id, files.create_again(before), session)
        return self.get(job_id)

    @contextlib.contextmanager
    def _submitting(self) -> Iterator[None]:
        """One thread, and one server, submits at a time, so that the same job is not created twice."""
        with self._changed, held(self.store.root / "locks" / "submitting.lock", longest=SUBMITTING):
            yield

    def _earlier(self, job_id: str, benchmark: str, session: str) -> Job | None:
        """The job of that id from before, if there is one, for which the session waits as well if it is live.

        Raises:
            StoreError: it is live on another benchmark.
        """
        if self._closing:
            raise StoreError("The runner is closed; it takes no more jobs.")
        job = self._job(job_id)
        if job is not None and job.live and job.benchmark != benchmark:
            raise StoreError(f"“{job.title}” is being computed on another benchmark; wait until that is done.")
        if job is not None and job.live:
            self._turns.wait(job_id, session)
        return job

    def pause(self, job_id: str) -> None:
        """Ask a job that can pause to stop at the next point or step; one that waits stops at once, others go on."""
        with self._changed:
            if job_id in self._queue:
                self._queue.remove(job_id)
                self._turns.end(job_id)
                self._files(job_id).update(state=State.PAUSED, finished=time.time())
            elif (job := self._job(job_id)) is not None and job.live and job.can_pause:
                self._files(job_id).ask_to_pause()

    def _enqueue(self, job_id: str, created: bool, session: str = "", seconds: float = UNKNOWN) -> None:
        """Append a job to the queue, unless it was another server that has written its files."""
        if not created:
            return
        self._turns.wait(job_id, session, seconds, anew=True)
        self._cancelled.discard(job_id)
        self._queue.append(job_id)
        self._start_threads()
        self._changed.notify_all()

    def cancel(self, job_id: str, session: str | None = None) -> None:
        """Ask a job to stop; a running one is gone after three seconds at most. One that has ended does not change.

        A ``session`` leaves it; the job stops if no other one waits for it.
        """
        with self._changed:
            if session is not None and not self._turns.leave(job_id, session):
                return
            if job_id in self._queue:
                self._queue.remove(job_id)
                self._turns.end(job_id)
                self._files(job_id).update(state=State.CANCELLED, finished=time.time())
                self.store.forget_learned(job_id)
            elif job_id in self._running:
                self._cancelled.add(job_id)
                self._changed.notify_all()
            elif (job := self._job(job_id)) is not None and job.live:
                self._files(job_id).mark_cancelled()
                if not job.away:  # its own server sees the mark
                    threading.Thread(target=stop_orphan, args=(self.store, self._files(job_id)), daemon=True).start()

    def dismiss(self, job_id: str) -> None:
        """Delete the files of a job that has ended, and what it has learned if it is not done; its run stays.

        Raises:
            StoreError: there is no such job, or the store is read-only.
        """
        with self._changed:
            if not self.get(job_id).live:
                self._files(job_id).remove()
                self.store.forget_learned(job_id)

    def close(self) -> None:
        """Stop running jobs and the queue; all are "interrupted" afterwards. For tests and for shutting down."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self.spare.close()

    # The threads that work through the queue

    def _start_threads(self) -> None:
        while len(self._threads) < self.at_once:
            self._threads.append(threading.Thread(target=self._work, name="merge-queue", daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        while (job_id := self._next()) is not None:
            try:
                self._run(job_id)
            except Exception as error:  # the queue must go on
                log.exception("Job %s could not be run", job_id)
                self._files(job_id).update(state=State.FAILED, error=f"The job could not be run: {error}")
            with self._changed:
                self._turns.end(job_id)
                self._running.remove(job_id)

    def _next(self) -> str | None:
        """The next job, as soon as another one may run; None when the runner closes."""
        with self._changed:
            while not self._closing:
                if self._queue and self._may_start(job_id := self._turns.order(self._queue)[0]):
                    self._queue.remove(job_id)
                    self._turns.begin(job_id)
                    self._running.add(job_id)
                    return job_id
                self._beat()
                self._changed.wait(ORPHAN_POLL if self._queue else None)
            for job_id in self._queue:
                self._files(job_id).update(state=State.INTERRUPTED)
            self._queue.clear()
            return None

    def _beat(self) -> None:
        """Let other computers see now and then that this server still has its jobs."""
        if time.monotonic() - self._beaten > BEAT:
            self._beaten = time.monotonic()
            for job_id in (*self._queue, *self._running):
                self._files(job_id).beat()

    def _run(self, job_id: str) -> None:
        files = self._files(job_id)
        if files.is_cancelled():
            files.update(state=State.CANCELLED, finished=time.time())
            return
        memory = MemoryWatch()
        process = files.start(self.store.root, self.device, self.spare.start_command, len(self._running))
        files.update(state=State.RUNNING, started=time.time(), worker=ProcessId.of(process.pid))
        stopped = self._wait(process, job_id, memory)
        if (record := files.read()) is not None:
            sweep_up(self.store, [record])
        state, error = ended(files, self.store, process.returncode, stopped, self._closing, memory.ran_out())
        if state == State.DONE:
            state, error = self._then(files)
        files.update(state=state, error=error, finished=time.time())
        self.spare.renew()

    def _then(self, files: JobFiles) -> tuple[State, str]:
        """Submit the recipe that follows a command; gives the command's outcome and the reason for a failure."""
        record, recipe_yaml = files.read(), files.recipe_yaml()
        if record is not None and record.words and recipe_yaml:
            try:
                from merging.benchmarks.benchmark import Benchmark

                benchmark = Benchmark.load(Path(record.benchmark)) if record.benchmark else None
                self.submit(Recipe.from_yaml(recipe_yaml), benchmark=benchmark)
            except MergingError as problem:
                return State.FAILED, str(problem)
        return State.DONE, ""

    def _wait(self, process: Process, job_id: str, memory: MemoryWatch) -> bool:
        """Wait for a child to end, and watch the memory meanwhile; True if it was stopped."""
        looked = time.monotonic()
        while process.poll() is None:
            memory.look()
            if self._queue:
                self.spare.renew()
            with self._changed:
                if time.monotonic() - looked > LOOK:
                    looked = time.monotonic()
                    self._cancelled |= {job_id} if self._files(job_id).is_cancelled() else set()
                self._beat()
                stop = self._closing or job_id in self._cancelled
                if not stop:
                    self._changed.wait(POLL)
            if stop:
                stop_child(process, self._files(job_id), going_on=self._closing)
                return True
        return False
