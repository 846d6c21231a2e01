"""The page Learning: every view on made-up runs, what it says where a run lacks one, and what its links restore."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import learned_runs
import pytest
import tiny_library
import torch
from page_harness import chart_keys, chart_specs, charts, click, press, words

from app.reading import page_data
from app.views.learning import learning_tables as learning
from merging.base import settings
from merging.engine.learning.learning_state import LearningState
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import ADAPTS_ON_TEST, TASK_KNOWN
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_subject import FOLDER
from merging.study.measure import measure
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue.job_records import Job

VIEWS = {  # view -> a run that has it, and its charts
    "coefficients": (learned_runs.LAYERWISE, ["coefficient_map", "coefficient_steps", "coefficient_sums"]),
    "loss and gain": (learned_runs.LAYERWISE, ["learning_loss"]),
    "modules": (learned_runs.MODULES, ["feature_shift"]),
    "masks": (learned_runs.MASKED, ["localization_map", "localization_overlap"]),
    "storage": (learned_runs.ROUTED, ["storage_parts"]),
}


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_library.write(tmp_path_factory.mktemp("learned"), ("ties",))
    learned_runs.add(folder)
    return folder


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_draws_its_charts(look: Any, learned: Path, view: str) -> None:
    run, expected = VIEWS[view]
    at = look("learning", learned, run=run, learning_view=view)
    assert not at.exception and not at.error
    assert chart_keys(at) == expected


@pytest.mark.full
def test_tables_of_other_methods_that_have_the_same_name_are_not_learned(
    open_app: Any, learned: Path, tmp_path: Path
) -> None:
    others = (("task_arithmetic", {}, ["awd"]), ("model_stock", {}, []), ("adamerging", {"steps": 2}, ["awd"]))
    benchmark, store = Benchmark.load(learned), Store(tmp_path / "store", libraries=(learned / "runs",))
    awd, stock, both = (
        execute.execute(
            Recipe.build(merge, params, edits, benchmark.pretrained, benchmark.experts),
            store, benchmark=benchmark, keep_model=False,
        )
        for merge, params, edits in others
    )  # fmt: skip
    assert not learning.has_learned(awd) and not learning.has_learned(stock)
    assert learning.has_learned(both) and learning.is_by_tensor(both)
    assert set(both.columns("coefficients")) != set(both.columns("coefficients_2"))
    assert chart_keys(open_app("learning", learned, run=both.id)) == VIEWS["coefficients"][1]
    at = open_app("learning", learned, run=awd.id)
    assert not at.exception and "This run learned nothing" in words(at)


def test_routing_shows_the_router_each_block_and_one_tasks_images(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.ROUTED)
    assert at.session_state["learning_view"] == "modules"  # the first view that this run has
    assert chart_keys(at) == ["router_confusion", "routing_own", "routing_map"]
    assert "below the line" in words(at)


def test_a_run_with_a_coefficient_for_each_expert_shows_lines_only(look: Any, learned: Path) -> None:
    at = look("learning", learned, run=learned_runs.TASKWISE)
    assert not at.exception
    assert chart_keys(at) == ["coefficient_steps"]
    assert "one coefficient for each expert" in words(at)


def test_a_step_and_a_tensor_come_from_the_link(open_app: Any, learned: Path) -> None:
    tensor = "visual.proj"
    at = open_app("learning", learned, run=learned_runs.LAYERWISE, learning_step="20", tensor=tensor, expert="flags")
    assert not at.exception
    assert at.select_slider(key="learning_step").value == "20"
    described = chart_specs(at)
    assert "at step 20" in described[0]
    assert "Tensor visual.proj" in words(at).replace("\\", "")


def test_a_click_on_the_map_chooses_its_tensor_and_expert(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.LAYERWISE)
    at = click(at, "coefficient_map", "Flags", "visual.proj")
    assert at.query_params["tensor"] == "visual.proj"
    assert at.query_params["expert"] == "flags"


def test_a_view_that_a_run_lacks_names_those_that_it_has(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.MASKED, learning_view="coefficients")
    assert charts(at) == 0
    assert "This run has no coefficients. It has: masks and storage." in words(at)
    at = press(at, "Masks")
    assert chart_keys(at) == ["localization_map", "localization_overlap"]


class TwoLearning:
    """The queue as if two jobs were learning now."""

    def __init__(self, runner: Any, recipe: Recipe) -> None:
        self._runner = runner
        self.live = [Job(id, "Learns", "running", recipe_yaml=recipe.to_yaml()) for id in ("a" * 12, "b" * 12)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def list_benchmark_jobs(self) -> list[Job]:
        return self.live

    list_jobs = list_benchmark_jobs

    def details(self, job_id: str) -> list[str]:
        return [f"step {step} of 9 · entropy 1.{step}" for step in (1, 2, 3)] if job_id == "b" * 12 else []


@pytest.mark.parametrize("view", ["coefficients", "loss and gain"])
def test_jobs_that_learn_are_drawn_beside_the_same_charts_of_a_run(
    open_app: Any, learned: Path, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    at = open_app("learning", learned, run=learned_runs.LAYERWISE, learning_view=view)
    benchmark = Benchmark.load(learned)
    recipe = Recipe.build("adamerging", {"steps": 9}, [], benchmark.pretrained, benchmark.experts)
    queue = TwoLearning(page_data.job_queue(), recipe)
    ones = torch.ones(len(benchmark.experts))
    kept = LearningState(page_data.store().learning_file(queue.live[0].id), queue.live[0].id)
    kept.offer("merge", lambda: {"losses": torch.stack([ones, ones, ones]), "value.visual.proj": ones})
    kept.write()
    monkeypatch.setattr(page_data, "job_queue", lambda: queue)
    at = at.run()
    assert not at.exception
    charts = [f"{key}_{job.id}" for job in queue.live for key in ("learning_loss", "coefficient_map")]
    assert chart_keys(at) == charts[:-1] + VIEWS[view][1]  # the second job has written nothing yet
    assert not open_app("learning", learned, presentation="true").exception


def test_losses_of_tasks_stand_beside_their_mean_and_stay_while_the_job_pauses(
    open_app: Any, learned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_app("learning", learned, run=learned_runs.LAYERWISE)
    benchmark = Benchmark.load(learned)
    recipe = Recipe.build("adamerging", {"steps": 40}, [], benchmark.pretrained, benchmark.experts)
    queue = TwoLearning(page_data.job_queue(), recipe)
    first, second = queue.live
    falling = torch.linspace(2, 1, 30, dtype=torch.float64)
    rows = torch.stack([falling] * (len(benchmark.experts) - 1) + [falling.flip(0)], dim=1)
    kept = LearningState(page_data.store().learning_file(first.id), first.id)
    kept.offer("merge", lambda: {"losses": rows})
    kept.write()
    queue.details = lambda job_id: [f"step {step} of 40 · entropy 1.50" for step in (30, 31, 32)]
    monkeypatch.setattr(page_data, "job_queue", lambda: queue)
    for state in ("running", "paused"):
        queue.live = [replace(first, state=state, is_resumable=state == "paused"), replace(second, state="cancelled")]
        at = at.run()
        assert not at.exception
        assert f"learning_loss_{first.id}" in chart_keys(at) and f"learning_loss_{second.id}" not in chart_keys(at)
        (spec,) = (json.loads(one.proto.spec) for one in at.get("plotly_chart") if one.proto.id.endswith(first.id))
        assert len({trace["name"] for trace in spec["data"]}) == len(benchmark.experts) + 1
        means = [trace for trace in spec["data"] if trace["name"] == "all tasks, mean"]
        assert len(means) == 2, "the losses of single steps behind their running means"
        assert "Over the last 10 steps, the mean loss falls on 3 of 4 tasks, and not on" in words(at)
        assert [button for button in at.button if button.label == ("Pause" if state == "running" else "Resume")]


def test_a_run_that_learned_nothing_says_so_and_offers_one_that_did(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=run_of(learned, "ties"))
    assert "learned nothing" in words(at)
    at = next(button for button in at.button if button.label.startswith("Show ")).click().run()
    assert chart_keys(at) == ["coefficient_steps"]  # of the first one by title


def run_of(folder: Path, *chain: str) -> str:
    return next(
        run.id
        for run in Store(libraries=(folder / "runs",)).list_runs()
        if run.chain == chain and run.id not in learned_runs.TITLES
    )


@pytest.mark.full
def test_the_library_has_learned_runs_beside_those_with_coefficients_of_another_kind(open_app: Any) -> None:
    learned, computed = (
        next(run.id for run in Store(libraries=(settings.LIBRARY_FOLDER,)).list_runs() if run.title == title)
        for title in ("LW AdaMerging", "Model Stock, across tasks")
    )
    at = open_app(
        "learning",
        settings.BUNDLED_FOLDER,
        run=learned,
        learning_view="coefficients",
        learning_step="120",
        tensor="visual.proj",
    )
    assert not at.exception and not at.error
    assert chart_keys(at) == ["coefficient_map", "coefficient_steps", "coefficient_sums"]
    assert "learned nothing" in words(open_app("learning", settings.BUNDLED_FOLDER, run=computed))


def test_without_any_learned_run_the_page_says_what_it_would_show(look: Any, library: Path) -> None:
    at = look("learning", library)
    assert not at.exception
    assert charts(at) == 0
    assert "No run has learned anything yet" in words(at)


def test_a_link_to_a_run_that_is_not_here(look: Any, learned: Path) -> None:
    at = look("learning", learned, run="000000000000", step="7", learning_view="EVIL")
    assert not at.exception
    assert "does not have" in words(at)


# Measurements


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A library with a run that learned coefficients and has a router, with everything measured; and the run's id."""
    folder = tiny_library.write(tmp_path_factory.mktemp("measured"), ())
    benchmark, making = Benchmark.load(folder), Store(folder / "more", libraries=(), dated=False)
    recipe = Recipe.build(
        "adamerging", {"steps": 12}, [("trim", {"density": 0.2})], benchmark.pretrained, benchmark.experts,
        adapt=("twin", {"steps": 5}),
    )  # fmt: skip
    run = execute.execute(recipe, making, benchmark=benchmark, context=Context(device="cpu"))
    for key in ("along_steps", "modules"):
        measure(key, making, benchmark, run.id, context=Context(device="cpu"))
    shutil.copytree(run.path, folder / "runs" / run.id)
    (folder / "more" / FOLDER).rename(folder / FOLDER)
    return folder, run.id


