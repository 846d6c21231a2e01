"""Drift as a measurement of stored runs: what is kept, what is refused, jobs, and the command line."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tiny
import torch
from stand_in_jobs import wait_for_end

from merging.base.errors import Cancelled, CheckpointError, StoreError, TaskError
from merging.cli.main import main
from merging.engine.evaluation.evaluate import evaluate
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store
from merging.study.measurements import drift, parameter_kinds
from merging.study.run_queue import RunQueue
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.trials import exemplar_sensitivity
from merging.tasks.context import Context
from merging.tasks.queue.job_records import State

# As measurements of stored runs


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=())


@pytest.fixture(scope="module")
def library(tmp_path_factory, tiny_benchmark):
    """A library folder with a LOT run and an EMR run, without weights."""
    made = Store(tmp_path_factory.mktemp("library"), libraries=(), dated=False)
    recipes = [find_preset("lot").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)]
    recipes.append(Recipe.build("emr", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts))
    ids = [execute(recipe, made, benchmark=tiny_benchmark, keep_model=False).id for recipe in recipes]
    return made.root / "runs", ids


def test_a_run_without_weights_is_merged_again_and_measured(library, tmp_path, tiny_benchmark):
    folder, (run_id, _) = library
    store = Store(tmp_path / "store", libraries=(folder,))
    assert measurement_store.find_measurement_result("drift", store, tiny_benchmark, run_id) is None
    told = []
    found = measure.measure("drift", store, tiny_benchmark, run_id, context=Context(device="cpu", progress=told.append))
    fractions = [progress.fraction for progress in told]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {"Merging with LOT", "Measuring feature drift", "Measuring every layer"} <= {p.phase for p in told}
    shown = {"exemplars": tiny.EXEMPLARS, "fewest_exemplars": tiny.EXEMPLARS, "exemplar_seed": 0}
    notes = {"images": tiny.CHOOSING, "split": "choosing", **shown}
    assert (found.notes, found.device, found.provenance) == (notes, "CPU", "this machine")
    assert {"cumulative", "isolated", "objective"} == set(found.tables)
    again = measure.measure("drift", store, tiny_benchmark, run_id, context=Context(cancel=lambda: True))
    assert again == found  # nothing is computed
    assert [path.name for path in (store.root / "measured").iterdir()] == [found.path.name]  # no model stays
    assert not (store.root / "runs").exists()

    lot = store.get_run(run_id).table("lot").set_index("tensor")
    objective = found.table("objective").set_index("tensor")
    np.testing.assert_allclose(objective.loc[lot.index, "least"], lot["drift"], rtol=1e-5)
    np.testing.assert_allclose(objective.loc[lot.index, "pretrained"], lot["drift_zero"], rtol=1e-5)


def test_a_merge_with_one_model_per_task_is_measured_with_each(library, tmp_path, tiny_benchmark):
    folder, (_, run_id) = library
    store = Store(tmp_path / "store", libraries=(folder,))
    found = measure.measure("drift", store, tiny_benchmark, run_id).table("cumulative")
    merged, pretrained = (
        found[(found["model"] == model) & (found["place"] == "embedding")].groupby("task")["cosine"].mean()
        for model in ("merged", "pretrained")
    )
    assert merged.mean() < 0.6 * pretrained.mean()
    ablation = measure.measure("ablation", store, tiny_benchmark, run_id).table("ablation")
    scores = store.get_run(run_id).scores
    own = scores[scores["split"] == "reporting"].set_index("task")["correct"]
    whole = ablation[ablation["kind"] == "nothing"].set_index("task")["correct"]
    assert (whole == own.loc[whole.index]).all()


def test_ablation_replaces_one_kind_of_parameter(store, tiny_benchmark):
    recipe = find_preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark)
    found = measure.measure("ablation", store, tiny_benchmark, run.id).table("ablation")
    assert list(dict.fromkeys(found["kind"])) == ["nothing", *parameter_kinds.ROLES_BY_KIND]
    whole = found[found["kind"] == "nothing"].set_index("task")["correct"]
    own = run.scores[run.scores["split"] == "reporting"].set_index("task")["correct"]
    assert (whole == own.loc[whole.index]).all()
    from safetensors.torch import load_file

    merged, base = load_file(run.model_path), load_file(tiny_benchmark.pretrained)
    mixed = {name: base[name] if ".ln_" in name and name.endswith("weight") else merged[name] for name in merged}
    scores = evaluate(mixed, tiny_benchmark, splits=("reporting",), tasks=list(tiny_benchmark.experts))
    scales = found[found["kind"] == "scales"]
    assert list(scales["correct"]) == list(scores["correct"])


def test_what_cannot_be_measured_is_explained(store, tiny_benchmark, tmp_path):
    with pytest.raises(StoreError, match=r"Did you mean 'drift'\?"):
        measure.measure("drfit", store, tiny_benchmark, "0" * 12)
    with pytest.raises(StoreError, match="There is no run"):
        measure.measure("drift", store, tiny_benchmark, "0" * 12)
    with pytest.raises(StoreError, match="of the benchmark, not of a run"):
        measure.measure("exemplars", store, tiny_benchmark, "0" * 12)
    folder = tmp_path / "copy"
    shutil.copytree(tiny_benchmark.folder / "models", folder)
    experts = {"circles": str(folder / "circles.safetensors"), "mine": str(folder / "digits.safetensors")}
    strange = Recipe.build("weight_averaging", {}, [], tiny_benchmark.pretrained, experts)
    run = execute(strange, store, benchmark=tiny_benchmark, evaluate=False)
    with pytest.raises(TaskError, match="no task for mine"):
        measure.measure("drift", store, tiny_benchmark, run.id)
    shutil.copy(folder / "flags.safetensors", folder / "circles.safetensors")
    with pytest.raises(CheckpointError, match="no longer the ones of this run"):
        measure.measure("ablation", store, tiny_benchmark, run.id)


def test_a_cancelled_measurement_leaves_nothing(store, tiny_benchmark):
    recipe = find_preset("weight_averaging").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark, keep_model=False)
    for stop in ("Merging", "Measuring feature", "Measuring every"):
        seen = []
        with pytest.raises(Cancelled):
            measure.measure(
                "drift", store, tiny_benchmark, run.id, context=Context(
                    progress=lambda p, seen=seen: seen.append(p.phase),
                    cancel=lambda seen=seen, stop=stop: bool(seen) and seen[-1].startswith(stop),
                ),
            )  # fmt: skip
        assert list((store.root / "measured").iterdir()) == []


def test_a_library_brings_its_measurements(library, tmp_path, tiny_benchmark):
    folder, (run_id, _) = library
    maker = Store(folder.parent / "maker", libraries=(folder,))
    measure.measure("ablation", maker, tiny_benchmark, run_id)
    shutil.move(maker.root / "measured", folder.parent / "measured")
    try:
        store = Store(tmp_path / "store", libraries=(folder,))
        found = measurement_store.find_measurement_result("ablation", store, tiny_benchmark, run_id)
        assert found is not None and found.provenance == "precomputed"
    finally:
        shutil.rmtree(folder.parent / "measured")


def test_exemplar_sensitivity_merges_with_so_many_exemplars(store, tiny_benchmark, monkeypatch):
    lot = exemplar_sensitivity.CANDIDATES[:1]
    unknown = exemplar_sensitivity.MethodCandidate("Nothing", "no_such_method", {})
    monkeypatch.setattr(exemplar_sensitivity, "CANDIDATES", (*lot, unknown))
    monkeypatch.setattr(exemplar_sensitivity, "COUNTS", (1, 6))
    monkeypatch.setattr(exemplar_sensitivity, "SEEDS", (3,))
    found = measure.measure("exemplars", store, tiny_benchmark)
    accuracy, rank = found.table("accuracy"), found.table("rank")
    assert found.notes == {"split": "reporting", "images": tiny.REPORTING, "seeds": 1}
    assert set(accuracy["method"]) == {"LOT"} and list(dict.fromkeys(accuracy["exemplars"])) == [1, 6]
    recipe = Recipe.build(
        "lot", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, "", {"per_task": 6, "seed": 3}
    )
    run = execute(recipe, store, benchmark=tiny_benchmark)
    own = run.scores[(run.scores["split"] == "reporting") & run.scores["task"].isin(list(tiny_benchmark.experts))]
    assert list(accuracy[accuracy["exemplars"] == 6]["correct"]) == list(own["correct"])
    assert rank["full"].is_monotonic_increasing and 0 < rank["full"].min() <= rank["full"].max() <= 1
    means = exemplar_sensitivity.average_accuracy(accuracy).set_index("exemplars")
    assert means.loc[6, "accuracy"] == pytest.approx(own["accuracy"].mean())
    assert (means.loc[6, "tasks"], means.loc[6, "n"]) == (4, 4 * tiny.REPORTING)


def test_the_images_of_drift_are_never_the_reporting_half(tiny_benchmark, monkeypatch):
    asked = []
    whole = type(tiny_benchmark).load_images
    monkeypatch.setattr(
        type(tiny_benchmark), "load_images", lambda self, key, split: asked.append(split) or whole(self, key, split)
    )
    assert len(drift.sample_choosing_images(tiny_benchmark, "circles")) == tiny.CHOOSING
    monkeypatch.setattr(drift, "MAX_IMAGES", 5)
    few, again = (drift.sample_choosing_images(tiny_benchmark, "circles") for _ in range(2))
    assert len(few) == 5 and torch.equal(few, again)
    assert set(asked) == {"choosing"}


# As jobs, and on the command line


@pytest.mark.full
def test_a_measurement_is_a_job_like_a_merge(library, tmp_path, tiny_benchmark, monkeypatch):
    folder, (run_id, _) = library
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(with_library(tmp_path, tiny_benchmark, folder)))
    store = Store(tmp_path / "store", libraries=(folder,))
    runner = RunQueue(store, device="cpu")
    try:
        job = runner.submit_measurement("drift", run_id)
        assert runner.submit_measurement("drift", run_id).id == job.id
        assert (job.kind, job.subject, job.is_live) == ("drift", run_id, True)
        assert job.title == f"Feature drift: {store.get_run(run_id).title}"
        done = wait_for_end(runner, job.id)
        assert (done.state, done.error, done.fraction) == (State.DONE, "", 1.0)
        assert measurement_store.find_measurement_result("drift", store, Benchmark.load(), run_id) is not None
        assert [found.id for found in runner.list_jobs()] == [job.id]
        with pytest.raises(StoreError, match="There is no run"):
            runner.submit_measurement("drift", "0" * 12)
        with pytest.raises(StoreError, match="There is no measurement"):
            runner.submit_measurement("drfit", run_id)
        whole = runner.submit_measurement("exemplars")
        assert (whole.subject, whole.title) == ("", "Exemplar sensitivity")
        runner.cancel(whole.id)
        assert wait_for_end(runner, whole.id).state == State.CANCELLED
        assert measurement_store.find_measurement_result("exemplars", store, Benchmark.load()) is None
        assert len(list((store.root / "measured").iterdir())) == 1
    finally:
        runner.close()


def with_library(folder, benchmark, runs):
    """The benchmark's folder with these runs as its library."""
    made = shutil.copytree(benchmark.folder, folder / "benchmark")
    shutil.copytree(runs, made / "runs")
    return made


def test_the_command_line_measures(library, tmp_path, tiny_benchmark, monkeypatch, capsys):
    folder, (run_id, _) = library
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(with_library(tmp_path, tiny_benchmark, folder)))
    store = str(tmp_path / "store")
    assert main(["measure", "ablation", run_id, "--store", store, "--device", "cpu", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["run_id"], said["device"]) == (run_id, "CPU")
    assert {row["kind"] for row in said["tables"]["ablation"]} == {"nothing", *parameter_kinds.ROLES_BY_KIND}
    assert main(["measure", "ablation", run_id, "--store", store]) == 0
    assert "Ablation by kind of parameter on CPU" in capsys.readouterr().out
    assert main(["measure", "drift", "--store", store]) == 1
    assert "is a measurement of a run" in capsys.readouterr().err
