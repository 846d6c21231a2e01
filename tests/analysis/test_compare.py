"""Two models on the same images: margins by loops, agreement by loops, and what evaluation counts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from merging.base.errors import TaskError
from merging.engine.evaluation.evaluate import evaluate
from merging.engine.evaluation.image_features import MAX_MARGIN, compute_features, cosine_margins, cosines
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import open_checkpoint
from merging.study.analysis import agreement
from merging.study.analysis.measurement_subject import Subject
from merging.study.measurements import put_back
from merging.study.runs.run_answers import read_run_answers
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

RNG = np.random.default_rng(0)
SPLIT = "reporting"


def test_margins_are_of_the_right_class(store: Store, library: Path) -> None:
    benchmark, runs = Benchmark.load(library), store.list_runs()
    for run in runs:
        for answers in (read_run_answers(run, benchmark) or {}).values():
            clear = np.abs(answers.margin) > 1e-3
            assert ((answers.margin > 0) == answers.is_right)[clear].all()
    task = benchmark.tasks[0]
    model = Encoder.from_checkpoint(open_checkpoint(benchmark.pretrained), fallback=benchmark.pretrained_tower)
    images, labels = benchmark.load_images(task.key, SPLIT)
    rows, head = compute_features(model, benchmark.preprocess(images)), benchmark.load_head(task.key)
    table = cosines(rows, head).numpy()
    plain = [table[i, label] - max(np.delete(table[i], label)) for i, label in enumerate(labels)]
    np.testing.assert_allclose(cosine_margins(rows, head, torch.from_numpy(labels)), plain, atol=1e-6)
    stored = read_run_answers(next(run for run in runs if run.title == "Pretrained"), benchmark)
    assert stored is not None
    np.testing.assert_allclose(stored[task.key].margin[0], plain, atol=1e-3)  # in half precision
    assert (
        cosine_margins(rows, head[:1], torch.zeros(len(labels), dtype=torch.int64)).max() == MAX_MARGIN
    )  # no other class


def test_a_model_of_another_size_is_refused(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    small = replace(benchmark, image_size=benchmark.image_size + 8)
    run = next(run for run in store.list_runs() if "LwPTV" in run.title)
    with pytest.raises(TaskError, match="cannot be measured on this benchmark"):
        put_back.measure_put_back(Subject(store, small, run.id), Context("cpu"))


def test_evaluation_still_counts_what_it_predicts(library: Path) -> None:
    benchmark = Benchmark.load(library)
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
