"""Drift against plain forward passes, the objective against its formula, statistics against SciPy, what is kept."""

from __future__ import annotations

import json
import math
import shutil
import time

import numpy as np
import pandas as pd
import plain_tower
import pytest
import tiny
import torch

from merging.analysis import correlation, measure, stored
from merging.analysis.lot_extreme_cases import ENERGIES, RANK, TASKS, extreme_case
from merging.analysis.measurements import drift, exemplar_sensitivity, parameter_kinds
from merging.analysis.measurements.drift import MergeModels, cumulative_drift, isolated_drift
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.evaluate import evaluate
from merging.cli.main import main
from merging.errors import Cancelled, CheckpointError, StoreError, TaskError
from merging.jobs.records import State
from merging.jobs.runner import Runner
from merging.recipes.presets import preset
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store

TASK_NAMES = ("circles", "digits")
HEADS = tiny.WIDTH // tiny.ARCHITECTURE["vision_cfg"]["head_width"]


def _plain(state, images):
    """Every layer's output, by a tower that shares no code with ours; under Hugging Face's names."""
    return plain_tower.layer_outputs(state, images, tiny.LAYERS, HEADS, tiny.PATCH)


@pytest.fixture(scope="module")
def states():
    """Pretrained, experts and a merged state dict under Hugging Face's names, in float64."""
    base, experts = tiny.family(TASK_NAMES)
    mean = {name: torch.stack([e[name] for e in experts.values()]).mean(dim=0) + 0.02 for name in base}
    wide = {"pretrained": base, "merged": mean, **experts}
    return {
        key: {name: value.double() for name, value in plain_tower.hugging_face(state).items()}
        for key, state in wide.items()
    }


@pytest.fixture(scope="module")
def images():
    draw = torch.Generator().manual_seed(5)
    return {
        task: torch.randn(n, 3, tiny.SIZE, tiny.SIZE, generator=draw)
        for task, n in zip(TASK_NAMES, (6, 4), strict=True)
    }


def _models(states, merged="merged"):
    opened = {key: tiny.checkpoint(state) for key, state in states.items()}
    experts = {task: opened[task] for task in TASK_NAMES}
    return MergeModels(opened["pretrained"], experts, dict.fromkeys(TASK_NAMES, opened[merged]))


# Cumulative


def _plain_places(state, images):
    """Class token and mean of tokens after the stem and every block, and the embedding, from the plain outputs."""
    found, stem = _plain(state, images), "vision_model.pre_layrnorm.weight"
    x = found[stem]
    places = [(x[:, 0], x.mean(dim=1))]
    for block in range(tiny.LAYERS):
        at = f"vision_model.encoder.layers.{block}."
        x = x + found[at + "self_attn.out_proj.weight"] + found[at + "mlp.fc2.weight"]
        places.append((x[:, 0], x.mean(dim=1)))
    embedding = found["visual_projection.weight"]
    return [*places, (embedding, embedding)]


def test_cumulative_drift_equals_a_plain_computation(states, images):
    found = cumulative_drift(_models(states), images).set_index(["task", "model", "position", "token"])
    assert len(found) == len(TASK_NAMES) * 2 * (tiny.LAYERS + 2) * 2
    for task in TASK_NAMES:
        reference = _plain_places(states[task], images[task].double())
        for model in ("merged", "pretrained"):
            for position, pair in enumerate(_plain_places(states[model], images[task].double())):
                for token, ours, own in zip(("class", "mean"), pair, reference[position], strict=True):
                    row = found.loc[(task, model, position, token)]
                    cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in zip(ours, own, strict=True)]
                    assert row["cosine"] == pytest.approx(1 - np.mean(cosines), rel=2e-4, abs=1e-7)
                    assert row["l1"] == pytest.approx(float((ours - own).abs().mean()), rel=1e-4)
                    assert row["n"] == len(images[task])
    assert list(dict.fromkeys(found["place"])) == ["stem", "block 0", "block 1", "embedding"]