@pytest.mark.full
def test_entropy_stands_against_loss_with_the_authors_log_behind(look: Any, measured: Any) -> None:
    at = look("learning", measured[0], run=measured[1], learning_view="loss and gain")
    assert not at.exception
    assert chart_keys(at) == ["learning_loss", "entropy_loss", "accuracy_steps"]
    shown = words(at)
    assert "sampled from the choosing half with seed 0, at 3 steps" in shown and "on CPU" in shown
    assert "The merge learned from images of this half" in shown and "Adapted on these images" not in shown
    assert "no task on which the loss rises" in shown or "Entropy still falls while the loss" in shown
    assert "LW AdaMerging++, step 500" in chart_specs(at)[2]
    assert "the authors' log of the same chain" in shown


def test_modules_are_shown_on_images_that_they_did_not_learn_from(open_app: Any, measured: Any) -> None:
    at = open_app("learning", measured[0], run=measured[1], learning_view="modules")
    assert not at.exception
    assert "of the reporting half" in words(at) and "below the line" in words(at)
    oracle = at.dataframe[0].value
    assert list(oracle.columns) == ["Task", "Merged model", "Routed", "True task's vector", "Expert"]
    assert oracle["Task"][0] == "Mean" and len(oracle) == 1 + 4
    assert "It is not a score" in words(at)
    unseen = next(task.key for task in Benchmark.load(measured[0]).tasks if not task.has_expert)
    at = at.selectbox(key="routed_data_set").select(unseen).run()
    at = at.segmented_control(key=f"asked_{measured[1]}").set_value("the images that the run learned from").run()
    assert "of the images that the run learned from" in words(at) and "below the line" not in words(at)


