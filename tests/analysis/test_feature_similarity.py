"""CKA: rotations, naive sums, few images, and the measurement of two models."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.study import measure
from merging.study.measurements.drift import tokens_by_depth
from merging.study.measurements.features import sample_images
from merging.study.runs.run import join_run_ids
from merging.study.runs.run_store import Store
from merging.study.weight_space.feature_similarity import OUT_OF_DOMAIN, compare_features
from merging.tasks.context import Context

CPU = Context(device="cpu")
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 6)) * [5, 2, 1, 1, 1, 0.1]
OTHER = ROWS[:, :4] @ RNG.normal(size=(4, 9)) + RNG.normal(size=(40, 9))


def naive_cka(x: np.ndarray, y: np.ndarray) -> float:
    """‖Yᵀ X‖² / (‖Xᵀ X‖ ‖Yᵀ Y‖) of centered features (Kornblith et al. 2019)."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return float(np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def naive_unbiased(x: np.ndarray, y: np.ndarray) -> float:
    """HSIC of two kernels as the mean over all choices of four different images."""
    own, other = x @ x.T, y @ y.T
    terms = [
        own[a, b] * (other[a, b] + other[c, d] - 2 * other[a, c]) for a, b, c, d in permutations(range(len(x)), 4)
    ]  # fmt: skip
    return float(np.mean(terms))


def test_a_rotation_and_a_factor_change_nothing() -> None:
    rotation, _ = np.linalg.qr(RNG.normal(size=(6, 6)))
    similarity = compare_features([ROWS], [ROWS @ rotation, 7 * ROWS @ rotation + 3])
    assert similarity.linear == pytest.approx(np.ones((1, 2))) and similarity.debiased == pytest.approx(np.ones((1, 2)))


def test_both_forms_are_those_of_naive_sums() -> None:
    few, other = ROWS[:7], OTHER[:7]
    similarity = compare_features([few, other], [other])
    assert similarity.linear[:, 0] == pytest.approx([naive_cka(few, other), 1])
    ratio = naive_unbiased(few, other) / np.sqrt(naive_unbiased(few, few) * naive_unbiased(other, other))
    assert similarity.debiased[:, 0] == pytest.approx([ratio, 1])


def test_unrelated_features_of_few_images_are_alike_only_without_debiasing() -> None:
    first, second = RNG.normal(size=(2, 30, 500))
    similarity = compare_features([first], [second])
    assert similarity.linear[0, 0] > 0.9 and abs(similarity.debiased[0, 0]) < 0.1


def test_what_does_not_vary_and_too_few_images_have_no_number() -> None:
    assert np.isnan(compare_features([np.ones((8, 3))], [ROWS[:8]]).linear[0, 0])
    assert np.isnan(compare_features([ROWS[:3]], [OTHER[:3]]).debiased[0, 0])


def test_two_models_are_compared_at_all_depths(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    runs = {run.title: run for run in store.list_runs()}
    ids = [runs["Pretrained"].id, runs["Expert for Digits"].id]
    measured = measure.measure("cka", store, benchmark, join_run_ids(ids), context=CPU)
    table = measured.table("cka")
    assert measured.notes["runs"] == sorted(ids) and set(table["token"]) == {"class", "mean"}
    assert {task.key for task in benchmark.tasks} < set(table["over"]) and OUT_OF_DOMAIN in set(table["over"])
    task = next(task.key for task in benchmark.tasks if not task.has_expert)
    positions = sample_images(benchmark, [one.key for one in benchmark.tasks])[task]
    images = benchmark.preprocess(benchmark.load_images(task, "choosing")[0][positions])
    features, after_block = [], []  # of the embedding, and of the class token after the first block
    for run_id in sorted(ids):
        is_pretrained = run_id == runs["Pretrained"].id
        source = benchmark.open_pretrained() if is_pretrained else benchmark.models()["digits"].open("digits")
        encoder = Encoder.from_checkpoint(source, choose_device("cpu"))
        features.append(encoder(images).detach().double().numpy())
        after_block.append(list(tokens_by_depth(encoder, images))[1][:, 0].detach().double().numpy())
    last = int(table["first"].max())
    own = table[(table["over"] == task) & (table["token"] == "class")].set_index(["first", "second"])
    assert own.loc[(last, last), "linear"] == pytest.approx(naive_cka(*features), abs=1e-4)
    across, turned = naive_cka(features[0], after_block[1]), naive_cka(after_block[0], features[1])
    assert abs(across - turned) > 1e-3
    assert own.loc[(last, 1), "linear"] == pytest.approx(across, abs=1e-4)
    assert own.loc[(1, last), "linear"] == pytest.approx(turned, abs=1e-4)
    assert own["n"].iloc[0] == len(positions) and len(own) == (last + 1) ** 2


def test_a_model_has_one_with_itself_and_others_are_refused(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    run = next(run for run in store.list_runs() if run.title == "Pretrained")
    with pytest.raises(TaskError, match="Features of two models are compared; these are 1"):
        measure.measure("cka", store, benchmark, run.id, context=CPU)
    emr = next(run for run in store.list_runs() if run.per_task)
    with pytest.raises(TaskError, match="one model per task"):
        measure.measure("cka", store, benchmark, join_run_ids([run.id, emr.id]), context=CPU)