def test_a_merge_that_is_the_expert_does_not_drift(states, images):
    models = _models(states)
    own = MergeModels(models.pretrained, models.experts, models.experts)  # one model per task, each task's own expert
    found = cumulative_drift(own, images)
    merged = found[found["model"] == "merged"]
    assert merged["cosine"].max() < 1e-12 and (merged["l1"] == 0).all()
    assert found[found["model"] == "pretrained"]["cosine"].max() > 1e-3
    isolated, objective = isolated_drift(own, images)
    assert (isolated[["mean_square", "relative"]] == 0).all(axis=None)
    assert (objective["merged"] == 0).all() and (objective["mean"] > 0).all()


# Layer by layer


def _replaced(states, task, names, images):
    """(Δ, Y): what leaves the layer with only these tensors replaced, less what leaves the expert's own; and that."""
    mixed = states[task] | {name: states["merged"][name] for name in names}
    own = _plain(states[task], images)
    layer = names[0].removesuffix("bias").removesuffix("weight") + "weight"
    return _plain(mixed, images)[layer] - own[layer], own[layer]


@pytest.mark.parametrize(
    "name",
    [
        "vision_model.embeddings.patch_embedding.weight",
        "vision_model.pre_layrnorm.weight",
        "vision_model.pre_layrnorm.bias",
        "vision_model.encoder.layers.1.layer_norm1.weight",
        "vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "vision_model.encoder.layers.1.self_attn.v_proj.bias",
        "vision_model.encoder.layers.1.self_attn.out_proj.weight",
        "vision_model.encoder.layers.0.mlp.fc1.weight",
        "vision_model.encoder.layers.1.mlp.fc2.weight",
        "vision_model.encoder.layers.1.mlp.fc2.bias",
        "vision_model.post_layernorm.weight",
        "vision_model.post_layernorm.bias",
        "visual_projection.weight",
    ],
)
def test_isolated_drift_is_that_of_a_forward_with_one_replaced_layer(states, images, name):
    found = isolated_drift(_models(states), images)[0].set_index(["tensor", "task"])
    for task in TASK_NAMES:
        change, output = _replaced(states, task, [name], images[task].double())
        row = found.loc[(name, task)]
        assert row["mean_square"] == pytest.approx(float(change.square().mean()), rel=1e-4)
        assert row["relative"] == pytest.approx(float(change.norm() / output.norm()), rel=1e-4)


@pytest.mark.parametrize("part", ["class_embedding", "position_embedding.weight"])
def test_isolated_drift_of_what_is_added_to_the_tokens(states, images, part):
    name = "vision_model.embeddings." + part
    found = isolated_drift(_models(states), images)[0].set_index(["tensor", "task"])
    for task in TASK_NAMES:
        at, state = "vision_model.embeddings.", states[task]
        patches = _plain(state, images[task].double())[at + "patch_embedding.weight"]

        def tokens(own, patches=patches, at=at):
            first = own[at + "class_embedding"].expand(len(patches), 1, -1)
            return torch.cat([first, patches], dim=1) + own[at + "position_embedding.weight"]

        change = tokens(state | {name: states["merged"][name]}) - tokens(state)
        assert found.loc[(name, task), "mean_square"] == pytest.approx(float(change.square().mean()), rel=1e-4)
        assert found.loc[(name, task), "relative"] == pytest.approx(
            float(change.norm() / tokens(state).norm()), rel=1e-4
        )


