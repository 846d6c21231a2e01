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
from merging.study.runs.execute import RunOptions, complete_options, execute, fitting_benchmark, stored_run
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.runs.worker_requests import plain_store
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import RUN, Plain
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers


@dataclass(frozen=True)
class WantedRun:
    """A recipe, and the folder to which its paths are relative; None: the current one."""

    recipe: Recipe
    base: Path | None = None


def execute_several(
    wanted: Sequence[WantedRun],
    store: Store,
    *,
    benchmark: Benchmark | None = None,
    context: Context = QUIET,
    **options: Unpack[RunOptions],
) -> list[Run | MergingError]:
    """The stored runs of recipes, in their order; a run that fails has its error instead.

    Workers of the context compute and write the missing runs if they see the store; otherwise this process does, with a
    warning. The work can pause between two runs, and while a method learns in this process.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: the user did; finished runs are stored.
    """
    if benchmark is None and len(wanted) > 0:
        benchmark = _bundled_library()
    with open_workers(context) as workers:
        return SeveralRuns(wanted, store, complete_options(options), benchmark, context).execute_all(workers)


@dataclass
class SeveralRuns:
    """Recipes to run, and with which options; ``_results`` has each run or error, by the names of tasks."""

    wanted: Sequence[WantedRun]
    store: Store
    options: RunOptions
    benchmark: Benchmark | None
    context: Context
    _results: dict[str, Run | MergingError] = field(default_factory=dict)

    def execute_all(self, workers: Workers | None) -> list[Run | MergingError]:
        """The run or error of each recipe; workers begin with the longest run, this process follows the order."""
        tasks = [self._task(number, one, workers) for number, one in enumerate(self.wanted)]
        failed = [name for name, result in self._results.items() if isinstance(result, MergingError)]
        missing = {task.name: task for task in tasks if task.name not in self._results}
        TaskMap(
            RUN, self.context, lambda task, _: self._read(task.name), self._note_result, self._note_result,
            total=len({task.name for task in tasks}) - len(failed), folder=self.store.root,
        ).run(sorted(missing.values(), key=lambda task: -task.work), workers)  # fmt: skip
        return [self._results[task.name] for task in tasks]

    def _note_result(self, task: WorkerTask, result: Run | MergingError) -> None:
        self._results[task.name] = result

    def _task(self, number: int, one: WantedRun, workers: Workers | None) -> WorkerTask:
        """The task of a recipe, with its seconds as work. Stored runs and errors of planning are noted as results."""
        name, seconds, ask = str(number), 0.0, None
        if workers is not None:
            try:
                name, ask, seconds = self.plan_run(one, workers)
                if ask is None:
                    self._results[name] = self._read(name)
            except MergingError as error:
                self._results[name] = error
        return WorkerTask(name, ask or dict, partial(self._run, number, one), max(1, round(seconds)))

    def _run(self, number: int, one: WantedRun, context: Context) -> Run:
        part = context.without_workers().with_title(f"Run {number + 1} of {len(self.wanted)}")
        return execute(one.recipe, self.store, benchmark=self.benchmark, base=one.base, context=part, **self.options)

    def plan_run(self, one: WantedRun, workers: Workers) -> tuple[str, Callable[[], Plain] | None, float]:
        """The id of a run, a function that makes its request to a worker (None if it is stored), and its seconds.

        The function raises WorkerError if the run needs more memory than each worker may use.

        Raises:
            MergingError: the recipe cannot be run.
        """
        options, base = self.options, (one.base or Path.cwd()).absolute()
        opened = open_inputs(one.recipe, base, self.benchmark)
        scored_on = fitting_benchmark(opened, self.benchmark)[0] if options["evaluate"] else None
        name = opened.run_id(opened.digests(self.context.without_progress()))
        if stored_run(self.store, name, scored_on, options["need_model"]):
            return name, None, 0.0
        plan = estimate_run(opened, scored_on, device=self.context.device)
        request = {
            "name": name,
            "recipe": one.recipe.to_plain(),
            "base": str(base),
            "digests": [digest_for_request(checkpoint) for checkpoint in opened],
            "benchmark": str(self.benchmark.folder.absolute()) if self.benchmark else "",
            "images": self.benchmark.digest if self.benchmark else "",
            "store": plain_store(self.store),
            "options": {**options},
            "device": self.context.device,
        }

        def ask() -> Plain:
            workers.check_memory(plan.anonymous_bytes, "a run")
            return request

        return name, ask, plan.seconds

    def _read(self, name: str) -> Run:
        if found := self.store.find_promised(name):
            return found
        raise StoreError(f"Run {name} was computed by a worker, but cannot be read. Run its recipe again.")


def _bundled_library() -> Benchmark | None:
    try:
        return Benchmark.load()
    except TaskError:
        return None
