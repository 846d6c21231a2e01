"""The times of points lie beside the store: short, whole lines, and never in the way of a point."""

from __future__ import annotations

from typing import Any

from small_sweeps import names, run, sweep

from merging.base.files.tables import Columns
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run import THIS_MACHINE
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.study.sweeps.points import Point


def note(store: Store, number: int, **about: Any) -> None:
    """Store a point without rows that took so many seconds."""
    seconds = {"merging": float(number), "evaluating": 1.0}
    table = Columns({name: [] for name in points.SCORE_COLUMNS})
    points.write_point(store, Point(f"{number:012x}", table, "CPU", THIS_MACHINE, seconds), about)


def noted(store: Store) -> list[float]:
    return [times["seconds"]["merging"] for times in points.read_latest_times(store)]


def test_the_latest_times_are_read_and_the_file_stays_short(store: Store) -> None:
    for number in range(2 * points.MAX_TIMES_READ):
        note(store, number, chain=["x" * 800])
        assert points.times_file(store).stat().st_size < points.MAX_TIMES_BYTES + 1000
    assert noted(store) == list(range(points.MAX_TIMES_READ, 2 * points.MAX_TIMES_READ))


def test_times_are_no_part_of_the_store(store: Store) -> None:
    assert points.read_latest_times(store) == []
    note(store, 1)
    place = points.times_file(store)
    assert place.is_file() and store.root.absolute() not in place.parents
    place.write_bytes(place.read_bytes() + b'{"seconds": {"merg\n[1]\n\xff\n')  # what a full disk left, and no times
    note(store, 2)
    assert noted(store) == [1.0, 2.0]
    place.write_bytes(place.read_bytes() + b'{"seconds": {"merg')  # a line that was cut off takes no other with it
    for number in (3, 4):
        note(store, number)
    assert noted(store) == [1.0, 2.0, 3.0, 4.0] and b"\n\n" not in place.read_bytes()


def test_where_times_cannot_be_written_points_are(tiny_benchmark: Benchmark, store: Store) -> None:
    points.times_file(store).mkdir()
    run(sweep(tiny_benchmark), store, tiny_benchmark)
    assert len(names(store)) == 3 and points.read_latest_times(store) == []
