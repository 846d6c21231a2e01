"""Times of methods as ratios: what a machine that changes its speed does to them, and when they are measured anew."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from merging.base.devices import describe_machine
from merging.base.errors import Cancelled, CheckpointError
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import registry
from merging.study import measure as measuring
from merging.study.analysis import measurement_store
from merging.study.runs.run import PRECOMPUTED, THIS_MACHINE
from merging.study.runs.run_store import Store
from merging.study.trials import method_times
from merging.tasks.context import Context

COSTS = {"task_arithmetic": 1.0, "lwptv → task_arithmetic": 1.5, "ties": 3.0, "drm": 40.0}  # of a chain, in references
METHODS = (
    registry.find_edit("lwptv"),
    *(registry.find_merge(key) for key in ("task_arithmetic", "ties", "drm", "emr")),
)


class Machine:
    """A clock, and merges that take their cost times how slow the machine is, which grows with every merge."""

    def __init__(self) -> None:
        self.now, self.slowness, self.calls = 0.0, 1.0, 0

    def clock(self) -> float:
        return self.now

    def run(self, recipe: Any, *_: Any, **__: Any) -> None:
        assert torch.get_num_threads() == 1
        if recipe.text() == "emr":
            raise CheckpointError("no room for so many models")
        self.now += COSTS[recipe.text()] * self.slowness
        self.slowness *= 1.02
        self.calls += 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(method_times, "engine", SimpleNamespace(run_recipe=made.run))
    monkeypatch.setattr(method_times, "time", SimpleNamespace(process_time=made.clock, perf_counter=made.clock))
    monkeypatch.setattr(method_times.registry, "list_methods", lambda: METHODS)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


def test_a_machine_that_slows_down_changes_no_ratio(machine: Machine, store: Store, tiny_benchmark: Benchmark) -> None:
    before = torch.get_num_threads()
    measured = measuring.measure("method_times", store, tiny_benchmark, context=Context(device="cpu"))
    assert torch.get_num_threads() == before
    assert machine.slowness > 2  # seconds of the first and the last round differ by that
    rows = measured.table("times").set_index("chain")
    for chain, cost in COSTS.items():
        assert rows.loc[chain, "ratio"] == pytest.approx(cost, rel=0.01)
        assert rows.loc[chain, "low"] <= rows.loc[chain, "ratio"] <= rows.loc[chain, "high"]
    assert rows.loc["ties", "rounds"] == method_times.TIMED_ROUNDS
    assert rows.loc["drm", "rounds"] < method_times.TIMED_ROUNDS  # it takes too long to be timed so often
    assert rows.loc["emr", "problem"] == "no room for so many models" and rows.loc["emr", "rounds"] == 0
    assert rows["ratio"].isna().sum() == 1
    notes = measured.notes
    assert notes["machine"] == describe_machine() and notes["clock"] == method_times.CPU_CLOCK
    assert {"date", "versions", "reference", "rounds"} <= set(notes)


def test_the_first_run_only_loads(
    machine: Machine, store: Store, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_at_first(recipe: Any, *args: Any, **options: Any) -> None:
        machine.run(recipe, *args, **options)
        if recipe.text() == "ties" and machine.calls < 9:
            machine.now += 50

    monkeypatch.setattr(method_times, "engine", SimpleNamespace(run_recipe=slow_at_first))
    measured = measuring.measure("method_times", store, tiny_benchmark, context=Context("cpu"))
    rows = measured.table("times").set_index("chain")
    assert rows.loc["ties", "high"] == pytest.approx(3, rel=0.01)


def test_short_merges_are_repeated(machine: Machine, store: Store, tiny_benchmark: Benchmark, monkeypatch: Any) -> None:
    monkeypatch.setattr(method_times, "MIN_SECONDS", 2.5)
    measured = measuring.measure("method_times", store, tiny_benchmark, context=Context("cpu"))
    rows = measured.table("times").set_index("chain")
    assert rows.loc["lwptv → task_arithmetic", "ratio"] == pytest.approx(1.5, rel=0.05)
    assert machine.calls > 1.5 * (method_times.TIMED_ROUNDS + 1) * len(METHODS)


def test_times_are_measured_anew_whenever_asked(
    machine: Machine, store: Store, tiny_benchmark: Benchmark, tmp_path: Path
) -> None:
    first = measuring.measure("method_times", store, tiny_benchmark, context=Context(device="cpu"))
    calls = machine.calls
    again = measuring.measure("method_times", store, tiny_benchmark, context=Context(device="cpu"))
    assert machine.calls > calls and again.path == first.path
    assert len(list(first.path.parent.iterdir())) == 1  # the earlier one is gone
    (tmp_path / "library" / "runs").mkdir(parents=True)
    first.path.parent.rename(tmp_path / "library" / "measured")
    elsewhere = Store(tmp_path / "store", libraries=(tmp_path / "library" / "runs",))
    known = measurement_store.find_measurement_result("method_times", elsewhere, tiny_benchmark)
    assert known is not None and known.provenance == PRECOMPUTED
    assert (
        measuring.measure("method_times", elsewhere, tiny_benchmark, context=Context("cpu")).provenance == THIS_MACHINE
    )


def test_nothing_is_kept_of_a_cancelled_one(machine: Machine, store: Store, tiny_benchmark: Benchmark) -> None:
    with pytest.raises(Cancelled):
        measuring.measure(
            "method_times", store, tiny_benchmark, context=Context(device="cpu", cancel=lambda: machine.calls > 12)
        )
    assert measurement_store.find_measurement_result("method_times", store, tiny_benchmark) is None
    assert torch.get_num_threads() == 1
