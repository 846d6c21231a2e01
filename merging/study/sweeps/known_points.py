"""The stored points of a plan, each of which is read once, even if it is requested many times.

A plan is the list of a sweep's points with their names. A point is stored by itself, or as the scores of a run.
"""

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
    """The stored points of a plan; each request lists the folders and reads only new points.

    A point never changes under its name, so a read point remains valid. ``sample`` is in normal form
    (``PointSample.normalize_on``). ``changes`` counts the requests that found other points than before. Thread-safe.
    """

    def __init__(self, planned: Sequence[NamedPoint], store: Store, benchmark: Benchmark, sample: PointSample) -> None:
        self.planned, self.changes = planned, 0
        self._store, self._benchmark, self._sample = store, benchmark, sample
        self._sources: dict[str, object] = {}  # {point: where it was read}, also for points that could not be read
        self._points: dict[str, Point] = {}
        self._lock = threading.Lock()

    def read_points(self) -> Mapping[str, Point]:
        """The stored points by name, in the order of the plan."""
        with self._lock:
            locations, runs = points.point_results(self._store).list_locations(), self._identify_runs()
            has_changed = False
            for planned_point in self.planned:
                source: object = locations.get(planned_point.name) or runs.get(planned_point.stored_run_id)
                if source != self._sources.get(planned_point.name):
                    has_changed = True
                    self._read_point(planned_point, source)
            self.changes += has_changed
            return {
                planned_point.name: self._points[planned_point.name]
                for planned_point in self.planned
                if planned_point.name in self._points
            }

    def _read_point(self, planned_point: NamedPoint, source: object) -> None:
        """Read a point. ``source`` is its location if it is stored by itself, the copies of its run, or None."""
        point = points.find_point(self._store, planned_point.name) if isinstance(source, ResultLocation) else None
        if point is None and source is not None:
            point = points.read_point_of_run(
                self._store, planned_point.stored_run_id, planned_point.name, self._benchmark, self._sample
            )
        self._sources[planned_point.name] = source
        self._points.pop(planned_point.name, None)
        if point is not None:
            self._points[planned_point.name] = point

    def _identify_runs(self) -> Mapping[str, object]:
        """{run id: identities of its copies} of the stored runs whose scores may be those of points.

        A run has several copies if libraries hold it, too, or if it was scored on several benchmarks.
        """
        if self._sample.images:  # the scores of runs are of all images, not of a sample
            return {}
        stored = self._store.list_ids()
        run_ids = {one.stored_run_id for one in self.planned if one.stored_run_id in stored}
        return {run_id: [_copy_identity(run) for run in self._store.list_copies(run_id)] for run_id in run_ids}


def _copy_identity(run: Run) -> tuple[Path, str | None, str | None]:
    """The properties that distinguish a copy of a run from its other copies."""
    return run.path, run.benchmark, run.created


def list_absent(
    planned: Sequence[NamedPoint], store: Store, benchmark: Benchmark, sample: PointSample
) -> list[NamedPoint]:
    """The points of a plan that are not stored; no point is read. ``sample`` is in normal form."""
    locations, runs = points.point_results(store).list_locations(), store.list_ids() if not sample.images else set()
    return [
        planned_point
        for planned_point in planned
        if planned_point.name not in locations
        and (
            planned_point.stored_run_id not in runs
            or points.read_point_of_run(store, planned_point.stored_run_id, planned_point.name, benchmark, sample)
            is None
        )
    ]
