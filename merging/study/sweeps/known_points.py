"""The stored points of a plan, of which each is read once, however often they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.study.sweeps.points import Point, PointSample
from merging.study.sweeps.sweep import NamedPoint
from merging.tasks.results import ResultLocation


class KnownPoints:
    """The stored points of a plan: asked again, it lists the folders and reads only what is new in them.

    A point never changes under its name, so one that was read stays good. ``sample`` is in normal form (``Sample.on``).
    ``changes`` counts how often there were others than before. Several threads may ask.
    """

    def __init__(self, planned: Sequence[NamedPoint], store: Store, benchmark: Benchmark, sample: PointSample) -> None:
        self.planned, self.changes = planned, 0
        self._store, self._benchmark, self._sample = store, benchmark, sample
        self._seen: dict[str, object] = {}  # where a point came from, also one that could not be read
        self._points: dict[str, Point] = {}
        self._lock = threading.Lock()

    def read_points(self) -> Mapping[str, Point]:
        """The stored points by name, in the order of the plan."""
        with self._lock:
            there, runs = points.point_results(self._store).list_locations(), self._runs()
            changed = False
            for one in self.planned:
                source: object = there.get(one.name) or runs.get(one.run_id)
                if source != self._seen.get(one.name):
                    changed = True
                    self._take(one, source)
            self.changes += changed
            return {one.name: self._points[one.name] for one in self.planned if one.name in self._points}

    def _take(self, one: NamedPoint, source: object) -> None:
        """Read a point from where it is now; None: nowhere."""
        point = points.find_point(self._store, one.name) if isinstance(source, ResultLocation) else None
        if point is None and source is not None:
            point = points.point_of_run(self._store, one.run_id, one.name, self._benchmark, self._sample)
        self._seen[one.name] = source
        self._points.pop(one.name, None)
        if point is not None:
            self._points[one.name] = point

    def _runs(self) -> Mapping[str, object]:
        """{id: which copies there are} of the stored runs whose scores may be those of points."""
        if self._sample.images:
            return {}
        stored = self._store.list_ids()
        wanted = {one.run_id for one in self.planned if one.run_id in stored}
        return {run_id: [_copy_identity(run) for run in self._store.list_copies(run_id)] for run_id in wanted}


def _copy_identity(run: Run) -> tuple[Path, str | None, str | None]:
    """What distinguishes a stored run from others of its id."""
    return run.path, run.benchmark, run.created


def list_absent(
    planned: Sequence[NamedPoint], store: Store, benchmark: Benchmark, sample: PointSample
) -> list[NamedPoint]:
    """The points of a plan that are not stored, by the names alone; ``sample`` is in normal form (``Sample.on``)."""
    there, runs = points.point_results(store).list_locations(), store.list_ids() if not sample.images else set()
    return [
        one
        for one in planned
        if one.name not in there
        and (one.run_id not in runs or points.point_of_run(store, one.run_id, one.name, benchmark, sample) is None)
    ]
