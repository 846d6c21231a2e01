"""The path from a recipe to a stored run: what is kept, what is computed again, and that bytes repeat."""

from __future__ import annotations

import getpass
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import tiny
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import merging
from merging.base.errors import Cancelled, CheckpointError, MergingError, StoreError, TaskError
from merging.engine import run as engine
from merging.engine.evaluation.evaluate import evaluate
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.manifest import MADE_BY, MANIFEST
from merging.models import digest_cache
from merging.recipes.recipe import Recipe
from merging.study.runs import execute as execution
from merging.study.runs import run_work
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def test_a_run_holds_everything(recipe, run_it, tiny_benchmark):
    run = run_it(recipe)
    expected = merging.merge(tiny_benchmark.pretrained, tiny_benchmark.experts, "ties", edits=["lwptv"], device="cpu")
    model = load_file(run.model_path)
    assert set(model) == set(expected.state_dict)
    assert all(model[name].equal(tensor) for name, tensor in expected.state_dict.items())
    assert {"tensors", "saliency"} <= set(run.tables)
    for name, table in expected.tables.items():
        pd.testing.assert_frame_equal(run.table(name), table)
    pd.testing.assert_frame_equal(run.scores, evaluate(run.model_path, tiny_benchmark, context=Context(device="cpu")))
    assert run.recipe == recipe
    assert run.experts == tiny.EXPERTS
    assert (run.kind, run.device, run.title) == ("merge", "CPU", "lwptv → ties")
    assert set(run.seconds) == {"reading", "merging", "evaluating"}
    assert set(run.versions) == {"mergescope", "python", "torch", "numpy"}
    assert run.inputs["experts/digits"] == digest_cache.DIGESTS.digest(open_inputs(recipe).experts["digits"])


def test_an_option_that_does_not_exist_is_refused(recipe, tiny_benchmark, tmp_path):
    store, opened = Store(tmp_path, libraries=()), open_inputs(recipe)
    with pytest.raises(TypeError, match="A run has no option evalute; it has evaluate, "):
        execution.execute(recipe, store, benchmark=tiny_benchmark, evalute=False)
    with pytest.raises(TypeError, match="A merge takes no argument exemplar"):
        engine.run_recipe(recipe, opened.pretrained, opened.experts, exemplar={})


def test_the_second_call_computes_nothing(recipe, run_it, monkeypatch):
    first = run_it(recipe)
    monkeypatch.setattr(execution, "RunWork", None)
    again = run_it(replace(recipe, title="another title"))
    assert (again.id, again.created) == (first.id, first.created)


def test_the_same_recipe_gives_the_same_bytes(recipe, run_it, tmp_path, tiny_folder):
    """Another store, other places of the files, another title: not a byte of the model differs."""
    shutil.copytree(tiny_folder / "models", tmp_path / "elsewhere")
    experts = {name: f"{name}.safetensors" for name in tiny.EXPERTS}
    moved = Recipe.build("ties", {}, ["lwptv"], "pretrained.safetensors", experts, "another title")
    one = run_it(recipe)
    two = run_it(moved, store=Store(tmp_path / "other", libraries=()), base=tmp_path / "elsewhere")
    assert one.id == two.id
    assert one.path != two.path
    assert one.model_path.read_bytes() == two.model_path.read_bytes()


