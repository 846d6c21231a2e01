"""Runs several recipes: one after another in this process, or each whole on a worker that sees the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from merging.benchmarks.benchmark import Benchmark
from merging.errors import Cancelled, MergingError, Paused, StoreError, TaskError
from merging.formats.handed_out import handed_out
from merging.recipes.recipe import Recipe
from merging.runs.estimate import estimate
from merging.runs.execute import execute, fitting_benchmark, stored_run
from merging.runs.inputs import open_inputs
from merging.runs.remote.requests import plain_store
from merging.runs.run import Run
from merging.runs.store import Store
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import RUN, Plain
from merging.workers.fan_out import WorkerTask
from merging.workers.in_store import compute_in_store
from merging.workers.workers import Workers


@dataclass(frozen=True)
class WantedRun:
    """A recipe, and the folder from which its relative paths count; None: the current one."""

    recipe: Recipe
    base: Path | None = None


@dataclass(frozen=True)
class RunOptions:
    """How each of several recipes is run, as ``merging.runs.execute.execute`` takes it."""

    evaluate: bool = True
    keep_model: bool = True
    need_model: bool = False
    strict: bool = False


def execute_several(
    wanted: Sequence[WantedRun],
    store: Store,
    options: RunOptions = RunOptions(),
    *,
    benchmark: Benchmark | None = None,
    context: Context = QUIET,
    workers: Workers | None = None,
) -> list[Run | MergingError]:
    """The stored runs of recipes, in their order, and the error in place of each that fails.

    With ``workers`` they compute and write the missing runs, if they see the store; else they are computed here, and
    with a warning. It can pause between two runs, and while something is learned here.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: as asked; what is finished is kept.
    """
    if benchmark is None and len(wanted) > 0:
        benchmark = _bundled()
    work = SeveralRuns(wanted, store, options, benchmark, context)
    if workers is not None and (found := work.on(workers)) is not None:
        return found
    return work.here()


@dataclass
class SeveralRuns:
    """Runs that are wanted, and how; ``_found`` has what came, by their number."""

    wanted: Sequence[WantedRun]
    store: Store
    options: RunOptions
    benchmark: Benchmark | None
    context: Context
    _found: dict[int, Run | MergingError] = field(default_factory=dict)

    def here(self) -> list[Run | MergingError]:
        """One after another."""
        names = [str(number) for number in range(len(self.wanted))]
        parts = self.context.parts(dict.fromkeys(names, 1.0))
        for number, one in enumerate(self.wanted):
            if self.context.pauses():
                raise Paused(f"Paused. {number} of {len(self.wanted)} runs are kept.")
            part = parts[names[number]].titled(f"Run {number + 1} of {len(self.wanted)}")
            try:
                self._found[number] = execute(
                    one.recipe, self.store, benchmark=self.benchmark, base=one.base, context=part, **vars(self.options)
                )
            except (Cancelled, StoreError):
                raise
            except MergingError as error:
                self._found[number] = error
        return self._all()

    def on(self, workers: Workers) -> list[Run | MergingError] | None:
        """On workers, what takes longest first; None if they do not see the store."""
        asked, seconds, places = dict[str, Plain](), dict[str, float](), dict[int, str]()
        for number, one in enumerate(self.wanted):
            try:
                name, request, takes = self.planned(one, workers)
            except MergingError as error:
                self._found[number] = error
                continue
            places[number] = name
            if request:
                asked[name], seconds[name] = request, takes
        missing = sorted(asked.items(), key=lambda pair: -seconds[pair[0]])
        failures: dict[str, MergingError] | None = {}
        if missing:
            total = len({*places.values()})
            tasks = [WorkerTask(name, partial(dict, request)) for name, request in missing]
            failures = compute_in_store(RUN, tasks, self.store.root, workers, self.context, total)
        if failures is None:
            return None
        for number, name in places.items():
            self._found[number] = failures.get(name) or self._read(name)
        return self._all()

    def planned(self, one: WantedRun, workers: Workers) -> tuple[str, Plain, float]:
        """The id of a run, what a worker is asked for it (nothing if it is stored), and the seconds that it may take.

        Raises:
            MergingError: it cannot be run, or needs more memory than each worker may take.
        """
        options, base = self.options, (one.base or Path.cwd()).absolute()
        opened = open_inputs(one.recipe, base, self.benchmark)
        scored_on = fitting_benchmark(opened, self.benchmark)[0] if options.evaluate else None
        name = opened.run_id(opened.digests(self.context.silent()))
        if stored_run(self.store, name, scored_on, options.need_model):
            return name, {}, 0.0
        plan = estimate(opened, scored_on, device=self.context.device)
        workers.check_memory(plan.anonymous_bytes, "a run")
        request = {
            "name": name,
            "recipe": one.recipe.plain(),
            "base": str(base),
            "digests": [handed_out(checkpoint) for checkpoint in opened],
            "benchmark": str(self.benchmark.folder.absolute()) if self.benchmark else "",
            "images": self.benchmark.digest if self.benchmark else "",
            "store": plain_store(self.store),
            "options": vars(options),
            "device": self.context.device,
        }
        return name, request, plan.seconds

    def _read(self, name: str) -> Run | MergingError:
        found = self.store.promised(name)
        return found or StoreError(f"Run {name} was computed, but cannot be read here. Run its recipe again.")

    def _all(self) -> list[Run | MergingError]:
        return [self._found[number] for number in range(len(self.wanted))]


def _bundled() -> Benchmark | None:
    try:
        return Benchmark.load()
    except TaskError:
        return None
