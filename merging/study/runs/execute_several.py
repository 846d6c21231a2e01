"""Runs several recipes: one after another in this process, or each on a worker that sees the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Unpack

from merging.base.errors import MergingError, StoreError, TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.files_on_workers import digest_for_request
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import estimate_run
from merging.study.runs.execute import RunOptions, complete_options, execute, find_fitting_benchmark, find_stored_run
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.runs.worker_requests import store_to_plain
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import RUN, Plain
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers


@dataclass(frozen=True)
class RequestedRun:
    """A recipe to run, and the folder to which its paths are relative; None is the current folder."""

    recipe: Recipe
    base: Path | None = None


def execute_several(
    requests: Sequence[RequestedRun],
    store: Store,
    *,
    benchmark: Benchmark | None = None,
    context: Context = QUIET,
    **options: Unpack[RunOptions],
) -> list[Run | MergingError]:
    """The stored run of each request, in the order of the requests; the error instead if a run fails.

    Workers of the context compute and write the missing runs if they see the store; otherwise this process does, with a
    warning. The work can pause between two runs, and while a method learns in this process.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: the user cancelled or
            paused; finished runs remain stored.
    """
    if benchmark is None and len(requests) > 0:
        benchmark = _load_bundled_benchmark()
    with open_workers(context) as workers:
        return SeveralRuns(requests, store, complete_options(options), benchmark, context).execute_all(workers)


@dataclass
class SeveralRuns:
    """Runs to compute with the same ``options``; ``_results`` is {name of a task: its run or error}."""

    requests: Sequence[RequestedRun]
    store: Store
    options: RunOptions
    benchmark: Benchmark | None
    context: Context
    _results: dict[str, Run | MergingError] = field(default_factory=dict)

    def execute_all(self, workers: Workers | None) -> list[Run | MergingError]:
        """The run or error of each recipe; workers begin with the longest run, this process with the first."""
        tasks = [self._plan_task(number, request, workers) for number, request in enumerate(self.requests)]
        failed_names = [name for name, result in self._results.items() if isinstance(result, MergingError)]
        missing_tasks = {task.name: task for task in tasks if task.name not in self._results}
        TaskMap(
            RUN, self.context, lambda task, _: self._read_run(task.name),
            on_answer=self._note_result, on_error=self._note_result,
            total=len({task.name for task in tasks}) - len(failed_names), folder=self.store.root,
        ).run(sorted(missing_tasks.values(), key=lambda task: -task.work), workers)  # fmt: skip
        return [self._results[task.name] for task in tasks]

    def _note_result(self, task: WorkerTask, result: Run | MergingError) -> None:
        self._results[task.name] = result

    def _plan_task(self, number: int, request: RequestedRun, workers: Workers | None) -> WorkerTask:
        """The task of a request, with its seconds as work; a stored run or an error of planning becomes its result."""
        name, seconds, make_request = str(number), 0.0, None
        if workers is not None:
            try:
                name, make_request, seconds = self.plan_run(request, workers)
                if make_request is None:
                    self._results[name] = self._read_run(name)
            except MergingError as error:
                self._results[name] = error
        return WorkerTask(  # dict, an empty request, is never sent: this process computes, or the result is known
            name, make_request or dict, partial(self._execute_run, number, request), max(1, round(seconds))
        )

    def _execute_run(self, number: int, request: RequestedRun, context: Context) -> Run:
        run_context = context.without_workers().with_title(f"Run {number + 1} of {len(self.requests)}")
        return execute(
            request.recipe, self.store, benchmark=self.benchmark, base=request.base, context=run_context, **self.options
        )

    def plan_run(self, request: RequestedRun, workers: Workers) -> tuple[str, Callable[[], Plain] | None, float]:
        """The id of a run, a function that makes the request to a worker, and the estimated seconds.

        The function is None if the run is stored. When called, it raises WorkerError if the run needs more memory than
        each worker may use.

        Raises:
            MergingError: the recipe cannot be run.
        """
        request.recipe.refuse_elsewhere()
        options, base = self.options, (request.base or Path.cwd()).absolute()
        opened = open_inputs(request.recipe, base, self.benchmark)
        scored_on = find_fitting_benchmark(opened, self.benchmark)[0] if options["evaluate"] else None
        run_id = opened.run_id(opened.digests(self.context.without_progress()))
        if find_stored_run(self.store, run_id, scored_on, options["need_model"]):
            return run_id, None, 0.0
        plan = estimate_run(opened, scored_on, device=self.context.device)
        worker_request = {
            "name": run_id,
            "recipe": request.recipe.to_plain(),
            "base": str(base),
            "digests": [digest_for_request(checkpoint) for checkpoint in opened],
            "benchmark": str(self.benchmark.folder.absolute()) if self.benchmark else "",
            # The worker compares this digest with that of the images it sees.
            "images": self.benchmark.digest if self.benchmark else "",
            "store": store_to_plain(self.store),
            "options": {**options},
            "device": self.context.device,
        }

        def make_request() -> Plain:
            workers.check_memory(plan.anonymous_bytes, "a run")
            return worker_request

        return run_id, make_request, plan.seconds

    def _read_run(self, run_id: str) -> Run:
        if run := self.store.find_on_shared_disk(run_id):
            return run
        raise StoreError(f"Run {run_id} was computed by a worker, but cannot be read. Run its recipe again.")


def _load_bundled_benchmark() -> Benchmark | None:
    """The bundled benchmark; None if it cannot be read."""
    try:
        return Benchmark.load()
    except TaskError:
        return None
