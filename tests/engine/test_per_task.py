"""Merges that give one model per task: what is stored, evaluated, estimated, and written."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import tiny
import torch
from contexts import context_of
from per_task_merge import KEY, accuracy
from safetensors import safe_open
from safetensors.torch import load_file

import merging
from merging.base.errors import Cancelled, StoreError
from merging.cli.main import main
from merging.engine.evaluation.evaluate import evaluate, evaluate_per_task
from merging.images.benchmarks.metrics import PER_TASK, summarize, wilson
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import EVALUATING, MERGING, estimate_run
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

pytestmark = pytest.mark.usefixtures("doubles")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def recipe(tiny_benchmark):
    return Recipe.build(KEY, {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)


@pytest.fixture
def run_it(store, tiny_benchmark):
    def call(recipe, **options):
        named = {"benchmark": tiny_benchmark, "context": context_of(options)} | options
        return execute(recipe, named.pop("store", store), **named)

    return call


# What is stored


def test_every_task_is_evaluated_with_its_own_model_and_the_others_with_the_mean(recipe, run_it, tiny_benchmark):
    run = run_it(recipe)
    assert run.per_task
    of_each = {name: evaluate(path, tiny_benchmark, context=Context("cpu")) for name, path in run.model_paths.items()}
    assert list(run.scores.columns) == list(of_each["flags"].columns)
    assert len(run.scores) == len(of_each["flags"]) == run.scores.groupby(["task", "split"]).ngroups
    for split in ("choosing", "reporting"):
        for task in tiny.EXPERTS:
            assert accuracy(run.scores, task, split) == accuracy(of_each[task], task, split)
        for task in tiny.OUTSIDE:
            mean = sum(accuracy(scores, task, split) for scores in of_each.values()) / len(of_each)
            assert accuracy(run.scores, task, split) == pytest.approx(mean, abs=1e-12)
    assert len({accuracy(scores, "tiles") for scores in of_each.values()}) > 1  # or the mean would prove nothing
    row = run.scores[run.scores["task"] == "tiles"].iloc[0]
    assert (row["low"], row["high"]) == wilson(row["correct"], row["n"])
    assert row["n"] == tiny.CHOOSING


def test_it_reads_back_the_same(recipe, run_it, store, tiny_benchmark):
    run = run_it(recipe)
    again = Store(store.root, libraries=()).get_run(run.id)
    assert (again.per_task, again.sizes) == (True, run.sizes)
    assert list(again.model_paths) == list(tiny.EXPERTS)
    assert again.model_path is None
    pd.testing.assert_frame_equal(again.scores, run.scores)
    result = merging.merge(tiny_benchmark.pretrained, tiny_benchmark.experts, KEY, device="cpu")
    assert result.state_dict == {}
    for name, path in again.model_paths.items():
        written = load_file(path)
        assert all(written[key].equal(tensor) for key, tensor in result.task_state_dicts[name].items())
        with safe_open(path, "pt") as file:
            assert file.metadata()["task"] == name
    for name, table in result.tables.items():
        pd.testing.assert_frame_equal(again.table(name), table)


def test_an_expert_called_merged_is_no_single_model(tiny_folder, run_it):
    models = tiny_folder / "models"
    experts = {"merged": str(models / "flags.safetensors")}
    run = run_it(Recipe.build(KEY, {}, [], str(models / "pretrained.safetensors"), experts))
    assert run.model_path is None
    with safe_open(run.model_paths["merged"], "pt") as file:
        assert file.metadata()["task"] == "merged"
    assert set(run.scores["task"]) == {*tiny.EXPERTS, *tiny.OUTSIDE}


def test_experts_that_are_no_tasks_count_out_of_domain(tiny_folder, run_it):
    models = tiny_folder / "models"
    experts = {name: str(models / f"{name}.safetensors") for name in ("circles", "digits")}
    run = run_it(Recipe.build(KEY, {}, [], str(models / "pretrained.safetensors"), experts))
    summary = summarize(run.scores, run.experts)
    assert (summary.tasks_in, summary.tasks_out) == (2, 4)


def test_models_of_tasks_that_nobody_asks_are_not_opened(tiny_benchmark):
    """Nothing is out of domain, and no model has a task: no rows, no failure."""
    found = evaluate_per_task({}, tiny_benchmark, context=Context(device="cpu"))
    assert found.empty
    everything = dict.fromkeys([task.key for task in tiny_benchmark.tasks], tiny_benchmark.pretrained)
    with_stranger = evaluate_per_task({**everything, "stranger": "not there"}, tiny_benchmark, context=Context("cpu"))
    expected = evaluate(tiny_benchmark.pretrained, tiny_benchmark, context=Context("cpu"))
    pd.testing.assert_frame_equal(with_stranger, expected, check_like=True)


def test_models_need_not_be_kept_and_scores_can_come_later(recipe, run_it):
    bare = run_it(recipe, evaluate=False)
    assert bare.scores is None
    assert len(bare.model_paths) == 4
    scored = run_it(recipe)
    assert scored.sizes == bare.sizes
    assert scored.per_task
    assert scored.scores is not None


def test_a_precomputed_run_knows_its_sizes_without_models(recipe, run_it, tmp_path):
    kept = run_it(recipe)
    left = run_it(recipe, store=Store(tmp_path / "library", libraries=(), dated=False), keep_model=False)
    assert not left.has_model
    assert (left.per_task, left.sizes) == (True, kept.sizes)
    assert kept.sizes["files"] == sum(path.stat().st_size for path in kept.model_paths.values())


def test_the_tensor_tables_count_every_model(tiny_folder):
    base, experts = tiny.family()
    name = next(iter(base))
    for index, expert in enumerate(experts.values()):
        expert[name] = base[name].clone()
        expert[name].view(-1)[index] += 1  # each expert moves another scalar
    result = merging.merge(base, experts, KEY, device="cpu")
    tensors = result.tables["tensors"].set_index("tensor")
    assert tensors.loc[name, ["kept_numel", "itemsize"]].tolist() == [len(experts), 4]
    assert tensors.loc[name, "change_norm"] == pytest.approx(2.0, rel=1e-6)
    by_task = result.tables["task_tensors"].set_index(["tensor", "expert"]).loc[name]
    assert by_task["kept_numel"].tolist() == [1] * len(experts)
    assert "task_tensors" not in merging.merge(base, experts, "ties", device="cpu").tables


# Before and while it runs


def test_the_estimate_counts_every_model(recipe, tiny_benchmark):
    def work(key, phase):
        recipe = Recipe.build(key, {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
        return estimate_run(open_inputs(recipe), tiny_benchmark).work[phase]

    inside, outside, models = len(tiny.EXPERTS), len(tiny.OUTSIDE), len(tiny.EXPERTS)
    ratio = work(KEY, EVALUATING) / work("weight_averaging", EVALUATING)
    assert ratio == pytest.approx((inside + models * outside) / (inside + outside))
    assert work(KEY, MERGING) > work("weight_averaging", MERGING)


def test_the_disk_must_hold_every_model(recipe, run_it, store, monkeypatch):
    one = sum(info.nbytes for info in open_inputs(recipe).pretrained.infos.values())
    usage = type("Usage", (), {"free": 2 * one})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(StoreError, match="has 4 models, which need"):
        run_it(recipe)
    assert store.list_runs() == []
    run_it(Recipe.build("weight_averaging", {}, [], recipe.pretrained, dict(recipe.experts)))


def test_progress_covers_every_model(recipe, run_it):
    seen = []
    run_it(recipe, progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    details = {progress.detail for progress in seen if progress.phase == "Evaluating"}
    assert {"Flags, model of flags", "Tiles, model of flags", "Tiles, model of circles"} <= details
    assert "Flags, model of circles" not in details


def test_cancel_keeps_nothing(recipe, run_it, store):
    with pytest.raises(Cancelled):
        run_it(recipe, cancel=lambda: len(list(store.root.glob("runs/*/model.*.safetensors"))) == len(tiny.EXPERTS))
    assert list(store.root.glob("runs/*")) == []


# The command line


def arguments(benchmark, out, *more):
    experts = [f"--expert={name}={path}" for name, path in benchmark.experts.items()]
    return ["merge", "--pretrained", benchmark.pretrained, *experts, "--merge", KEY, "--out", str(out), *more]


@pytest.fixture
def command(tiny_benchmark, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "cli"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))

    def call(out, *more):
        code = main(arguments(tiny_benchmark, out, *more))
        return code, capsys.readouterr()

    return call


def test_a_file_cannot_hold_several_models(command, tmp_path):
    code, said = command(tmp_path / "model.safetensors")
    assert code == 2
    assert "one model per task; name a folder" in said.err
    assert not (tmp_path / "cli").exists()  # it is refused before anything is computed


def test_a_folder_holds_every_model(command, tmp_path):
    code, said = command(tmp_path / "out", "--device", "cpu")
    assert code == 0
    assert len(list((tmp_path / "out").glob("tasks/*/model.safetensors"))) == 4
    assert PER_TASK in said.out


def test_json_says_so_too(command, tmp_path):
    code, said = command(tmp_path / "out", "--device", "cpu", "--json")
    assert code == 0
    told = json.loads(said.out)
    assert told["per_task"] is True
    assert set(told["models"]) == set(tiny.EXPERTS)


# The merge that there is


def test_emr_through_the_pipeline(tiny_benchmark, run_it):
    run = run_it(Recipe.build("emr", {}, ["lwptv"], tiny_benchmark.pretrained, tiny_benchmark.experts))
    assert run.per_task
    assert "rescalers" in run.tables
    base = load_file(tiny_benchmark.pretrained)
    models = [load_file(path) for path in run.model_paths.values()]
    tensors = run.table("tensors").set_index("tensor")
    unchanged = tensors.index[tensors["kept_numel"] == 0]
    assert 0 < len(unchanged) < len(tensors)
    assert all(model[name].equal(base[name]) for model in models for name in unchanged)
    assert not torch.equal(models[0]["visual.proj"], models[1]["visual.proj"]) or "visual.proj" in unchanged
