"""What putting weights back gives: every change made by hand, gradients against differences, and what is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file

from merging.base.errors import Cancelled, StoreError
from merging.base.progress import Meter, Progress
from merging.cli.main import main
from merging.engine.evaluation.evaluate import evaluate, evaluate_per_task
from merging.images.image_encoder import Encoder
from merging.methods.slot import Slot
from merging.models.families import classify_parameters
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store
from merging.study.measurements import first_order, put_back_images, put_back_variants
from merging.study.previews.preview_samples import PreviewSample
from merging.study.runs.execute import execute
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

AVERAGES = ("in domain", "out of domain")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, tiny_benchmark):
    """A store with a run of task arithmetic, its true map, and its first-order map."""
    store = Store(tmp_path_factory.mktemp("store"), libraries=())
    recipe = find_preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark)
    both = [
        measure.measure(key, store, tiny_benchmark, run.id, context=Context(device="cpu"))
        for key in ("put_back", "first_order")
    ]
    return store, run, *both


@pytest.fixture(scope="module")
def every(tiny_benchmark):
    return put_back_variants.list_variants(tiny_benchmark.pretrained_tower.parameters)


def put_back(state, base, names):
    return {name: base[name] if name in names else value for name, value in state.items()}


def test_the_variants_are_every_tensor_block_and_kind(every):
    names = {level: [v.name for v in every if v.level == level] for level in ("tensor", "block", "kind")}
    assert set(names["tensor"]) == set(tiny.shapes()) and len(names["tensor"]) == len(tiny.shapes())
    assert names["block"] == ["embeddings", "block 0", "block 1", "output"]
    assert sorted(names["kind"]) == ["embedding", "linear", "norm_scale", "shift"]  # conv and projection are one tensor
    first = {v.name: v.first_section for v in every}
    assert first["visual.conv1.weight"] == first["embeddings"] == first["shift"] == 0
    assert first["visual.transformer.resblocks.1.ln_1.bias"] == first["block 1"] == 2
    assert first["linear"] == 1 and first["visual.proj"] == first["output"] == tiny.LAYERS + 1


@pytest.mark.full
def test_every_change_is_what_it_is_by_hand(measured, every, tiny_benchmark):
    _, run, true_map, _ = measured
    table = true_map.table("changes").set_index(["level", "name", "over"]).sort_index()
    state, base = load_file(run.model_path), load_file(tiny_benchmark.pretrained)
    before = evaluate(state, tiny_benchmark, splits=("choosing",)).set_index("task")
    inside = list(tiny_benchmark.experts)
    for variant in every:
        own = table.loc[variant.level, variant.name]
        changed = put_back(state, base, variant.tensors)
        after = evaluate(changed, tiny_benchmark, splits=("choosing",)).set_index("task")
        np.testing.assert_allclose(own.loc[after.index, "after"], after["accuracy"], atol=1e-7)
        np.testing.assert_allclose(own.loc[after.index, "before"], before["accuracy"], atol=1e-7)
        gains = after["accuracy"] - before["accuracy"]
        outside = [task for task in gains.index if task not in inside]
        means = [gains[inside].mean(), gains[outside].mean()]
        np.testing.assert_allclose(own.loc[list(AVERAGES), "change"], means, atol=1e-6)
        assert (own["low"] <= own["change"] + 1e-6).all() and (own["change"] <= own["high"] + 1e-6).all()
        moved = margins(changed, tiny_benchmark) - margins(state, tiny_benchmark)
        np.testing.assert_allclose(own.loc[list(gains.index), "margin"], moved, atol=1e-5)
    assert true_map.notes == {
        "split": "choosing", "sample_seed": 0, "images": 20, "fewest_images": 20, "n_in": 80, "n_out": 40,
        "resamples": 10_000,
    }  # fmt: skip


def margins(state, benchmark, dtype=torch.float32):
    """The mean margin of every task (T,), written out."""
    tensors = {name.removeprefix("visual."): value.to(dtype) for name, value in state.items()}
    encoder = Encoder(Encoder.from_checkpoint(tiny.checkpoint(tiny.pretrained())).architecture, tensors)
    means = []
    for task in benchmark.tasks:
        pixels, labels = benchmark.load_images(task.key, "choosing")
        features = torch.nn.functional.normalize(encoder(benchmark.preprocess(pixels).to(dtype)), dim=-1)
        cosines = features @ benchmark.load_head(task.key).to(dtype).T
        rows = range(len(labels))
        own = cosines[rows, labels].clone()
        cosines[rows, labels] = -9.0
        means.append(float((own - cosines.max(dim=1).values).mean()))
    return np.array(means)


def test_one_model_per_task_is_changed_in_each(tmp_path, tiny_benchmark):
    store = Store(tmp_path, libraries=())
    run = execute(Recipe.build("emr", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts), store,
                  benchmark=tiny_benchmark)  # fmt: skip
    table = measure.measure("put_back", store, tiny_benchmark, run.id).table("changes")
    base, names = load_file(tiny_benchmark.pretrained), {"visual.proj", "visual.ln_post.weight", "visual.ln_post.bias"}
    models = {task: put_back(load_file(path), base, names) for task, path in run.model_paths.items()}
    after = evaluate_per_task(models, tiny_benchmark, splits=("choosing",)).set_index("task")["accuracy"]
    own = table[(table["level"] == "block") & (table["name"] == "output")].set_index("over")["after"]
    np.testing.assert_allclose(own[after.index], after, atol=1e-6)

    predicted = measure.measure("first_order", store, tiny_benchmark, run.id).table("changes")
    assert np.isfinite(predicted["put_back"]).all() and (predicted["put_back"] != 0).any()


# To first order


def test_predictions_are_slopes(measured, tiny_benchmark):
    _, run, _, guessed = measured
    state = {name: value.double() for name, value in load_file(run.model_path).items()}
    base = {name: value.double() for name, value in load_file(tiny_benchmark.pretrained).items()}
    expert = {name: value.double() for name, value in load_file(tiny_benchmark.experts["digits"]).items()}
    table = guessed.table("changes").set_index(["tensor", "over"])["put_back"]
    tensors = list(guessed.table("weights")["tensor"])
    keys, step = [task.key for task in tiny_benchmark.tasks], 1e-5
    before = margins(state, tiny_benchmark, torch.float64)
    back = guessed.array("give_back")[:, :, list(tiny_benchmark.experts).index("digits")]  # (T, L)
    out = guessed.array("take_out")[:, :, list(tiny_benchmark.experts).index("digits")]
    weight = guessed.table("weights").set_index("tensor")["weight"]
    for name in (tensors[0], "visual.transformer.resblocks.0.attn.in_proj_weight", "visual.proj"):

        def slope(direction, name=name):
            moved = state | {name: state[name] + step * direction}
            return (margins(moved, tiny_benchmark, torch.float64) - before) / step

        at = tensors.index(name)
        np.testing.assert_allclose(table[name][keys], slope(base[name] - state[name]), rtol=2e-2, atol=2e-5)
        np.testing.assert_allclose(back[:, at], slope(expert[name] - state[name]), rtol=2e-2, atol=2e-5)
        taken = slope(-weight[name] * (expert[name] - base[name]))
        np.testing.assert_allclose(out[:, at], taken, rtol=2e-2, atol=2e-5)


def test_the_parts_of_a_sum_are_the_whole(measured, tiny_benchmark):
    _, _, _, guessed = measured
    weights = guessed.table("weights")["weight"]
    np.testing.assert_allclose(weights, 0.3, atol=5e-3)  # half precision rounds the merged weights
    parts = guessed.table("experts").groupby(["tensor", "over"])["take_out"].sum()
    whole = guessed.table("changes").set_index(["tensor", "over"])["put_back"]
    np.testing.assert_allclose(parts, whole[parts.index], atol=2e-4)
    rows = guessed.table("changes")
    inside = rows[rows["over"].isin(list(tiny_benchmark.experts))].groupby("tensor")["put_back"].mean()
    np.testing.assert_allclose(whole[:, "in domain"][inside.index], inside, atol=1e-6)
    assert guessed.array("take_out").shape == (6, len(tiny.shapes()), 4)


def test_a_tensor_that_was_pruned_has_no_part_to_take_out(tmp_path, tiny_benchmark):
    store = Store(tmp_path, libraries=())
    recipe = find_preset("task_arithmetic_lwptv").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark, keep_model=False)
    guessed = measure.measure("first_order", store, tiny_benchmark, run.id)
    kept = run.table("tensors").set_index("tensor")["kept_numel"]
    weights = guessed.table("weights").set_index("tensor")["weight"]
    pruned = kept.index[kept == 0]
    assert 0 < len(pruned) < len(kept) and (weights[pruned] == 0).all()
    rows = guessed.table("changes")
    assert (rows[rows["tensor"].isin(pruned)]["put_back"] == 0).all()


def test_a_tensor_that_no_expert_moved_weighs_nothing():
    base = tiny.pretrained()
    name, value = "visual.proj", base["visual.proj"]
    slot = Slot(classify_parameters([name])[0], ("a", "b"), value, torch.zeros(2, *value.shape))

    class Gradients:
        def read(self, name, start, stop):
            return torch.ones(3, stop - start)

    put_back, take_out, _, weight = first_order.first_order_products(
        slot, tiny.checkpoint(base | {name: value + 1}), Gradients()
    )
    np.testing.assert_allclose(put_back, [-value.numel()] * 3, rtol=1e-5)
    assert weight == 0 and (take_out == 0).all()


def test_gradients_do_not_depend_on_the_batch(measured, tmp_path, tiny_benchmark, monkeypatch):
    library, run, _, guessed = measured
    monkeypatch.setattr(first_order, "ACTIVATION_BYTES", 1)  # one image at a time
    store = Store(tmp_path / "store", libraries=(without_measurements(library, tmp_path),))
    again = measure.measure("first_order", store, tiny_benchmark, run.id)
    np.testing.assert_allclose(
        again.table("changes")["put_back"], guessed.table("changes")["put_back"], rtol=1e-3, atol=1e-6
    )


# What it costs, and what others see of it


def test_a_variant_starts_at_its_first_section(measured, every, tiny_benchmark):
    _, run, _, _ = measured
    sample = put_back_images.sample_images(tiny_benchmark)
    batches = put_back_images.image_batches(sample, list(sample))
    tower = put_back_variants.PutBackTower.load(
        tiny.checkpoint(load_file(run.model_path)), tiny_benchmark.pretrained_tower, "cpu"
    )
    n, meter = sum(map(len, batches)), Meter(0)
    rows = [variant for variant, _ in tower.compute_features(every, batches, meter)]
    assert rows[0] is None and set(rows[1:]) == set(every)
    sections = tiny.LAYERS + 2
    single = sum(sections - v.first_section for v in every if v.level != "kind")
    kinds = sum(v.level == "kind" for v in every)
    assert meter.done == tower.count_work(every, n) == n * (single + sections * (kinds + 2) - 1)


def test_the_sample_is_a_preview_s(tiny_benchmark, monkeypatch):
    monkeypatch.setattr(put_back_images, "SAMPLE", PreviewSample(5))
    sample = put_back_images.sample_images(tiny_benchmark)
    assert {len(task.labels) for task in sample.values()} == {5}
    assert [len(set(task.labels.tolist())) for task in sample.values()] == [
        min(5, len(set(tiny_benchmark.load_images(key, "choosing")[1].tolist()))) for key in sample
    ]


def without_measurements(store, folder):
    """A library of the same runs, of which nothing is measured."""
    return shutil.copytree(store.root / "runs", folder / "library" / "runs")


def so_far(store, benchmark, run_id) -> Iterator[int]:
    while True:
        partial = measurement_store.find_partial("put_back", store, benchmark, run_id)
        yield 0 if partial is None else partial.tables["changes"]["name"].nunique()


def test_results_are_shown_while_it_runs(measured, tmp_path, tiny_benchmark):
    library, run, true_map, _ = measured
    store = Store(tmp_path / "store", libraries=(without_measurements(library, tmp_path),))
    counts, reading = [], so_far(store, tiny_benchmark, run.id)

    def look(progress: Progress) -> None:
        if progress.done % 20 == 0:  # now and then, since every look reads the table
            counts.append(next(reading))

    measure.measure("put_back", store, tiny_benchmark, run.id, context=Context(progress=look))
    whole = true_map.table("changes")["name"].nunique()
    assert counts[0] == 0 and len(set(counts)) > tiny.LAYERS and max(counts) < whole
    assert sorted(counts) == counts
    assert next(reading) == 0  # the whole is there instead
    assert [place.name for place in (store.root / "measured").iterdir()] == [true_map.path.name]


def test_a_cancelled_one_leaves_nothing(measured, tmp_path, tiny_benchmark):
    library, run, *_ = measured
    store = Store(tmp_path / "store", libraries=(without_measurements(library, tmp_path),))
    reading = so_far(store, tiny_benchmark, run.id)
    with pytest.raises(Cancelled):
        measure.measure("put_back", store, tiny_benchmark, run.id, context=Context(cancel=lambda: next(reading) > 0))
    assert list((store.root / "measured").iterdir()) == []


def test_a_model_that_is_no_merge_is_refused(tmp_path, tiny_benchmark):
    store = Store(tmp_path, libraries=())
    run = find_references(store, tiny_benchmark)["pretrained"]
    for key in ("put_back", "first_order"):
        with pytest.raises(StoreError, match="is not a merge"):
            measure.measure(key, store, tiny_benchmark, run.id)


def test_the_command_line_measures_both(measured, tiny_folder, monkeypatch, capsys):
    store, run, *_ = measured
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    for key in ("put_back", "first_order"):
        assert main(["measure", key, run.id, "--store", str(store.root), "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["tables"]["changes"]
        assert {row["over"] for row in rows} >= set(AVERAGES)
    assert main(["measure", "put_back", run.id, "--store", str(store.root)]) == 0
    assert "What putting weights back gives on CPU" in capsys.readouterr().out
