"""Features that are kept change no score, are used for their own model only, and take a bounded place."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from merging.engine.evaluation import evaluate as evaluation
from merging.engine.evaluation import stored_features
from merging.engine.evaluation.evaluate import EvaluatedModel, evaluate, predict_splits
from merging.engine.evaluation.image_features import predict_classes
from merging.engine.evaluation.stored_features import StoredFeatures
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.architecture import Architecture

SPLIT = ("reporting",)
OTHER = next(name for name in tiny.EXPERTS if name != "flags")
TOWER = Architecture.from_checkpoint(tiny.checkpoint(tiny.pretrained()))


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep features of small models, too."""
    monkeypatch.setattr(stored_features, "MIN_OPERATIONS", 0)


def given(
    benchmark: Benchmark, folder: Path, name: str = "flags", model: str = "one"
) -> list[evaluation.SplitPrediction]:
    checkpoint = tiny.checkpoint(tiny.family()[1][name])
    keys = [task.key for task in benchmark.tasks]
    return list(
        predict_splits([EvaluatedModel("", checkpoint, keys, None, StoredFeatures(folder, model))], benchmark, SPLIT)
    )


def test_the_second_time_nothing_is_computed_and_nothing_differs(
    tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = given(tiny_benchmark, tmp_path)
    monkeypatch.setattr(evaluation, "compute_features_of_models", None)  # calling it would fail
    for before, after in zip(first, given(tiny_benchmark, tmp_path), strict=True):
        assert (
            before.predicted.tolist() == after.predicted.tolist() and before.margins.tolist() == after.margins.tolist()
        )
        assert after.features.dtype == torch.float32
        torch.testing.assert_close(after.features, before.features.half().float(), rtol=0, atol=0)
    scores = evaluate(
        tiny.checkpoint(tiny.family()[1]["flags"]),
        tiny_benchmark,
        splits=SPLIT,
        stored_features=StoredFeatures(tmp_path, "one"),
    )
    assert scores["correct"].tolist() == [one.correct for one in first]


def test_classes_are_those_from_before_the_rounding(tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    key, kept = tiny_benchmark.tasks[0].key, StoredFeatures(tmp_path, "near")
    n = tiny_benchmark.count_images(key, "reporting")
    head = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    rows = torch.tensor([[1.0, 1.0 + 1e-5]]).repeat(n, 1)  # equal in half precision, where the first class would win
    known = predict_classes(rows, head, torch.ones(n, dtype=torch.int64))
    kept.store(tiny_benchmark, key, "reporting", known, TOWER)
    again = kept.read(tiny_benchmark, key, "reporting")
    assert again is not None and again.predicted.tolist() == [1] * n and (again.margins > 0).all()
    assert (again.features[:, 0] == again.features[:, 1]).all()


def test_another_model_has_features_of_its_own(tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    flags, tiles = given(tiny_benchmark, tmp_path), given(tiny_benchmark, tmp_path, OTHER, "two")
    assert not torch.equal(flags[0].features, tiles[0].features)
    assert torch.equal(given(tiny_benchmark, tmp_path)[0].features, flags[0].features.half().float())


def test_damaged_and_oldest_entries_are_computed_again(
    tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = given(tiny_benchmark, tmp_path)
    for file in tmp_path.glob("*.npz"):
        file.write_bytes(file.read_bytes()[:-30])
    assert torch.equal(given(tiny_benchmark, tmp_path)[0].features, first[0].features)
    size = max(file.stat().st_size for file in tmp_path.glob("*.npz"))
    monkeypatch.setattr(stored_features, "MAX_STORE_BYTES", 3 * size)
    for age, file in enumerate(sorted(tmp_path.glob("*.npz"))):
        os.utime(file, (age, age))
    given(tiny_benchmark, tmp_path, OTHER, "two")
    assert 0 < len(list(tmp_path.glob("*.npz"))) <= 3


def test_what_half_precision_cannot_hold_is_not_kept(tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    known = stored_features.FeaturePredictions(torch.full((3, 2), 1e6), np.zeros(3, np.int64), np.zeros(3, np.float32))
    StoredFeatures(tmp_path, "x").store(tiny_benchmark, tiny_benchmark.tasks[0].key, "reporting", known, TOWER)
    assert not list(tmp_path.iterdir())
