"""Measurements of runs that learn: losses along the steps by plain arithmetic, and modules on the reporting half."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from merging.base.errors import TaskError
from merging.engine.evaluation.image_features import compute_features
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.measure import measure
from merging.study.measurements.along_steps import find_turning_points, group_by_tensor, mark_steps
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

LEARNING = {"steps": 15, "lr": 0.02, "batch": 4}
TRIM = [("trim", {"density": 0.5})]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("learned"), libraries=())


def run_of(store: Store, benchmark: Benchmark, merge: str, params: Any, edits: Any = (), adapt: Any = None) -> Run:
    recipe = Recipe.build(merge, params, edits, benchmark.pretrained, benchmark.experts, adapt=adapt)
    return execute(recipe, store, benchmark=benchmark, evaluate=False, context=Context(device="cpu"))


def plain(model: Any, benchmark: Benchmark, task: str) -> tuple[float, float, float]:
    """Entropy, loss and accuracy of a model on the choosing half, from plain softmax."""
    images, labels = benchmark.load_images(task, "choosing")
    encoder = Encoder.from_checkpoint(open_checkpoint(model, "model"), CPU, fallback=benchmark.pretrained_tower)
    rows = compute_features(encoder, benchmark.preprocess(images)).double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    logits = benchmark.logit_scale * unit @ benchmark.load_head(task).double().numpy().T
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    surprise = -np.log(shares[np.arange(len(labels)), labels])
    entropy = -(shares * np.log(shares.clip(1e-300))).sum(axis=1)
    return float(entropy.mean()), float(surprise.mean()), float((shares.argmax(axis=1) == labels).mean())


def assert_plain(measured: StoredMeasurement, step: int, model: Any, benchmark: Benchmark, rtol: float) -> None:
    rows = measured.table("losses")
    rows = rows[rows["step"] == step].set_index("task")
    assert list(rows.index) == list(benchmark.experts)
    for task, row in rows.iterrows():
        expected = plain(model, benchmark, str(task))
        np.testing.assert_allclose(row[["entropy", "loss", "accuracy"]].to_numpy(float), expected, rtol, 1e-5)
        assert row["n"] == benchmark.count_images(str(task), "choosing")


@pytest.mark.parametrize("granularity", ["tensor", "task"])
def test_losses_are_those_of_the_coefficients_of_each_step(granularity: str, store: Store, tiny_benchmark) -> None:
    params = {**LEARNING, "granularity": granularity, "shrink": 0.5}  # what the merge shrinks, learning did not
    run = run_of(store, tiny_benchmark, "adamerging", params)
    measured = measure("along_steps", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    history = run.table("coefficient_steps")
    assert sorted(set(measured.table("losses")["step"])) == [0, 10, 15]
    base = open_checkpoint(tiny_benchmark.pretrained, "pretrained")
    experts = {name: open_checkpoint(path, name) for name, path in tiny_benchmark.experts.items()}
    for step in (0, 15):
        at_step = history[history["step"] == step].set_index(["expert", "tensor"])["coefficient"]
        state = {}
        for name in base.infos:
            start = state[name] = base.read(name).float()
            for expert, own in experts.items():
                place = (expert, name if granularity == "tensor" else "")
                state[name] = state[name] + at_step.get(place, 0.0) * (own.read(name).float() - start)
        assert_plain(measured, step, state, tiny_benchmark, 1e-3)
    assert (measured.notes["split"], measured.notes["sample_seed"]) == ("choosing", 0)


@pytest.mark.full
def test_edits_come_first_and_no_reporting_image_is_read(store: Store, tiny_benchmark, monkeypatch) -> None:
    learned = run_of(store, tiny_benchmark, "adamerging", LEARNING, TRIM)
    start = run_of(store, tiny_benchmark, "task_arithmetic", {"scaling": 0.3}, TRIM)
    read, images = set(), Benchmark.load_images

    def watched(self: Benchmark, key: str, split: str) -> Any:
        read.add(split)
        return images(self, key, split)

    with monkeypatch.context() as patch:
        patch.setattr(Benchmark, "load_images", watched)
        measured = measure("along_steps", store, tiny_benchmark, learned.id, context=Context(device="cpu"))
    assert read == {"choosing"}
    for step, run in ((0, start), (15, learned)):  # the files of the models are in half precision
        assert_plain(measured, step, run.model_paths["merged"], tiny_benchmark, 0.03)


def test_marked_steps_hold_the_first_and_the_last() -> None:
    assert mark_steps([0, 0, 10]) == [0, 10]
    assert mark_steps(range(0, 501, 10)) == [0, 100, 200, 300, 400, 500]
    assert mark_steps([*range(0, 15, 10), 15]) == [0, 10, 15]


def test_coefficients_follow_the_order_of_the_experts() -> None:
    rows = pd.DataFrame({"tensor": ["a", "a", "b", "b"], "expert": ["x", "y"] * 2, "coefficient": [1.0, 2.0, 3.0, 4.0]})
    assert group_by_tensor(rows, ["y", "x"]) == {"a": [2.0, 1.0], "b": [4.0, 3.0]}


def test_a_task_turns_where_its_loss_is_least() -> None:
    steps = [0, 10, 20, 30]
    of_task = {
        "turned": ([4, 3, 2, 1], [5, 2, 3, 6]),
        "steady": ([4, 3, 2, 1], [5, 4, 3, 2]),
        "lost": ([1, 2, 3, 4],) * 2,
    }
    frames = [pd.DataFrame({"step": steps, "task": task, "entropy": entropy, "loss": loss})
              for task, (entropy, loss) in of_task.items()]  # fmt: skip
    rows = find_turning_points(pd.concat(frames).iloc[::-1])
    assert rows.to_dict("records") == [{"task": "turned", "step": 10, "entropy": -2, "loss": 4}]


def test_a_run_without_coefficients_or_modules_is_refused(store: Store, tiny_benchmark) -> None:
    plain_run = run_of(store, tiny_benchmark, "task_arithmetic", {})
    for key, words in (("along_steps", "stored no coefficients"), ("modules", "has no modules")):
        with pytest.raises(TaskError, match=words):
            measure(key, store, tiny_benchmark, plain_run.id, context=Context(device="cpu"))


# Modules


def test_modules_of_tasks_are_measured_on_images_that_they_have_not_seen(store: Store, tiny_benchmark) -> None:
    adapt = ("surgery", {"rank": 4, "steps": 40, "lr": 0.05})
    run = run_of(store, tiny_benchmark, "task_arithmetic", {}, adapt=adapt)
    measured = measure("modules", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    assert measured.tables == ("feature_shift",)
    modules = run.open_modules()
    for row in measured.table("feature_shift").to_dict("records"):
        task = str(row["task"])
        images = tiny_benchmark.preprocess(tiny_benchmark.load_images(task, "reporting")[0])
        expert = Encoder.from_checkpoint(open_checkpoint(tiny_benchmark.experts[task], task), torch.device("cpu"))
        goal = compute_features(expert, images).double()
        for name, of_task in (("before", None), ("after", task)):
            shift = (modules.features(images, of_task).double() - goal).abs().mean()
            np.testing.assert_allclose(row[name], float(shift), rtol=1e-4)
        assert row["n"] == len(images)


def test_a_router_is_asked_about_unseen_images_too_and_the_oracle_stays_a_table(store: Store, tiny_benchmark) -> None:
    run = run_of(store, tiny_benchmark, "task_arithmetic", {}, adapt=("twin", {"steps": 20, "density": 1.0}))
    measured = measure("modules", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    assert set(measured.tables) == {"routing", "confusion", "oracle"}
    confusion = measured.table("confusion")
    assert set(confusion["task"]) == {task.key for task in tiny_benchmark.tasks}
    assert confusion.groupby("task")["in_domain"].first().sum() == len(tiny_benchmark.experts)
    np.testing.assert_allclose(confusion.groupby("task")["share"].sum(), 1)
    oracle = measured.table("oracle")
    assert (oracle["oracle"] == oracle["expert"]).all()  # at density 1 the true task's vector leads to its expert
    for row in oracle.to_dict("records"):
        model = open_checkpoint(run.model_paths["merged"], "merged")
        images, labels = tiny_benchmark.load_images(str(row["task"]), "reporting")
        rows = compute_features(Encoder.from_checkpoint(model, torch.device("cpu")), tiny_benchmark.preprocess(images))
        right = (rows @ tiny_benchmark.load_head(str(row["task"])).T).argmax(dim=1).numpy() == labels
        np.testing.assert_allclose(row["merged"], right.mean(), rtol=1e-6)
    assert run.scores is None
