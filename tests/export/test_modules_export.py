"""Exports of runs with modules: the model as any, the modules beside it, and what the card says of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import merging
from merging.methods import registry
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.analysis.storage_accounting import storage_table
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

ADAPTS = {"surgery": {"steps": 4, "rank": 4}, "wemoe": {"steps": 1, "batch": 4}, "twin": {"steps": 4},
          "mass": {"most": 2}}  # fmt: skip


@pytest.fixture(scope="module", params=ADAPTS)
def adapted(request, tiny_benchmark, tmp_path_factory):
    data = {"exemplars": {"per_task": 4}} if request.param == "twin" else {"test_data": {"split": "reporting"}}
    recipe = Recipe.build(
        "task_arithmetic", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts,
        adapt=(request.param, ADAPTS[request.param]), **data,
    )  # fmt: skip
    return execute(
        recipe, Store(tmp_path_factory.mktemp("runs"), libraries=()), benchmark=tiny_benchmark, context=Context("cpu")
    )


@pytest.mark.full
@pytest.mark.parametrize("to", ["hf", "open_clip"])
def test_modules_load_from_an_export(adapted, tiny_benchmark, to, tmp_path):
    done = export(adapted, tmp_path / to, to=to)
    export(adapted, tmp_path / "again", to=to)
    assert {"modules.json", "README.md"} <= set(done.files)
    assert all((tmp_path / to / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in done.files)
    task = next(iter(tiny_benchmark.experts))
    images = tiny_benchmark.labeled_exemplars(3, 0)[task].images
    loaded, own = merging.load_modules(tmp_path / to), adapted.open_modules()
    assert torch.allclose(loaded.features(images, task), own.features(images, task), atol=1e-6)
    assert set(json.loads((tmp_path / to / "export.json").read_text())["files"]) >= {"modules.json"}


def test_the_card_says_what_was_learned_from_which_images(adapted, tmp_path):
    export(adapted, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "## Modules" in card and "mergescope.load_modules(folder)" in card
    learned = {"twin": "It learned from training images.", "mass": ""}.get(adapted.adapt, "† Adapted on these images")
    assert learned in card and ("earned from" in card or "dapted on" in card) == (adapted.adapt != "mass")
    counts = {"twin": "The methods used 4 training images of each task (seed 0).", "mass": ""}
    assert counts.get(adapted.adapt, "There were 30 of each task.") in card
    assert ("Per task in domain" in card) == (adapted.adapt == "surgery")
    assert f"**{registry.find_adapt(adapted.adapt).title}**" in card


def test_storage_counts_what_lies_beside_the_model(adapted):
    table, modules = storage_table(adapted), adapted.table("modules")
    assert not table.duplicated(["account", "part"]).any()  # a chart takes every part once
    deploy, dense = (table[table["account"] == name].set_index("part")["bytes"] for name in ("deploy", "dense"))
    for part, rows in modules.groupby("part"):
        assert dense[part] == rows["bytes"].sum() and deploy[part] <= dense[part]
    files = adapted.sizes["files"]
    (itemsize,) = set(adapted.table("tensors")["itemsize"])  # of the model, whose precision may be another one
    mlps = int(modules["numel"][modules["part"] == "pretrained tensors"].sum()) * itemsize
    assert (mlps > 0) == (adapted.adapt == "wemoe")
    assert dense["merged model"] == files and deploy["merged model"] == files - mlps


def test_the_card_counts_the_images_that_there_were(tiny_benchmark, tmp_path):
    recipe = Recipe.build("regmean", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts,
                          exemplars={"per_task": 5000})  # fmt: skip
    store = Store(tmp_path / "runs", libraries=())
    run = execute(recipe, store, benchmark=tiny_benchmark, evaluate=False, context=Context(device="cpu"))
    most = tiny_benchmark.count_images(run.experts[0], "exemplars")
    assert run.images == {"exemplars": dict.fromkeys(run.experts, most)}
    export(run, tmp_path / "out")
    assert f"The methods used {most} training images" in (tmp_path / "out" / "README.md").read_text()
    export(replace(run, images={}), tmp_path / "old")
    assert "The methods used at most 5000 training images" in (tmp_path / "old" / "README.md").read_text()