def test_what_is_not_measured_is_offered(look: Any, learned: Path) -> None:
    at = look("learning", learned, run=learned_runs.LAYERWISE, learning_view="loss and gain")
    assert "about six of the steps" in words(at)
    assert at.button(key="measure_along_steps")
    at = look("learning", learned, run=learned_runs.MODULES, learning_view="modules")
    assert at.button(key="measure_modules") and "unseen data sets" not in words(at)


@pytest.mark.full
def test_a_router_that_learns_nothing_is_shown_once_it_is_measured_with_unseen_sets_below(
    open_app: Any, tmp_path: Path
) -> None:
    folder = tiny_library.write(tmp_path / "library", ())
    benchmark, making = Benchmark.load(folder), Store(folder / "more", libraries=(), dated=False)
    recipe = Recipe.build("tsv_m", {}, [], benchmark.pretrained, benchmark.experts, adapt=("mass", {}))
    run = execute.execute(recipe, making, benchmark=benchmark, context=Context(device="cpu"))
    shutil.copytree(run.path, folder / "runs" / run.id)
    at = open_app("learning", folder, run=run.id)
    assert not at.exception and chart_keys(at) == []
    assert at.button(key="measure_modules") and "The routing of the images to report on" in words(at)
    measure("modules", making, benchmark, run.id, context=Context(device="cpu"))
    (folder / "more" / FOLDER).rename(folder / FOLDER)
    at = open_app("learning", folder, run=run.id)
    assert not at.exception and chart_keys(at)[0] == "router_confusion"
    unseen = [task.title for task in benchmark.tasks if not task.has_expert]
    assert unseen and all(title in chart_specs(at)[0] for title in unseen)
    assert "of the reporting half" in words(at) and "below the line" in words(at)
    assert not [one for one in at.segmented_control if one.key == f"asked_{run.id}"]


