"""Measures several runs, or several things of one: here, or on workers that see the store.

A measurement that consists of trials has each of them done by a worker; any other one is done by one worker whole.
What is timed is measured here, when the workers have nothing else to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from merging.analysis.measure import measure, required_name
from merging.analysis.registry import kind
from merging.analysis.stored import Measured, find
from merging.benchmarks.benchmark import Benchmark
from merging.errors import Cancelled, MergingError, StoreError
from merging.formats.handed_out import handed_out
from merging.runs.estimate import estimate
from merging.runs.inputs import open_inputs
from merging.runs.remote.requests import plain_store
from merging.runs.store import Store
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import MEASURE, Plain
from merging.workers.fan_out import WorkerTask
from merging.workers.in_store import compute_in_store
from merging.workers.workers import Workers


class WantedMeasurement(NamedTuple):
    """A kind of measurement, and the run that it is of; empty for the benchmark."""

    key: str
    run_id: str = ""


def measure_several(
    wanted: Sequence[WantedMeasurement],
    store: Store,
    benchmark: Benchmark,
    *,
    context: Context = QUIET,
    workers: Workers | None = None,
    told: Callable[[WantedMeasurement], None] = lambda one: None,
) -> list[Measured | MergingError]:
    """The stored measurements, in the order in which they are wanted, and the error in place of each that fails.

    With ``workers`` they measure what is missing, if they see the store; else it is measured here. ``told`` is called
    before each that is measured here.

    Raises:
        StoreError: the disk cannot be written to. Cancelled: as asked; what is finished is kept.
    """
    return SeveralMeasurements(list(wanted), store, benchmark, context, workers, told).all()


@dataclass
class SeveralMeasurements:
    """Measurements that are wanted, and how; ``_found`` has what came."""

    wanted: Sequence[WantedMeasurement]
    store: Store
    benchmark: Benchmark
    context: Context
    workers: Workers | None
    told: Callable[[WantedMeasurement], None]
    _found: dict[WantedMeasurement, Measured | MergingError] = field(default_factory=dict)

    def all(self) -> list[Measured | MergingError]:
        each = list(dict.fromkeys(self.wanted))
        alone = [one for one in each if not kind(one.key).trial and not kind(one.key).timed]
        weights = {"alone": _seconds(alone) if self.workers else 0.0, "rest": _seconds(set(each) - set(alone))}
        halves = self.context.parts(weights if self.workers else {"rest": 1.0})
        if self.workers is not None and alone:
            self._on(self.workers, alone, halves["alone"])
        rest = sorted((one for one in each if one not in self._found), key=lambda one: kind(one.key).timed)
        parts = halves["rest"].parts({repr(one): kind(one.key).seconds for one in rest})
        for one in rest:  # what is timed last; the others stay in their order
            self.told(one)
            words = f"Measurement {each.index(one) + 1} of {len(each)}"
            try:
                required_name(kind(one.key), self.store, self.benchmark, one.run_id)
            except MergingError as error:
                self._found[one] = error
            else:
                self._here(one, parts[repr(one)].titled(words))
        return [self._found[one] for one in self.wanted]

    def _here(self, one: WantedMeasurement, context: Context) -> None:
        try:
            workers = nullcontext(self.workers)
            self._found[one] = measure(
                one.key, self.store, self.benchmark, one.run_id, context=context, workers=workers
            )
        except (Cancelled, StoreError):
            raise
        except MergingError as error:
            self._found[one] = error

    def _on(self, workers: Workers, each: Sequence[WantedMeasurement], context: Context) -> None:
        """Measure on workers, what takes longest first; nothing is found where they do not see the store."""
        asked, names, found = dict[str, Plain](), dict[WantedMeasurement, str](), dict[WantedMeasurement, Measured]()
        failures: dict[str, MergingError] | None
        for one in sorted(each, key=lambda one: -kind(one.key).seconds):
            try:
                name = required_name(kind(one.key), self.store, self.benchmark, one.run_id)
                if stored := find(one.key, self.store, self.benchmark, one.run_id):
                    found[one] = stored
                    continue
                asked.setdefault(name, self.request(one, name, workers))
                names[one] = name
            except MergingError as error:
                self._found[one] = error
        tasks = [WorkerTask(name, partial(dict, request)) for name, request in asked.items()]
        total = len({*names.values()}) + len(found)
        failures = compute_in_store(MEASURE, tasks, self.store.root, workers, context, total) if tasks else {}
        if failures is None:
            return
        self._found |= found
        for one, name in names.items():
            self._found[one] = failures.get(name) or self._read(one)

    def request(self, one: WantedMeasurement, name: str, workers: Workers) -> Plain:
        """What a worker is asked.

        Raises:
            MergingError: the run cannot be measured, or needs more memory than each worker may take.
        """
        run, digests = self.store.run(one.run_id), list[Plain]()
        if run.recipe is not None:
            opened = open_inputs(run.recipe, benchmark=self.benchmark)
            workers.check_memory(
                estimate(opened, self.benchmark, device=self.context.device).anonymous_bytes, "a measurement"
            )
            digests = [handed_out(checkpoint) for checkpoint in opened]
        return {
            "name": name,
            "measurement": one.key,
            "run": one.run_id,
            "digests": digests,
            "benchmark": str(self.benchmark.folder.absolute()),
            "store": plain_store(self.store),
            "device": self.context.device,
        }

    def _read(self, one: WantedMeasurement) -> Measured | MergingError:
        found = find(one.key, self.store, self.benchmark, one.run_id)
        return found or StoreError(f"{kind(one.key).title} was measured, but cannot be read here. Measure it again.")


def _seconds(each: Iterable[WantedMeasurement]) -> float:
    """A guess of what measurements take."""
    return sum(kind(one.key).seconds for one in each)
