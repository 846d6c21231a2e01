"""A queue of merges, measurements, sweeps and other commands, each in a child process, which may take all memory.

What is known about a job lies on the disk (see records), so that a second tab or a restarted server sees it.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from merging.analysis import registry
from merging.errors import MergingError, StoreError
from merging.files.locks import held
from merging.files.processes import ProcessId
from merging.files.temporary import is_temporary
from merging.jobs.cleanup import stop_child, stop_orphan, sweep_up
from merging.jobs.outcome import ended
from merging.jobs.reading import details, read_job
from merging.jobs.records import SWEEP, Job, JobFiles, State, job_of
from merging.jobs.spare import Spare
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.runs.store import Store

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark
    from merging.runs.inputs import OpenedRecipe

POLL = 0.1  # seconds between two checks of a running child
ORPHAN_POLL = 0.5  # seconds between two checks whether another server's child has ended
SUBMITTING = 5.0  # seconds at most that one server waits while another one submits a job
log = logging.getLogger(__name__)


class Runner:
    """Runs one job at a time, in the order of submission. Every method may be called from any thread.

    Only ``submit`` may take a moment: it reads the checkpoints that this process has not read yet, to name the run.
    A job on another ``benchmark`` than the one that the server was started on names it; its child works on that one.
    Children are made of the ``spare`` process, if one is to be kept ready.
    """

    def __init__(self, store: Store, *, device: str = "auto") -> None:
        self.store, self.device = store, device
        self.spare = Spare()
        self._root = store.root / "jobs"
        self._changed = threading.Condition()
        self._queue: deque[str] = deque()
        self._running: str | None = None
        self._cancelled: set[str] = set()
        self._closing = False
        self._thread: threading.Thread | None = None
        sweep_up(store, [record for job_id in self._ids() if (record := self._files(job_id).read()) is not None])

    def submit(
        self, recipe: Recipe, *, base: Path | None = None, need_model: bool = False, benchmark: Benchmark | None = None
    ) -> Job:
        """The job of a recipe: the one that is waiting, running or done, or a new one at the end of the queue.

        Large files that were never read on this machine are better read by a command first (see digests).

        Raises:
            CheckpointError: a checkpoint is missing or damaged.
            StoreError: the store cannot be written to, or the same merge is under way for another benchmark.
        """
        from merging.checkpoints.digests import DIGESTS  # loads torch, which listing jobs does not need
        from merging.runs.inputs import open_inputs

        DIGESTS.load(self.store.root)
        opened = open_inputs(recipe, base, benchmark)
        run_id = opened.run_id()
        folder = str(benchmark.folder) if benchmark else ""
        files = self._files(run_id)
        with self._submitting():
            before, earlier = files.read(), self._earlier(run_id, folder)
            if earlier is not None and earlier.live:
                return earlier
            if self._is_stored(opened, run_id, need_model):
                return earlier if earlier is not None and earlier.state == State.DONE else self._stored_job(run_id)
            created = files.create(
                recipe.to_yaml(),
                title=recipe.title or recipe.text(),
                base=(base or Path.cwd()).absolute(),
                need_model=need_model,
                subject=run_id,
                benchmark=folder,
                earlier=before,
            )
            self._enqueue(run_id, created)
        return self.get(run_id)

    def measure(self, key: str, run_id: str = "", benchmark: str = "", of: Run | None = None) -> Job:
        """The job that measures something of a stored run, or of the benchmark: the live one, or a new one.

        Raises:
            StoreError: there is no such run or measurement, or it is under way on another benchmark.
        """
        title = registry.kind(key).title + (f": {(of or self.store.run(run_id)).title}" if run_id else "")
        return self._begin(key, run_id, title, benchmark=benchmark)

    def sweep(self, sweep_id: str, title: str, benchmark: str = "") -> Job:
        """The job that computes what is missing of a stored sweep: the live one, or a new one.

        Raises:
            StoreError: it is under way on another benchmark.
        """
        return self._begin(SWEEP, sweep_id, f"Sweep: {title}", benchmark=benchmark)

    def command(
        self, kind: str, subject: str, title: str, words: Sequence[str], then: Recipe | None = None, benchmark: str = ""
    ) -> Job:
        """The job that runs a command of the command line: the live one, or a new one.

        ``kind`` says in one word what the command does, ``subject`` what it works on. The recipe ``then`` is submitted
        once the command is done.
        """
        return self._begin(kind, subject, title, words, then, benchmark)

    def _begin(
        self, kind: str, subject: str, title: str, words: Sequence[str] = (), then: Recipe | None = None,
        benchmark: str = "",
    ) -> Job:  # fmt: skip
        job_id, recipe = job_of(kind, subject), then.to_yaml() if then else ""
        files = self._files(job_id)
        with self._submitting():
            before, earlier = files.read(), self._earlier(job_id, benchmark)
            if earlier is not None and earlier.live:
                return earlier
            created = files.create(
                recipe, title=title, base=Path.cwd(), kind=kind, subject=subject, words=words, benchmark=benchmark,
                earlier=before,
            )  # fmt: skip
            self._enqueue(job_id, created)
        return self.get(job_id)

    def again(self, job_id: str) -> Job:
        """A job that has ended, submitted once more as it was; one that is live goes on.

        Raises:
            StoreError: there is no such job.
        """
        files = self._files(job_id)
        with self._submitting():
            before = files.read()
            if before is not None and not self.get(job_id).live and not self._closing:
                self._enqueue(job_id, files.create_again(before))
        return self.get(job_id)

    @contextlib.contextmanager
    def _submitting(self) -> Iterator[None]:
        """One thread, and one server, submits at a time, so that the same job is not created twice."""
        with self._changed, held(self.store.root / "locks" / "submitting.lock", longest=SUBMITTING):
            yield

    def _earlier(self, job_id: str, benchmark: str) -> Job | None:
        """The job of that id from before, if there is one; raises StoreError if it is live on another benchmark."""
        if self._closing:
            raise StoreError("The runner is closed; it takes no more jobs.")
        job = self._job(job_id)
        if job is not None and job.live and job.benchmark != benchmark:
            raise StoreError(f"“{job.title}” is being computed on another benchmark; wait until that is done.")
        return job

    def pause(self, job_id: str) -> None:
        """Ask a job that can pause to stop at the next point or step; one that waits stops at once, others go on."""
        with self._changed:
            if job_id in self._queue:
                self._queue.remove(job_id)
                self._files(job_id).update(state=State.PAUSED, finished=time.time())
            elif (job := self._job(job_id)) is not None and job.live and job.can_pause:
                self._files(job_id).ask_to_pause()

    def details(self, job_id: str) -> list[str]:
        """What a job's progress has said lately, oldest first."""
        return details(self._files(job_id))

    def _enqueue(self, job_id: str, created: bool) -> None:
        """Append a job to the queue, unless it was another server that has written its files."""
        if not created:
            return
        self._cancelled.discard(job_id)
        self._queue.append(job_id)
        self._start_thread()
        self._changed.notify_all()

    def jobs(self) -> list[Job]:
        """All jobs, newest first."""
        jobs = [job for job_id in self._ids() if (job := self._job(job_id)) is not None]
        return sorted(jobs, key=lambda job: job.submitted, reverse=True)

    def get(self, job_id: str) -> Job:
        """The job of that id (a stored run counts as done); raises StoreError if there is none."""
        if (job := self._job(job_id)) is not None:
            return job
        if self.store.has(job_id):
            return self._stored_job(job_id)
        raise StoreError(f"There is no job {job_id[:40]!r}.")

    def cancel(self, job_id: str) -> None:
        """Ask a job to stop; a running one is gone after three seconds at most. One that has ended does not change."""
        with self._changed:
            if job_id in self._queue:
                self._queue.remove(job_id)
                self._files(job_id).update(state=State.CANCELLED, finished=time.time())
                self.store.forget_learned(job_id)
            elif job_id == self._running:
                self._cancelled.add(job_id)
                self._changed.notify_all()
            elif (job := self._job(job_id)) is not None and job.live:
                self._files(job_id).mark_cancelled()
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
        """Stop the running job and the queue; both are "interrupted" afterwards. For tests and for shutting down."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.spare.close()

    # What is known

    def _files(self, job_id: str) -> JobFiles:
        return JobFiles(self._root, job_id)

    def _ids(self) -> list[str]:
        """The names of the folders of jobs."""
        names = sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []
        return [name for name in names if not is_temporary(name)]

    def _is_stored(self, opened: OpenedRecipe, run_id: str, need_model: bool) -> bool:
        """Whether a run is stored with all that it can have, on the benchmark if one was named."""
        from merging.runs.inputs import settled

        return settled(opened, [run for run in self.store.candidates(run_id) if run.has_model or not need_model])

    def _stored_job(self, run_id: str) -> Job:
        run = self.store.run(run_id)
        return Job(run_id, run.title, State.DONE, fraction=1.0, recipe_yaml=run.recipe_yaml, subject=run_id)

    def _job(self, job_id: str) -> Job | None:
        """The job as the disk and this process know it; None if there is none, or if its run was deleted."""
        with self._changed:
            position = self._queue.index(job_id) + 1 if job_id in self._queue else 0
            return read_job(self._files(job_id), self.store, position, position > 0 or job_id == self._running)

    # The thread that works through the queue

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="merge-queue", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job_id := self._next()) is not None:
            try:
                self._run(job_id)
            except Exception as error:  # the queue must go on
                log.exception("Job %s could not be run", job_id)
                self._files(job_id).update(state=State.FAILED, error=f"The job could not be run: {error}")
            with self._changed:
                self._running = None

    def _next(self) -> str | None:
        """The next job, as soon as nothing else runs; None when the runner closes."""
        with self._changed:
            while not self._closing:
                if self._queue and not self._orphan_runs():
                    self._running = self._queue.popleft()
                    return self._running
                self._changed.wait(ORPHAN_POLL if self._queue else None)
            for job_id in self._queue:
                self._files(job_id).update(state=State.INTERRUPTED)
            self._queue.clear()
            return None

    def _orphan_runs(self) -> bool:
        """Whether a job that another server started is still running."""
        return any(job.state == State.RUNNING and not job.halted for job in self.jobs())

    def _run(self, job_id: str) -> None:
        files = self._files(job_id)
        if files.is_cancelled():
            files.update(state=State.CANCELLED, finished=time.time())
            return
        process = files.start(self.store.root, self.device, self.spare.launch)
        files.update(state=State.RUNNING, started=time.time(), worker=ProcessId.of(process.pid))
        stopped = self._wait(process, job_id)
        if (record := files.read()) is not None:
            sweep_up(self.store, [record])
        state, error = ended(files, self.store, process.returncode, stopped, self._closing)
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

    def _wait(self, process: subprocess.Popen[bytes], job_id: str) -> bool:
        """Wait for a child to end; True if it was stopped."""
        while process.poll() is None:
            if self._queue:
                self.spare.renew()
            with self._changed:
                stop = self._closing or job_id in self._cancelled
                if not stop:
                    self._changed.wait(POLL)
            if stop:
                stop_child(process, self._files(job_id), going_on=self._closing)
                return True
        return False
