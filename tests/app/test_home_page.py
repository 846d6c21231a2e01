"""Home's list when there are many runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_library
from page_harness import press, words
from streamlit.testing.v1 import AppTest

from app.views.runs import run_order
from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs import execute
from merging.study.runs.run_store import Store


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of thirteen runs on the tiny benchmark."""
    folder = tiny_library.write(tmp_path_factory.mktemp("many"))
    benchmark = Benchmark.load(folder)
    making = Store(folder / "making", libraries=(), dated=False)
    for number in range(9):
        recipe = Recipe.build(
            "task_arithmetic",
            {"scaling": 0.01 + number / 10},
            [],
            benchmark.pretrained,
            benchmark.experts,
            f"Sum {number}",
        )
        made = execute.execute(recipe, making, benchmark=benchmark, keep_model=False)
        made.path.rename(folder / "runs" / made.id)
    return folder


def listed(at: AppTest) -> list[str]:
    """Titles in Home's list."""
    return [str(line.value).split("**")[1] for line in at.markdown if ":small[:gray[" in str(line.value)]


def test_home_shows_a_page_of_many_runs(open_app: Any, many: Path) -> None:
    at = open_app("home", many)
    assert not at.exception
    assert len(listed(at)) == 10
    assert "1 to 10 of 13 runs" in words(at)


def test_home_finds_and_orders_runs(open_app: Any, many: Path) -> None:
    at = open_app("home", many)
    at.text_input(key="find_run").set_value("lwptv task").run()
    assert listed(at) == ["Task Arithmetic w/ LwPTV"] or listed(at) == [r"Task Arithmetic w\/ LwPTV"]
    at.text_input(key="find_run").set_value("no such run").run()
    assert "No run has all of these words" in at.info[0].value
    at.text_input(key="find_run").set_value("sum").run()
    assert len(listed(at)) == 10 and listed(at)[0].startswith("TIES")  # the one that sums, beside those called Sum
    at.selectbox(key="order_by").select("H-score").run()
    shown = [float(str(m.value)[:-1]) for m in at.markdown if str(m.value).endswith("%")][2::3]
    assert shown == sorted(shown, reverse=True)
    assert not at.exception


def test_a_click_on_a_scores_head_puts_the_best_first_and_another_one_takes_that_back(
    open_app: Any, many: Path
) -> None:
    at = open_app("home", many)
    before = listed(at)
    for head, order in (("H-score", "H-score"), ("Out", "out-of-domain"), ("In", "in-domain")):
        press(at, head)
        assert not at.exception and at.selectbox(key="order_by").value == order
        scores = [float(line.value.rstrip("%")) for line in at.markdown if str(line.value).endswith("%")]
        column = scores[["In", "Out", "H-score"].index(head) :: 3]
        assert len(column) == 10 and column == sorted(column, reverse=True)
    press(at, "In ↓")
    assert listed(at) == before and at.selectbox(key="order_by").value == "own runs first"


def test_names_that_differ_by_capitals_alone_say_what_they_merge(open_app: Any) -> None:
    at = open_app("home", settings.BUNDLED_FOLDER)
    shown = [name.replace("\\", "") for name in listed(at)]
    assert shown[2:4] == ["TIES (sum, λ 0.3)", "TIES-Merging (mean, λ 1)"] and "Ties" not in shown


def test_home_has_no_controls_for_a_few_runs(open_app: Any, library: Path) -> None:
    at = open_app("home", library)
    assert not at.text_input
    assert len(listed(at)) == 4


def test_own_runs_can_be_listed_alone(open_app: Any, many: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(many)
    recipe = Recipe.build("ties", {"density": 0.9}, [], benchmark.pretrained, benchmark.experts, "Mine")
    execute.execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, keep_model=False)
    at = open_app("home", many)
    assert listed(at)[0] == "Mine"
    at.button_group(key="runs_from").set_value("this machine").run()
    assert listed(at) == ["Mine"]
    at.button_group(key="runs_from").set_value("library").run()
    assert "Mine" not in listed(at)
    assert not at.exception


def test_runs_without_scores_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"bad": 0.1, "good": 0.9, "empty": float("nan")}

    def summary(name: Any, stored: object) -> SimpleNamespace | None:
        return SimpleNamespace(h_score=scores[name]) if name in scores else None

    monkeypatch.setattr(run_order.page_data, "summary", summary)
    names: Any = ["none", "bad", "empty", "good"]
    assert run_order.sort_runs(names, "H-score", []) == ["good", "bad", "none", "empty"]
    assert run_order.sort_runs(names, "own runs first", []) == names
