"""The evaluation of a merged model on workers: the same scores and kept features as here."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from contexts import context_of
from small_sweeps import recipe

from merging.benchmarks import evaluate, kept_features
from merging.benchmarks.benchmark import Benchmark
from merging.errors import MergingError
from merging.runs.execute import execute
from merging.runs.remote import score_task
from merging.runs.run import Run
from merging.runs.store import Store
from merging.workers import pools
from merging.workers.workers import Workers


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two workers in this process; features are kept however few images they are of."""
    with ThreadPoolExecutor(2) as pool:
        workers = Workers(pool, 2)
        monkeypatch.setattr(pools, "opened", lambda *_: contextlib.nullcontext(workers))
        monkeypatch.setattr(kept_features, "WORTH", 1)
        yield


def ran(benchmark: Benchmark, folder: Path, **said: Any) -> tuple[Run, dict[str, bytes]]:
    """A run, and the features that its store keeps."""
    store = Store(folder, libraries=())
    run = execute(recipe(benchmark), store, benchmark=benchmark, context=context_of(said), **said)
    return run, {path.name: path.read_bytes() for path in (folder / kept_features.FOLDER).glob("*.npz")}


def test_scores_and_features_are_the_same_bytes(
    tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, features = ran(tiny_benchmark, tmp_path / "here")
    said, computing, together = list[str](), set[int](), evaluate.features_together

    def noted(*asked: Any) -> Any:
        computing.add(threading.get_ident())
        return together(*asked)

    monkeypatch.setattr(evaluate, "features_together", noted)
    there, same = ran(tiny_benchmark, tmp_path / "there", workers="2", progress=lambda done: said.append(done.phase))
    assert same == features and len(features) == 2 * len(tiny_benchmark.tasks)
    assert (there.path / "scores.csv").read_bytes() == (here.path / "scores.csv").read_bytes()
    assert computing and threading.get_ident() not in computing
    assert f"Evaluation {len(features)} of {len(features)}, on 2 workers" in said


def test_what_workers_cannot_do_is_evaluated_here(
    tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unseen(*_said: Any) -> Any:
        raise MergingError("The model is not there.")

    monkeypatch.setattr(score_task, "open_checkpoint", unseen)
    said, here = list[str](), ran(tiny_benchmark, tmp_path / "here")
    there = ran(tiny_benchmark, tmp_path / "there", workers="2", warn=said.append)
    assert there[1] == here[1] and said[-1:] == ["Evaluated here, what is left: The model is not there."]
    assert (there[0].path / "scores.csv").read_bytes() == (here[0].path / "scores.csv").read_bytes()
