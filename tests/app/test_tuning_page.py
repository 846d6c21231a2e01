"""A tuning on the Sweeps page: the form, its charts, the best on the other half, and the chosen point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from page_harness import charts, words
from swept_library import picker

from app.reading import page_data
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.run_store import Store
from merging.study.tuning.tuning import Tuning, list_tunings, store_tuning
from merging.study.tuning.tuning_session import run_tuning
from merging.tasks.context import Context

SPACE = (("edits", "none|lwptv"), ("task_arithmetic.scaling", "0:1.5"), ("lwptv.prune_ratio", ""))


def tune_library(folder: Path, store: Path, compute: int = 1000, **said: Any) -> Tuning:
    """A tuning of the library's benchmark in a store, with so many of its points."""
    benchmark, own = Benchmark.load(folder), Store(store, libraries=(folder / "runs",))
    recipe = find_preset("task_arithmetic_lwptv").recipe(benchmark.pretrained, benchmark.experts)
    made = Tuning(**{"recipe": recipe, "space": SPACE, "points": 5, "images": 8} | said)
    store_tuning(made, own)
    asked = iter(range(10_000))
    run_tuning(made, own, benchmark, context=Context("cpu", pause=lambda: next(asked) >= compute))
    return made


def choose_tuning(open_app: Any, library: Path) -> Any:
    at = open_app("sweeps", library)
    at.multiselect(key="sweep_recipes").set_value(["task_arithmetic_lwptv"]).run()
    at.button_group(key="sweep_kind").set_value("tune").run()
    return at


def test_the_form_starts_a_tuning(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    at = choose_tuning(open_app, library)
    monkeypatch.setattr(type(page_data.job_queue()), "tune", lambda self, *said: started.append(said))
    assert not at.exception and not at.error
    assert "180 points" in words(at) and "can be paused" in words(at)
    at.multiselect(key="tune_space").set_value(["task_arithmetic.scaling", "coefficients"]).run()
    at.text_input(key="tune_values task_arithmetic.scaling").set_value("0:1.5").run()
    at.number_input(key="tune_budget 0").set_value(20).run()
    assert not at.error and "60 points" in words(at)
    at.button(key="tune_start").click().run()
    ((tuning, made),) = list_tunings(Store(tmp_path / "store", libraries=())).items()
    assert started[0][0] == tuning and started[0][1].startswith("Best values of")
    assert made.space == (("task_arithmetic.scaling", "0:1.5"), ("coefficients", "")) and made.points == 20
    assert at.query_params["sweep"] == tuning and "No point is computed yet" in words(at)
    at.button(key="tuning_resume").click().run()
    assert len(started) == 2


def test_the_form_says_what_is_wrong(open_app: Any, library: Path) -> None:
    at = choose_tuning(open_app, library)
    at.text_input(key="tune_values lwptv.prune_ratio").set_value("0:3").run()
    assert "must be a number in" in at.error[0].value
    at.text_input(key="tune_values lwptv.prune_ratio").set_value("").run()
    at.selectbox(key="tune_sampler").set_value("cmaes").run()
    assert "cmaes moves at least two numbers" in at.error[0].value
    at.multiselect(key="tune_space").set_value([]).run()
    assert "The space is empty" in at.error[0].value
    assert not [button for button in at.button if button.key == "tune_start"]


def test_without_optuna_the_page_names_the_extra(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    at = choose_tuning(open_app, library)
    assert "Tuning needs optuna" in at.error[0].value and not at.exception


@pytest.mark.full
def test_a_whole_tuning(open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tune_library(library, tmp_path / "store")
    at = open_app("sweeps", library, sweep=made.id)
    assert not at.exception and not at.error and not at.warning
    assert charts(at) == 4  # one objective has no front
    assert "complete" in str([one.proto.text for one in at.get("progress")])
    assert "The best point of the tuning." in words(at) and "too high" in words(at)
    chosen = picker(at, "chosen_trial")
    best = chosen.value
    chosen.select(next(option for option in chosen.options if option.startswith("Grid"))).run()
    assert not at.exception and at.button(key="show_best") and len(at.query_params["point"]) == 12
    submitted = []
    monkeypatch.setattr(type(page_data.job_queue()), "submit", lambda self, recipe: submitted.append(recipe))
    at.button(key="show_best").click().run()
    assert picker(at, "chosen_trial").value == best
    at.button(key="open_run").click().run()
    assert len(submitted) == 1 and submitted[0].merge.key == "task_arithmetic"


@pytest.mark.full
def test_a_front(open_app: Any, library: Path, tmp_path: Path) -> None:
    made = tune_library(library, tmp_path / "store", objectives=("in", "out", "worst"))
    at = open_app("sweeps", library, sweep=made.id)
    assert not at.exception and not at.error and charts(at) == 5
    assert "highest harmonic mean" in words(at)


def test_a_tuning_that_is_not_finished(open_app: Any, library: Path, tmp_path: Path) -> None:
    made = tune_library(library, tmp_path / "store", compute=3)
    at = open_app("sweeps", library, sweep=made.id)
    assert not at.exception and not at.error and charts(at) == 4
    assert "The best point of the tuning so far." in words(at) and at.button(key="tuning_resume")
    at.button(key="tuning_delete").click().run()
    assert not at.exception and not list_tunings(Store(tmp_path / "store", libraries=()))
