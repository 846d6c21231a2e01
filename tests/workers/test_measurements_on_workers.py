"""Whole measurements on workers, written into the store that they share: the same bytes as here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from merging.base.errors import MergingError
from merging.base.threads import parallel_pieces
from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study import measure_several as several
from merging.study import measurement_task
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.analysis.measurement_subject import MeasurementResult
from merging.study.measure import measure
from merging.study.measure_several import RequestedMeasurement, measure_several
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.results import Results
from merging.tasks.workers.workers import Workers


@pytest.fixture(scope="module")
def made(tiny_benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A store with two runs on the same experts, one of them without weights; and their ids."""
    folder = tmp_path_factory.mktemp("made")
    return folder, [
        execute(
            Recipe.build(merge, {}, (), tiny_benchmark.pretrained, tiny_benchmark.experts),
            Store(folder, libraries=()), benchmark=tiny_benchmark, context=Context("cpu"), keep_model=merge == "ties",
        ).id
        for merge in ("ties", "task_arithmetic")
    ]  # fmt: skip


def store_with(made: tuple[Path, list[str]], folder: Path) -> Store:
    shutil.copytree(made[0], folder, ignore=shutil.ignore_patterns("measured"))
    return Store(folder, libraries=())


def test_one_failure_does_not_stop_others_and_what_is_timed_comes_last(
    tiny_benchmark: Benchmark, made: tuple[Path, list[str]], tmp_path: Path, threads: Workers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    store, began = store_with(made, tmp_path / "store"), list[str]()
    first = made[1][0]

    def fail(key: str, *said: Any, **more: Any) -> StoredMeasurement:
        began.append(key)
        if key == "drift":
            raise MergingError("The features overflow.")
        return measure(key, *said, **more)

    def here(key: str, *_said: Any, **_more: Any) -> None:
        began.append(f"{key} here")

    monkeypatch.setattr(measurement_task, "measure", fail)
    monkeypatch.setattr(several, "measure", here)
    each = [("method_times", ""), ("signs", first), ("task_counts", ""), ("drift", first), ("signs", "0" * 12)]
    found = measure_several(
        [RequestedMeasurement(*one) for one in each], store, tiny_benchmark, context=Context("cpu", workers=threads)
    )
    assert sorted(began[:2]) == ["drift", "signs"] and began[2:] == ["task_counts here", "method_times here"]
    assert isinstance(found[1], StoredMeasurement) and str(found[3]) == "The features overflow."
    assert "There is no run" in str(found[4])
    threads.memory = 1000
    asked = [RequestedMeasurement("pairs", first)]
    (refused,) = measure_several(asked, store, tiny_benchmark, context=Context(workers=threads))
    assert str(refused).startswith("A measurement needs about ")


def test_what_is_stored_is_read_once_and_what_is_measured_here_is_not_read_again(
    tiny_benchmark: Benchmark, made: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reads, first = store_with(made, tmp_path / "store"), list[Path](), made[1][0]
    stored, new = measure("signs", store, tiny_benchmark, first, context=Context("cpu")), object()
    read = Results.read

    def counted(of: Results[Any], path: Path) -> Any:
        reads.append(path)
        return read(of, path)

    monkeypatch.setattr(Results, "read", counted)
    monkeypatch.setattr(several, "measure", lambda *_said, **_more: new)
    each = [RequestedMeasurement("signs", first), RequestedMeasurement("task_counts")]
    found = measure_several(each, store, tiny_benchmark, context=Context("cpu"))
    assert isinstance(found[0], StoredMeasurement) and found[1] is new and reads.count(stored.path) == 1


def test_a_measurement_has_one_thread_and_leaves_the_cores_to_pieces(
    tiny_benchmark: Benchmark, made: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen, before = store_with(made, tmp_path / "store"), list[tuple[int, int]](), torch.get_num_threads()

    def noted(*_said: Any) -> MeasurementResult:
        seen.append((torch.get_num_threads(), parallel_pieces()))
        return MeasurementResult({"t": pd.DataFrame({"a": [1]})}, {})

    monkeypatch.setattr("merging.study.measurements.drift.measure_drift", noted)
    monkeypatch.setattr("merging.study.trials.method_times.measure_times", noted)
    torch.set_num_threads(3)
    try:
        measure("drift", store, tiny_benchmark, made[1][0], context=Context(device="cpu"))
        measure("method_times", store, tiny_benchmark, context=Context(device="cpu"))
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, 3), (3, 3)], "what is timed chooses itself"


@pytest.mark.full
def test_the_command_takes_several_kinds_and_runs(
    tiny_benchmark: Benchmark, made: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    store, runs = store_with(made, tmp_path / "store"), made[1]
    words = ["--store", str(store.root), "--device", "cpu", "--workers", "2"]
    assert main(["measure", "signs,drift", *runs, *words, "--json"]) == exit_codes.DONE
    told = json.loads(capsys.readouterr().out)
    assert [one["key"] for one in told["measured"]] == ["signs", "signs", "drift", "drift"] and not told["failed"]
    assert main(["measure", "signs,task_counts", runs[0], *words[:4]]) == exit_codes.FAILED
    assert "is a measurement of the benchmark" in capsys.readouterr().err