def test_open_clips_names_give_the_same_drift(images):
    base, experts = tiny.family(TASK_NAMES)
    merged = {name: torch.stack([e[name] for e in experts.values()]).mean(dim=0) for name in base}
    found = {}
    for key, rename in (("open_clip", dict), ("hugging_face", plain_tower.hugging_face)):
        opened = {name: tiny.checkpoint(rename(state)) for name, state in {"": base, "m": merged, **experts}.items()}
        models = MergeModels(opened[""], {t: opened[t] for t in TASK_NAMES}, dict.fromkeys(TASK_NAMES, opened["m"]))
        table = isolated_drift(models, images)[0]
        found[key] = table[table["tensor"].str.contains("mlp|proj$|projection")]["relative"].to_numpy()
    first, second = (np.sort(values) for values in found.values())
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_the_objective_is_lots(states, images):
    """Σ_k ‖X_k (T - T_k)ᵀ‖² for the merged weights, for none, for the mean, and at its least."""
    name = "vision_model.encoder.layers.1.mlp.fc1.weight"
    before = "vision_model.encoder.layers.1.layer_norm2.weight"
    objective = isolated_drift(_models(states), images)[1].set_index("tensor")
    rows = {task: _plain(states[task], images[task].double())[before].reshape(-1, tiny.WIDTH) for task in TASK_NAMES}
    base = states["pretrained"][name]
    vectors = {task: states[task][name] - base for task in TASK_NAMES}

    def value(merged):
        return sum(float((rows[task] @ (merged - vectors[task]).T).square().sum()) for task in TASK_NAMES)

    mean = torch.stack(list(vectors.values())).mean(dim=0)
    stacked = torch.cat([rows[task] for task in TASK_NAMES])
    wanted = torch.cat([rows[task] @ vectors[task].T for task in TASK_NAMES])
    least = torch.linalg.lstsq(stacked, wanted, driver="gelsd").solution.T
    expected = (states["merged"][name] - base, torch.zeros_like(base), mean, least)
    row = objective.loc[name]
    for column, merged in zip(("merged", "pretrained", "mean", "least"), expected, strict=True):
        assert row[column] == pytest.approx(value(merged), rel=1e-3), column
    assert (objective["least"] <= objective[["merged", "pretrained", "mean"]].min(axis=1) * (1 + 1e-9)).all()


# Statistics


def pearson_by_loops(x, y):
    xs, ys = x - sum(x) / len(x), y - sum(y) / len(y)
    return sum(a * b for a, b in zip(xs, ys, strict=True)) / math.sqrt(sum(a * a for a in xs) * sum(b * b for b in ys))


def mean_ranks(values):
    return np.array([sum(other < value for other in values) + sum(values == value) / 2 for value in values])


def test_line_and_correlations_are_what_loops_find():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40).round(1)  # with ties
    y = 0.5 * x + rng.normal(size=40).round(1)
    found = correlation.fit_line(x, y)
    assert (found.slope, found.intercept) == pytest.approx(tuple(np.polyfit(x, y, 1)))
    assert found.pearson == pytest.approx(pearson_by_loops(x, y))
    assert found.spearman == pytest.approx(pearson_by_loops(mean_ranks(x), mean_ranks(y)))
    assert found.n == 40
    holes = correlation.fit_line(np.append(x, [np.nan, 1.0]), np.append(y, [1.0, np.inf]))
    assert holes == found


def test_points_on_a_line_have_correlations_of_one():
    x = np.array([0.1, 0.2, 0.7])
    for slope in (3.0, -3.0):
        found = correlation.fit_line(x, 1 + slope * x)
        assert (found.slope, found.intercept) == pytest.approx((slope, 1))
        assert (found.pearson, found.spearman) == pytest.approx((np.sign(slope), np.sign(slope)))
        assert abs(found.pearson) <= 1


@pytest.mark.parametrize("x", [np.ones(5), np.arange(5.0) * np.nan, np.array([1.0, 2, np.nan, np.inf, -np.inf])])
def test_no_line_through_too_few_points_or_a_side_that_does_not_vary(x):
    for fit in (correlation.fit_line(x, np.arange(5.0)), correlation.fit_line(np.arange(5.0), x)):
        assert all(math.isnan(value) for value in (fit.slope, fit.intercept, fit.pearson, fit.spearman))
        assert fit.n == np.isfinite(x).sum()
    assert correlation.fit_line(x[:0], x[:0]).n == 0


def test_a_side_that_hardly_varies_gives_no_warning():
    nearly = 1 + 1e-14 * np.arange(5)
    assert correlation.fit_line(nearly, np.arange(5.0)).spearman == pytest.approx(1)
    assert correlation.fit_line(np.arange(5.0), nearly).spearman == pytest.approx(1)


