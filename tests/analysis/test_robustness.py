"""Accuracy on corrupted images: tables against plain numpy, one cell by hand, shared references, both halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from merging.base.errors import Cancelled
from merging.images.benchmarks.benchmark import Benchmark, sample_indices
from merging.images.benchmarks.resampled_tasks import resample_task
from merging.images.corruptions import CORRUPTIONS, corrupt_images
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint
from merging.recipes.presets import find_preset
from merging.study import measure
from merging.study.measurements.robustness import CELLS, MAX_IMAGES, build_tables
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

RIGHT = {
    task: (np.random.default_rng(number).random((len(CELLS), 40)) < np.linspace(0.9, 0.3, len(CELLS))[:, None]) * 1.0
    for number, task in enumerate(("flags", "land", "kana"))
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, tiny_benchmark: Benchmark) -> Any:
    """A store with a run of task arithmetic, and its measurement."""
    store = Store(tmp_path_factory.mktemp("store"), libraries=())
    recipe = find_preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark)
    return store, run, measure.measure("robustness", store, tiny_benchmark, run.id, context=Context(device="cpu"))


def test_means_and_losses_against_plain_numpy() -> None:
    tables = build_tables({"run": RIGHT}, ["flags", "land"])
    accuracy = {task: right.mean(axis=1) for task, right in RIGHT.items()}
    inside = (accuracy["flags"] + accuracy["land"]) / 2
    rows = tables["domains"].set_index(["over", "corruption", "severity"])
    blur = CELLS.index(("blur", 3))
    assert rows.loc[("in domain", "blur", "3"), "accuracy"] == pytest.approx(inside[blur], abs=1e-4)
    assert rows.loc[("in domain", "blur", "3"), "loss"] == pytest.approx(1 - inside[blur] / inside[0], abs=1e-4)
    assert rows.loc[("out of domain", "blur", "0"), "accuracy"] == pytest.approx(accuracy["kana"][0], abs=1e-4)
    third = [CELLS.index((kind, 3)) for kind in CORRUPTIONS]
    assert rows.loc[("in domain", "all", "3"), "accuracy"] == pytest.approx(inside[third].mean(), abs=1e-4)
    whole, of_blur = rows.loc[("in domain", "all", "all")], rows.loc[("in domain", "blur", "all")]
    assert whole["accuracy"] == pytest.approx(inside[1:].mean(), abs=1e-4)
    assert whole["loss"] == pytest.approx(1 - inside[1:].mean() / inside[0], abs=1e-4)
    assert of_blur["loss"] == pytest.approx(1 - inside[blur - 2 : blur + 3].mean() / inside[0], abs=1e-4)
    assert (whole["tasks"], whole["n"]) == (2, 80)
    counts = tables["tasks"].set_index(["task", "corruption", "severity"])
    assert counts.loc[("land", "blur", 3), "correct"] == RIGHT["land"][blur].sum()


def test_intervals_are_paired_by_image() -> None:
    rows = build_tables({"run": RIGHT}, ["flags"])["domains"].set_index(["over", "corruption", "severity"])
    draws = resample_task("flags", RIGHT["flags"])
    low, high = np.percentile(1 - draws[1:].mean(axis=0) / draws[0], [2.5, 97.5])
    row = rows.loc[("in domain", "all", "all")]
    assert (row["loss_low"], row["loss_high"]) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    same = np.repeat(RIGHT["flags"][:1], len(CELLS), axis=0)  # corruption changes no answer
    loss = build_tables({"run": {"flags": same}}, ["flags"])["domains"][["loss", "loss_low", "loss_high"]]
    assert (loss == 0).all(axis=None)


def test_nothing_is_lost_of_an_accuracy_of_zero() -> None:
    right = RIGHT["flags"].copy()
    right[0] = 0
    rows = build_tables({"run": {"flags": right}}, ["flags"])["domains"]
    assert rows[["loss", "loss_low", "loss_high"]].isna().all(axis=None) and rows["accuracy"].max() > 0.5


def test_a_domain_without_data_sets_has_no_row() -> None:
    tables = build_tables({"run": {"flags": RIGHT["flags"]}}, [])
    assert set(tables["domains"]["over"]) == {"out of domain"}


def answer_by_hand(model: Checkpoint, benchmark: Benchmark, task: str, kind: str, severity: int) -> np.ndarray:
    """Whether a model answers the sampled images of the reporting half right (n,)."""
    images, labels = benchmark.load_images(task, "reporting")
    chosen = sample_indices(len(labels), MAX_IMAGES, 0)
    pixels = images[chosen]
    if severity:
        pixels = corrupt_images(pixels, kind, severity, [f"{task}:{number}" for number in chosen])
    with torch.inference_mode():
        features = Encoder.from_checkpoint(model, torch.device("cpu"))(benchmark.preprocess(pixels)).numpy()
    return np.asarray((features @ benchmark.load_head(task).numpy().T).argmax(axis=1) == labels[chosen])


def test_every_cell_by_hand(measured: Any, tiny_benchmark: Benchmark) -> None:
    _, run, stored = measured
    model, task = run.open_models()["merged"], next(iter(tiny_benchmark.experts))
    rows = stored.table("tasks").set_index(["task", "corruption", "severity"]).sort_index()
    right = [answer_by_hand(model, tiny_benchmark, task, *cell) for cell in CELLS]
    assert [rows.loc[(task, *cell), "correct"] for cell in CELLS] == [answers.sum() for answers in right]
    assert len({answers.sum() for answers in right}) > 1  # corruption changes answers
    assert rows.loc[(task, "blur", 1), "n"] == len(right[0])
    assert (stored.notes["split"], stored.notes["seed"], stored.notes["small"]) == ("reporting", 0, True)


def test_runs_of_the_same_experts_share_the_references(measured: Any, tiny_benchmark: Benchmark) -> None:
    store, run, _ = measured
    other = execute(
        find_preset("weight_averaging").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts), store,
        benchmark=tiny_benchmark,
    )  # fmt: skip
    found = [
        measure.find_measurement_result("robustness_references", store, tiny_benchmark, one.id) for one in (run, other)
    ]
    assert found[0] is not None and found[1] is not None and found[0].path == found[1].path
    counts = found[0].table("tasks")
    own = counts[(counts["model"] == "individual") & (counts["severity"] == 0)]
    assert list(own["task"]) == list(tiny_benchmark.experts)
    task = own["task"].iloc[0]
    right = answer_by_hand(tiny_benchmark.models()[task].open(task), tiny_benchmark, task, "none", 0)
    assert own["correct"].iloc[0] == right.sum()


def test_the_choosing_half_is_another_measurement(measured: Any, tiny_benchmark: Benchmark) -> None:
    store, run, stored = measured
    choosing = measure.measure("robustness_choosing", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    assert choosing.notes["split"] == "choosing" and choosing.path != stored.path
    assert measure.find_measurement_result("robustness_references_choosing", store, tiny_benchmark, run.id)
    n = choosing.table("tasks").groupby("task")["n"].first()
    assert n.to_dict() == {
        task.key: min(MAX_IMAGES, tiny_benchmark.count_images(task.key, "choosing")) for task in tiny_benchmark.tasks
    }


def test_one_model_per_task_answers_its_own_task_and_all_answer_others(
    tmp_path: Any, tiny_benchmark: Benchmark
) -> None:
    store = Store(tmp_path, libraries=())
    run = execute(
        find_preset("emr").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts), store, benchmark=tiny_benchmark
    )
    stored = measure.measure("robustness", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    counts = stored.table("tasks").set_index(["task", "corruption", "severity"])["correct"]
    models, own = run.open_models(), next(iter(tiny_benchmark.experts))
    outside = next(task.key for task in tiny_benchmark.tasks if not task.has_expert)
    for task, several in ((own, [models[own]]), (outside, list(models.values()))):
        right = [[answer_by_hand(model, tiny_benchmark, task, *cell).sum() for cell in CELLS] for model in several]
        assert [counts[task, *cell] for cell in CELLS] == pytest.approx(np.mean(right, axis=0))
    assert np.ptp(right, axis=0).any()  # the models differ out of domain


def test_cancel_stores_nothing(measured: Any, tiny_benchmark: Benchmark) -> None:
    store, _, _ = measured
    run = execute(
        find_preset("ties").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts), store, benchmark=tiny_benchmark
    )
    phases = []
    context = Context(
        device="cpu", progress=lambda step: phases.append(step.phase),
        cancel=lambda: "Evaluating corrupted images" in phases,
    )  # fmt: skip
    with pytest.raises(Cancelled):
        measure.measure("robustness", store, tiny_benchmark, run.id, context=context)
    assert measure.find_measurement_result("robustness", store, tiny_benchmark, run.id) is None
