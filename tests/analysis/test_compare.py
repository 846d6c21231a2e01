"""Two runs on the same images: predictions against scores, and agreement by loops."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_library
import torch

from merging.base import settings
from merging.base.errors import TaskError
from merging.engine.evaluation.evaluate import evaluate
from merging.engine.evaluation.image_features import MAX_MARGIN, compute_features, cosine_margins, cosines
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import open_checkpoint
from merging.models.model_references import PRETRAINED
from merging.recipes.presets import find_preset
from merging.study import measure
from merging.study.analysis import agreement
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.analysis.measurement_subject import Subject
from merging.study.measurements import predictions
from merging.study.measurements.predictions import SPLIT
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from sample_data.library import PREDICTIONS

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_library.write(tmp_path_factory.mktemp("library"), ("task_arithmetic_lwptv", "ties", "emr"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Store:
    return Store(tmp_path_factory.mktemp("store"), libraries=(library / "runs",))


@pytest.fixture(scope="module")
def benchmark(library: Path) -> Benchmark:
    return Benchmark.load(library)


def run_of(store: Store, title: str) -> Run:
    return next(run for run in store.list_runs() if title in run.title)


def found(store: Store, benchmark: Benchmark, title: str) -> stored_measurements.StoredMeasurement:
    return measure.measure("predictions", store, benchmark, run_of(store, title).id, context=Context(device="cpu"))


# Predictions


@pytest.mark.full
@pytest.mark.parametrize("title", ["Ties", "Task Arithmetic w/ LwPTV", "EMR", "Pretrained", "Expert for"])
def test_predictions_give_the_stored_scores(store: Store, benchmark: Benchmark, title: str) -> None:
    one, run = found(store, benchmark, title), run_of(store, title)
    stored = run.scores
    assert stored is not None
    stored = stored[stored["split"] == SPLIT].reset_index(drop=True)
    own = predictions.score_rows(one, benchmark)
    assert (own["task"] == stored["task"]).all()
    assert (own["correct"] == stored["correct"]).all()
    np.testing.assert_allclose(own["accuracy"], stored["accuracy"], rtol=1e-15)
    assert one.notes["differing"] == 0
    for task, answers in predictions.read_answers(one, benchmark).items():
        (row,) = stored[stored["task"] == task].to_dict("records")
        assert answers.is_right.mean() == pytest.approx(row["accuracy"], rel=1e-15)
        assert answers.predicted.shape == answers.margin.shape == (len(answers.models), len(answers.labels))


def test_each_model_answers_what_it_was_scored_on(store: Store, benchmark: Benchmark) -> None:
    """One model per task: its own task alone, and all of them where there is no own one."""
    answered = predictions.read_answers(found(store, benchmark, "EMR"), benchmark)
    assert {task: answers.models for task, answers in answered.items()} == {
        task.key: (task.key,) if task.has_expert else tiny.EXPERTS for task in benchmark.tasks
    }


def test_predictions_are_small(store: Store, benchmark: Benchmark) -> None:
    one = found(store, benchmark, "Ties")
    assert one.array("predicted").dtype == np.uint16 and one.array("margin").dtype == np.float16
    assert len(one.array("margin")) == tiny.REPORTING * len(benchmark.tasks) == one.notes["images"]


def test_margins_are_of_the_right_class(store: Store, benchmark: Benchmark) -> None:
    one = found(store, benchmark, "Ties")
    for answers in predictions.read_answers(one, benchmark).values():
        clear = np.abs(answers.margin) > 1e-3
        assert ((answers.margin > 0) == answers.is_right)[clear].all()
    task = benchmark.tasks[0]
    model = Encoder.from_checkpoint(open_checkpoint(benchmark.pretrained), fallback=benchmark.pretrained_tower)
    images, labels = benchmark.load_images(task.key, SPLIT)
    rows, head = compute_features(model, benchmark.preprocess(images)), benchmark.load_head(task.key)
    table = cosines(rows, head).numpy()
    plain = [table[i, label] - max(np.delete(table[i], label)) for i, label in enumerate(labels)]
    np.testing.assert_allclose(cosine_margins(rows, head, torch.from_numpy(labels)), plain, atol=1e-6)
    assert (
        cosine_margins(rows, head[:1], torch.zeros(len(labels), dtype=torch.int64)).max() == MAX_MARGIN
    )  # no other class


def test_a_score_that_came_out_otherwise_is_counted(store: Store, benchmark: Benchmark, tmp_path: Path) -> None:
    run = run_of(store, "Ties")
    assert run.scores is not None
    other = run.scores.assign(accuracy=run.scores["accuracy"] - 2 / run.scores["n"])
    changed = replace(run)
    changed.__dict__["scores"] = other
    subject = Subject(store, benchmark, run.id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "get_run", lambda self, run_id: changed)
        assert predictions.measure_predictions(subject, Context("cpu")).notes["differing"] == 2 * len(benchmark.tasks)


def test_a_model_of_another_size_is_refused(store: Store, benchmark: Benchmark, tmp_path: Path) -> None:
    small = replace(benchmark, image_size=benchmark.image_size + 8)
    subject = Subject(store, small, run_of(store, "Ties").id)
    with pytest.raises(TaskError, match="cannot be measured on this benchmark"):
        predictions.measure_predictions(subject, Context("cpu"))


def test_evaluation_still_counts_what_it_predicts(benchmark: Benchmark) -> None:
    table = evaluate(benchmark.pretrained, benchmark, splits=(SPLIT,), context=Context(device="cpu"))
    assert list(table["task"]) == [task.key for task in benchmark.tasks]
    assert (table["accuracy"] == table["correct"] / table["n"]).all()


# Agreement


@pytest.mark.parametrize(
    ("models_a", "models_b", "matched"), [(1, 1, False), (1, 3, False), (2, 3, False), (3, 3, True)]
)
def test_cells_are_what_loops_count(models_a: int, models_b: int, matched: bool) -> None:
    a, b = (RNG.random((models, 50)) < 0.6 for models in (models_a, models_b))
    pairs = [(i, i) for i in range(models_a)] if matched else list(itertools.product(range(models_a), range(models_b)))
    expected = np.zeros((4, 50))
    for i, j in pairs:
        for image in range(50):
            expected[{(1, 1): 0, (1, 0): 1, (0, 1): 2, (0, 0): 3}[int(a[i, image]), int(b[j, image])], image] += 1
    shares = agreement.compute_cells(a, b, matched)
    np.testing.assert_allclose(shares, expected / len(pairs), atol=1e-12)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares[0] + shares[1], a.mean(axis=0), atol=1e-12)
    if models_a == models_b == 1:
        assert set(np.unique(shares)) <= {0, 1}


def test_a_run_agrees_with_itself() -> None:
    for models in (1, 4):
        right = RNG.random((models, 40)) < 0.5
        shares = agreement.compute_cells(right, right, is_matched=True)
        assert not shares[1].any() and not shares[2].any()


# The library


@pytest.mark.parametrize("key", PREDICTIONS)
def test_kept_predictions_give_the_stored_scores(key: str, tmp_path: Path) -> None:
    benchmark, store = Benchmark.load(), Store(tmp_path, libraries=(settings.LIBRARY_FOLDER,))
    title = "Pretrained" if key == PRETRAINED else find_preset(key).title
    run = next(run for run in store.list_runs() if run.title == title)
    one = stored_measurements.find_measurement_result("predictions", store, benchmark, run.id)
    assert one is not None and run.scores is not None
    kept, expected = predictions.score_rows(one, benchmark), run.scores[run.scores["split"] == SPLIT]
    assert list(zip(kept["task"], kept["correct"], kept["n"], strict=True)) == list(
        zip(expected["task"], expected["correct"], expected["n"], strict=True)
    )
    for task, answers in predictions.read_answers(one, benchmark).items():
        assert answers.is_right.sum() == kept.set_index("task").loc[task, "correct"]