def test_pooled_and_within_correlations_differ():
    """Two runs, each falling with x, one far above the other: Simpson's paradox."""
    x = np.array([0.0, 1, 2, 10, 11, 12])
    table = pd.DataFrame({"run": list("aaabbb"), "task": list("uvwuvw"), "x": x, "y": [2.0, 1, 0, 22, 21, 20]})
    found = correlation.correlations(table, "x", "y").set_index("over")
    assert found.loc["all points", "pearson"] > 0.9
    assert found.loc["tasks of one run", "pearson"] == pytest.approx(-1)
    assert list(found["groups"]) == [1, 2]  # two runs give no coefficient on one task
    assert found.loc["tasks of one run", "points"] == 6


def test_consistency_reproduces_the_papers_table():
    """LOT, Table 10, from the rows of Table 1 of the same paper."""
    tasks = ["SUN397", "Cars", "RESISC45", "EuroSAT", "SVHN", "GTSRB", "MNIST", "DTD"]
    experts = dict(zip(tasks, (75.3, 77.7, 96.1, 99.7, 97.5, 98.7, 99.7, 79.4), strict=True))
    rows = {
        8.95: (55.2, 54.9, 66.7, 78.9, 80.2, 69.7, 97.3, 50.4),
        4.58: (67.7, 67.5, 85.7, 94.9, 93.4, 89.8, 98.7, 63.6),
    }
    for printed, accuracy in rows.items():
        scores = pd.DataFrame({"task": [*tasks, "other"], "accuracy": [*accuracy, 50.0]})
        drops = correlation.lost(scores, experts)
        assert list(drops.index) == tasks
        assert round(correlation.spread(drops), 2) == printed or abs(correlation.spread(drops) - printed) < 0.006
    assert math.isnan(correlation.spread(drops.iloc[:1]))


# The two extreme cases


def _of(table, merge):
    return table[table["merge"] == merge].set_index("task")["drift"]


def test_orthogonal_feature_spaces_drift_from_neither_expert():
    weights, found = extreme_case(shared=0, energy=3.0, agreement=-0.5)
    assert set(weights["weight"]) == {0.0, 1.0}
    np.testing.assert_allclose(_of(found, "LOT"), 0, atol=1e-12)
    assert (_of(found, "mean of both") > 0).all()
    assert _of(found, "pretrained").sum() == pytest.approx(1)


def test_shared_feature_spaces_give_an_average_weighted_by_energy():
    for energy in (0.25, 1.0, 4.0):
        weights, found = extreme_case(shared=RANK, energy=energy)
        of_b = weights[weights["task"] == TASKS[1]]["weight"]
        np.testing.assert_allclose(of_b, energy / (1 + energy))
        assert _of(found, "LOT").sum() <= _of(found, "mean of both").sum() + 1e-12
        assert _of(found, "LOT").sum() > 0.01
    np.testing.assert_allclose(_of(extreme_case(RANK, 1.0)[1], "LOT"), _of(extreme_case(RANK, 1.0)[1], "mean of both"))
    assert _of(extreme_case(RANK, 2.0, 1.0)[1], "LOT").sum() < 1e-12  # task vectors that agree do not conflict


@pytest.mark.parametrize("shared", range(RANK + 1))
def test_the_illustration_solves_the_least_squares_problem(shared):
    """The drift that is drawn is that of numpy's own solution for inputs of those energies."""
    energy, agreement = 2.0, 0.3
    weights, found = extreme_case(shared, energy, agreement)
    wide = weights.pivot(index="direction", columns="task", values="energy")
    grams = wide[list(TASKS)].to_numpy().T
    assert grams[0].sum() == pytest.approx(ENERGIES.sum())
    from merging.analysis.lot_extreme_cases import _task_vectors

    vectors = _task_vectors(grams.shape[1], agreement)
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(axis=1), agreement)
    inputs = [np.diag(np.sqrt(gram)) for gram in grams]
    solution = np.linalg.lstsq(np.vstack(inputs), np.vstack([x @ t for x, t in zip(inputs, vectors, strict=True)]))[0]
    drifts = np.array([((x @ (solution - t)) ** 2).sum() for x, t in zip(inputs, vectors, strict=True)])
    scale = sum(((x @ t) ** 2).sum() for x, t in zip(inputs, vectors, strict=True))
    np.testing.assert_allclose(_of(found, "LOT"), drifts / scale, atol=1e-12)