# Marks beside scores


@pytest.mark.full
def test_scores_mark_what_adapted_on_the_scored_images_and_what_needs_each_images_task(
    look: Any, learned: Path
) -> None:
    shown = ",".join((learned_runs.LAYERWISE, learned_runs.MODULES, learned_runs.ROUTED))
    at = look("scores", learned, runs=shown)
    assert not at.exception
    assert "† Adapted on these images" in words(at) and "Marked ‡. Per task in domain" in words(at)
    plane, tasks = map(json.loads, chart_specs(at)[:2])
    names = {trace["name"] for trace in plane["data"]}
    assert {"Merge that adapts on test data †", "Merge with a module per task ‡ †"} <= names
    assert "Modules for tasks † (a module per task)" in {trace["name"] for trace in tasks["data"]}
    table = at.dataframe[0].value.set_index("run")
    assert table.loc[learned_runs.LAYERWISE, "label"] == "Learned by tensor †"
    assert table.loc[learned_runs.MODULES, "kind"] == "a module per task ‡"
    assert "†" not in table.loc[learned_runs.ROUTED, "label"]


def test_features_out_of_domain_are_said_to_have_no_module(look: Any, learned: Path) -> None:
    for run, said in ((learned_runs.MODULES, True), (learned_runs.LAYERWISE, False)):
        at = look("features", learned, runs=run)
        assert not at.exception
        assert ("are the merged model's own" in words(at)) is said


def test_compare_and_home_carry_the_marks(look: Any, learned: Path) -> None:
    at = look("compare", learned, run=learned_runs.LAYERWISE, run_b=learned_runs.MODULES)
    assert not at.exception
    assert "† Adapted on these images" in words(at) and "Per task in domain" in words(at)
    at = look("home", learned)
    assert ADAPTS_ON_TEST in words(at) and f"Marked ‡. {TASK_KNOWN}" in words(at)
    titles = list(at.dataframe[0].value["title"])
    assert any(title.endswith(" †") for title in titles) and any("(a module per task) ‡" in title for title in titles)


@pytest.mark.full
def test_what_authors_logged_of_surgery_stands_behind_both_ends_of_ours(open_app: Any) -> None:
    runs = {run.title: run.id for run in Store(libraries=(settings.LIBRARY_FOLDER,)).list_runs()}
    at = open_app("learning", settings.BUNDLED_FOLDER, run=runs["Surgery Merging"], learning_view="loss and gain")
    assert not at.exception
    assert chart_keys(at) == ["learning_loss", "accuracy_steps", "learning_arrows"]
    assert "scored only at both ends" in words(at) and "log of" in chart_specs(at)[1]
    other = open_app("learning", settings.BUNDLED_FOLDER, run=runs["Surgery & TATR"], learning_view="loss and gain")
    assert "accuracy_steps" not in chart_keys(other)
