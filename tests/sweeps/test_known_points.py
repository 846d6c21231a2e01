"""Points that are read once: what the listing of their folders brings, and what many points must not cost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from network_store import hide_until_listed
from small_sweeps import names, run, sweep

from merging.base.errors import RecipeError
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_session, sweep_storage
from merging.study.sweeps import sweep as sweeps
from merging.study.sweeps.known_points import KnownPoints, list_absent
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.sweep import Axis, Sweep
from merging.tasks import results
from merging.tasks.context import Context


@pytest.fixture
def known(tiny_benchmark: Benchmark, store: Store) -> KnownPoints:
    """The points of a sweep of which one is computed."""
    found, asked = sweep(tiny_benchmark, images=4), iter(range(9))
    run(found, store, tiny_benchmark, pause=lambda: next(asked) >= 1)
    sample = found.sample.normalize_on(tiny_benchmark)
    return KnownPoints(sweep_session.plan_sweep(found, tiny_benchmark), store, tiny_benchmark, sample)


def count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """The first arguments of the calls of a function."""
    calls: list[Any] = []
    plain = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: calls.append(given[0]) or plain(*given, **named))
    return calls


def test_every_point_is_read_once(
    known: KnownPoints, store: Store, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count(monkeypatch, results, "read_columns")
    assert len(known.read_points()) == len(known.read_points()) == 1 == len(reads) and known.changes == 1
    sample = sweep(tiny_benchmark, images=4).sample.normalize_on(tiny_benchmark)
    assert list_absent(known.planned, store, tiny_benchmark, sample) == known.planned[1:]
    run(sweep(tiny_benchmark, images=4), store, tiny_benchmark)
    reads.clear()
    assert list(known.read_points()) == [one.name for one in known.planned] and known.changes == 2
    assert len(reads) == 2
    gone = known.planned[1].name
    shutil.rmtree(points.points_folder(store) / gone)
    assert (
        set(known.read_points()) == names(store) == {one.name for one in known.planned} - {gone} and known.changes == 3
    )


def test_a_point_that_was_replaced_is_read_again(known: KnownPoints, store: Store, tmp_path: Path) -> None:
    (name,) = known.read_points()
    place = points.points_folder(store) / name
    shutil.copytree(place, tmp_path / "copy")
    place.rename(tmp_path / "old")
    (tmp_path / "copy").rename(place)
    known.read_points()
    assert known.changes == 2


def test_points_that_are_runs_are_known(tiny_benchmark: Benchmark, store: Store) -> None:
    from merging.study.runs.execute import execute

    found = sweep(tiny_benchmark)
    planned, sample = sweep_session.plan_sweep(found, tiny_benchmark), found.sample.normalize_on(tiny_benchmark)
    known = KnownPoints(planned, store, tiny_benchmark, sample)
    assert not known.read_points() and len(list_absent(planned, store, tiny_benchmark, sample)) == 3
    execute(planned[0].point.recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert list(known.read_points()) == [planned[0].name]
    known.read_points()
    assert known.changes == 1
    assert list_absent(planned, store, tiny_benchmark, sample) == planned[1:]


def test_the_images_are_counted_once_for_a_plan(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios = [tuple(i / n for i in range(n)) for n in (2, 9)]
    counts = []
    for values in ratios:
        found = sweep(tiny_benchmark, axes=(Axis("lwptv.prune_ratio", values),))
        with monkeypatch.context() as patch:
            normal = count(patch, PointSample, "normalize_on")
            run(found, store, tiny_benchmark, pause=lambda: True)
            counts.append(len(normal))
    assert counts[0] == counts[1]


def test_a_plan_reads_what_its_points_share_once(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    for values in ((0.0, 0.5), tuple(i / 9 for i in range(9))):
        found = sweep(tiny_benchmark, axes=(Axis("lwptv.prune_ratio", values),))
        with monkeypatch.context() as patch:
            digests = count(patch, OpenedRecipe, "digests")
            named = sweep_session.plan_sweep(found, tiny_benchmark)
        opened.append(len(digests))
        assert len({one.name for one in named}) == len(values)
        assert [one.run_id for one in named] == [open_inputs(one.point.recipe).run_id() for one in named]
    assert opened == [1, 1]


def test_many_points_need_workers(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "MOST_ALONE", 2)
    monkeypatch.setattr(sweeps, "MOST_POINTS", 3)
    monkeypatch.delenv("MERGESCOPE_WORKERS", raising=False)
    with pytest.raises(RecipeError, match=r"at most 2 points here; .* has 3\. Take fewer values, or set MERGESCOPE_W"):
        sweep(tiny_benchmark)
    monkeypatch.setenv("MERGESCOPE_WORKERS", "4")
    stored = sweep(tiny_benchmark).to_yaml()
    with pytest.raises(RecipeError, match=r"at most 3 points here; this one has 4\. Take fewer values\.$"):
        sweep(tiny_benchmark, axes=(Axis("lwptv.prune_ratio", (0.0, 0.1, 0.2, 0.3)),))
    monkeypatch.delenv("MERGESCOPE_WORKERS")
    assert len(Sweep.from_yaml(stored).points) == 3  # whoever has no workers can look at it


def test_a_sweep_that_another_computer_has_just_stored_is_found(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sweep(tiny_benchmark)
    sweep_storage.store_sweep(found, store)
    hide_until_listed(monkeypatch, store.root / sweep_storage.FOLDER / f"{found.id}.yaml")
    assert sweep_storage.find_sweep(store, found.id) == found