# As measurements of stored runs


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=())


@pytest.fixture(scope="module")
def library(tmp_path_factory, tiny_benchmark):
    """A library folder with a LOT run and an EMR run, without weights."""
    made = Store(tmp_path_factory.mktemp("library"), libraries=(), dated=False)
    recipes = [preset("lot").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)]
    recipes.append(Recipe.build("emr", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts))
    ids = [execute(recipe, made, benchmark=tiny_benchmark, keep_model=False).id for recipe in recipes]
    return made.root / "runs", ids


def test_a_run_without_weights_is_merged_again_and_measured(library, tmp_path, tiny_benchmark):
    folder, (run_id, _) = library
    store = Store(tmp_path / "store", libraries=(folder,))
    assert stored.find("drift", store, tiny_benchmark, run_id) is None
    told = []
    found = measure.measure("drift", store, tiny_benchmark, run_id, device="cpu", progress=told.append)
    fractions = [progress.fraction for progress in told]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {"Merging with LOT", "Measuring feature drift", "Measuring every layer"} <= {p.phase for p in told}
    notes = {"images": tiny.CHOOSING, "exemplars": tiny.EXEMPLARS, "split": "choosing", "exemplar_seed": 0}
    assert (found.notes, found.device, found.provenance) == (notes, "CPU", "this machine")
    assert {"cumulative", "isolated", "objective"} == set(found._schemas)
    again = measure.measure("drift", store, tiny_benchmark, run_id, cancel=lambda: True)  # nothing is computed
    assert again == found
    assert [path.name for path in (store.root / "measured").iterdir()] == [found.path.name]  # no model stays
    assert not (store.root / "runs").exists()

    lot = store.run(run_id).table("lot").set_index("tensor")
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
    scores = store.run(run_id).scores
    own = scores[scores["split"] == "reporting"].set_index("task")["correct"]
    whole = ablation[ablation["kind"] == "nothing"].set_index("task")["correct"]
    assert (whole == own.loc[whole.index]).all()


def test_ablation_replaces_one_kind_of_parameter(store, tiny_benchmark):
    recipe = preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark)
    found = measure.measure("ablation", store, tiny_benchmark, run.id).table("ablation")
    assert list(dict.fromkeys(found["kind"])) == ["nothing", *parameter_kinds.KINDS]
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
    with pytest.raises(TaskError, match="no exemplars for mine"):
        measure.measure("drift", store, tiny_benchmark, run.id)
    shutil.copy(folder / "flags.safetensors", folder / "circles.safetensors")
    with pytest.raises(CheckpointError, match="no longer the ones of this run"):
        measure.measure("ablation", store, tiny_benchmark, run.id)


def test_a_cancelled_measurement_leaves_nothing(store, tiny_benchmark):
    recipe = preset("weight_averaging").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark, keep_model=False)
    for stop in ("Merging", "Measuring feature", "Measuring every"):
        seen = []
        with pytest.raises(Cancelled):
            measure.measure(
                "drift", store, tiny_benchmark, run.id, progress=lambda p, seen=seen: seen.append(p.phase),
                cancel=lambda seen=seen, stop=stop: bool(seen) and seen[-1].startswith(stop),
            )  # fmt: skip
        assert list((store.root / "measured").iterdir()) == []


def test_a_damaged_measurement_counts_as_absent_and_is_replaced(store, tiny_benchmark):
    recipe = preset("weight_averaging").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark)
    found = measure.measure("ablation", store, tiny_benchmark, run.id)
    table = found.path / "tables" / "ablation.csv"
    table.write_text(table.read_text().replace("scales", "scares"))
    assert stored.find("ablation", store, tiny_benchmark, run.id) is None
    again = measure.measure("ablation", store, tiny_benchmark, run.id)
    assert "scales" in set(again.table("ablation")["kind"])
    (found.path / "measured.json").write_text("{}")
    assert stored.find("ablation", store, tiny_benchmark, run.id) is None