def test_the_model_says_what_it_is_and_not_where_it_was_made(recipe, run_it):
    run = run_it(recipe)
    with safe_open(run.model_path, "pt") as file:
        said = file.metadata()
    assert said["run"] == run.id
    assert json.loads(said["architecture"]) == tiny.ARCHITECTURE
    told = json.loads(said["recipe"])
    assert told["merge"]["ties"]["density"] == 0.2
    assert told["experts"]["flags"] == run.inputs["experts/flags"]
    text = json.dumps(said) + (run.path / "run.json").read_text()
    facts = json.loads((run.path / "run.json").read_text("utf-8"))
    assert (facts["capability"], facts["threads"]) == (torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    for secret in (str(Path.home()) + "/", str(run.path.parent), recipe.pretrained, f"/{getpass.getuser()}/"):
        assert secret not in text


def test_scores_can_come_later(recipe, run_it, monkeypatch):
    run = run_it(recipe, evaluate=False)
    assert run.scores is None
    before = run.model_path.read_bytes()
    tables = {name: run.table(name) for name in run.tables}
    assert run_it(recipe, evaluate=False).created == run.created
    monkeypatch.setattr(run_work.engine, "run_recipe", None)  # the weights are there: nothing is merged again
    scored = run_it(recipe)
    assert scored.scores is not None
    assert scored.model_path.read_bytes() == before
    assert set(scored.seconds) == {"reading", "merging", "evaluating"}
    for name, table in tables.items():
        pd.testing.assert_frame_equal(scored.table(name), table)
    assert [path.name for path in scored.path.parent.iterdir()] == [scored.id]


def test_scores_on_another_benchmark_do_not_count(recipe, run_it, tmp_path, tiny_folder):
    run = run_it(recipe)
    shutil.copytree(tiny_folder, tmp_path / "changed")
    tasks = tmp_path / "changed" / "tasks.json"
    tasks.write_text(tasks.read_text().replace("Tiles", "Floors"))
    again = run_it(recipe, benchmark=Benchmark.load(tmp_path / "changed"))
    assert again.id == run.id
    assert "Floors" in set(again.scores["title"])


def test_models_need_not_be_kept(recipe, run_it):
    run = run_it(recipe, keep_model=False)
    assert run.scores is not None
    assert not run.has_model
    assert not list(run.path.glob("*.safetensors"))
    assert run.model_path is None
    full = run_it(recipe, need_model=True)
    assert full.has_model
    assert full.scores is not None


def test_a_precomputed_run_is_enough_unless_its_model_is_wanted(recipe, run_it, tmp_path):
    library = Store(tmp_path / "sample", libraries=(), dated=False)
    made = run_it(recipe, store=library, keep_model=False)
    assert made.created is None
    store = Store(tmp_path / "mine", libraries=(tmp_path / "sample" / "runs",))
    found = run_it(recipe, store=store)
    assert found.provenance == "precomputed"
    assert not (tmp_path / "mine").exists() or not list((tmp_path / "mine").glob("runs/*"))
    assert run_it(recipe, store=store, need_model=True).provenance == "this machine"


def test_one_model_per_task(run_it, per_task, tiny_folder):
    names = {"circles": "circles", "my / odd: name": "digits"}
    experts = {name: str(tiny_folder / "models" / f"{file}.safetensors") for name, file in names.items()}
    run = run_it(Recipe.build("halves", {}, [], str(tiny_folder / "models" / "pretrained.safetensors"), experts))
    assert run.model_path is None
    assert set(run.model_paths) == set(experts)
    assert {path.parent for path in run.model_paths.values()} == {run.path}
    assert set(run.scores["task"]) == {*tiny.EXPERTS, *tiny.OUTSIDE}  # all but "circles" are a mean over both models
    base, expert = load_file(tiny_folder / "models/pretrained.safetensors"), load_file(experts["circles"])
    got = load_file(run.model_paths["circles"])["visual.proj"].float()
    want = (base["visual.proj"].float() + expert["visual.proj"].float()) / 2
    assert (got - want).abs().max() < 1e-3


def test_progress_is_one_fraction_over_all_phases(recipe, run_it):
    seen = []
    run_it(recipe, progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    phases = list(dict.fromkeys(progress.phase for progress in seen))
    assert phases == [
        "Reading checkpoints", "Surveying for LwPTV", "Surveying for TIES", "Merging with TIES", "Evaluating",
    ]  # fmt: skip


@pytest.mark.parametrize("phase", ["Reading checkpoints", "Surveying for TIES", "Merging with TIES", "Evaluating"])
def test_cancel_keeps_nothing(recipe, run_it, store, phase):
    stop = threading.Event()

    def watch(progress):
        if progress.phase == phase:
            stop.set()

    with pytest.raises(Cancelled, match="nothing was kept"):
        run_it(recipe, progress=watch, cancel=stop)
    assert store.list_runs() == []
    assert not list(store.root.glob("runs/*"))
    assert run_it(recipe).scores is not None


def test_a_model_that_the_benchmark_does_not_fit_is_not_evaluated(recipe, run_it, tiny_benchmark):
    bigger = replace(tiny_benchmark, image_size=32)
    run = run_it(recipe, benchmark=bigger)
    assert run.scores is None
    assert run.warnings == ("Not evaluated: the model takes images of 16 × 16, the benchmark has 32 × 32.",)
    assert run_it(recipe, benchmark=bigger).created == run.created


def test_a_checkpoint_overwritten_while_it_is_read_is_noticed(recipe, run_it, store, tmp_path, tiny_folder):
    models = shutil.copytree(tiny_folder / "models", tmp_path / "models")
    mine = Recipe.build(
        "ties", {}, [], str(models / "pretrained.safetensors"), {"d": str(models / "digits.safetensors")}
    )

    def overwrite(progress):
        if progress.phase == "Merging with TIES":
            with (models / "digits.safetensors").open("r+b") as file:
                file.seek(-2, 2)
                file.write(b"\0\0")

    with pytest.raises(CheckpointError, match="d was changed while it was being read; nothing was stored"):
        run_it(mine, progress=overwrite)
    assert store.list_runs() == []


def test_what_does_not_fit_is_refused_before_anything_is_written(recipe, run_it, store, monkeypatch):
    usage = shutil.disk_usage(store.root.parent)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StoreError, match=r"needs 19\.8 kB on the disk that holds the runs; 1 kB are free"):
        run_it(recipe)
    monkeypatch.setattr(run_work, "free_memory", lambda: 1000)
    with pytest.raises(MergingError, match=r"of memory; 1 kB are free"):
        run_it(recipe)
    assert not store.root.exists() or not list(store.root.glob("runs/*"))


def test_a_benchmarks_model_is_checked_wherever_relative_paths_count_from(tmp_path, tiny_benchmark, monkeypatch):
    (tmp_path / "made" / "models").mkdir(parents=True)
    shutil.copyfile(tiny_benchmark.pretrained, tmp_path / "made" / "models" / "base.safetensors")
    manifest = {"made_by": MADE_BY, "digests": {"base": "0" * 64}}
    (tmp_path / "made" / MANIFEST).write_text(json.dumps(manifest))
    recipe = Recipe.build("ties", {}, [], "made/models/base.safetensors", {"a": tiny_benchmark.pretrained})
    with pytest.raises(TaskError, match=r"base\.safetensors has other weights than those that were written"):
        open_inputs(recipe, tmp_path).digests()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match="has other weights"):
        open_inputs(recipe).digests()