def test_a_library_brings_its_measurements(library, tmp_path, tiny_benchmark):
    folder, (run_id, _) = library
    maker = Store(folder.parent / "maker", libraries=(folder,))
    measure.measure("ablation", maker, tiny_benchmark, run_id)
    shutil.move(maker.root / "measured", folder.parent / "measured")
    try:
        store = Store(tmp_path / "store", libraries=(folder,))
        found = stored.find("ablation", store, tiny_benchmark, run_id)
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
    means = exemplar_sensitivity.averages(accuracy).set_index("exemplars")
    assert means.loc[6, "accuracy"] == pytest.approx(own["accuracy"].mean())
    assert (means.loc[6, "tasks"], means.loc[6, "n"]) == (4, 4 * tiny.REPORTING)


def test_the_images_of_drift_are_never_the_reporting_half(tiny_benchmark, monkeypatch):
    asked = []
    whole = type(tiny_benchmark).images
    monkeypatch.setattr(
        type(tiny_benchmark), "images", lambda self, key, split: asked.append(split) or whole(self, key, split)
    )
    assert len(drift.choosing_images(tiny_benchmark, "circles")) == tiny.CHOOSING
    monkeypatch.setattr(drift, "LIMIT", 5)
    few, again = (drift.choosing_images(tiny_benchmark, "circles") for _ in range(2))
    assert len(few) == 5 and torch.equal(few, again)
    assert set(asked) == {"choosing"}


# As jobs, and on the command line


def _ended(runner, job_id, seconds=120):
    end = time.monotonic() + seconds
    while (job := runner.get(job_id)).live:
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)
    return job


@pytest.mark.slow
def test_a_measurement_is_a_job_like_a_merge(library, tmp_path, tiny_benchmark, monkeypatch):
    folder, (run_id, _) = library
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(_with_library(tmp_path, tiny_benchmark, folder)))
    store = Store(tmp_path / "store", libraries=(folder,))
    runner = Runner(store, device="cpu")
    try:
        job = runner.measure("drift", run_id)
        assert runner.measure("drift", run_id).id == job.id
        assert (job.kind, job.subject, job.live) == ("drift", run_id, True)
        assert job.title == f"Feature drift: {store.run(run_id).title}"
        done = _ended(runner, job.id)
        assert (done.state, done.error, done.fraction) == (State.DONE, "", 1.0)
        assert stored.find("drift", store, Benchmark.load(), run_id) is not None
        assert [found.id for found in runner.jobs()] == [job.id]
        with pytest.raises(StoreError, match="There is no run"):
            runner.measure("drift", "0" * 12)
        with pytest.raises(StoreError, match="There is no measurement"):
            runner.measure("drfit", run_id)
        whole = runner.measure("exemplars")
        assert (whole.subject, whole.title) == ("", "Exemplar sensitivity")
        runner.cancel(whole.id)
        assert _ended(runner, whole.id).state == State.CANCELLED
        assert stored.find("exemplars", store, Benchmark.load()) is None
        assert len(list((store.root / "measured").iterdir())) == 1
    finally:
        runner.close()


def _with_library(folder, benchmark, runs):
    """The benchmark's folder with these runs as its library."""
    made = shutil.copytree(benchmark.folder, folder / "benchmark")
    shutil.copytree(runs, made / "runs")
    return made


def test_the_command_line_measures(library, tmp_path, tiny_benchmark, monkeypatch, capsys):
    folder, (run_id, _) = library
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(_with_library(tmp_path, tiny_benchmark, folder)))
    store = str(tmp_path / "store")
    assert main(["measure", "ablation", run_id, "--store", store, "--device", "cpu", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["run_id"], said["device"]) == (run_id, "CPU")
    assert {row["kind"] for row in said["tables"]["ablation"]} == {"nothing", *parameter_kinds.KINDS}
    assert main(["measure", "ablation", run_id, "--store", store]) == 0
    assert "Ablation by kind of parameter on CPU" in capsys.readouterr().out
    assert main(["measure", "drift", "--store", store]) == 1
    assert "is a measurement of a run" in capsys.readouterr().err
