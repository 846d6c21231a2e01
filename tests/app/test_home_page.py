"""Home's list when there are many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tiny_library
from models_page import open_run, table
from page_harness import words
from streamlit.testing.v1 import AppTest

from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep_session import plan_sweep
from merging.study.sweeps.sweep_storage import list_sweeps


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
    """Names in Home's list."""
    return list(table(at)["title"])


def test_home_lists_all_runs_with_numbers_that_sort_and_a_picture_each(open_app: Any, many: Path) -> None:
    at = open_app("home", many)
    rows = table(at)
    assert not at.exception and len(rows) == 13 and rows["title"].is_unique
    assert {str(rows[name].dtype) for name in ("in", "out", "h")} == {"float64"} and rows["h"].between(0, 100).all()
    assert rows["plane"].str.startswith("data:image/svg+xml").all() and rows["n"].str.contains(" in, ").all()


def test_home_finds_and_filters_runs(open_app: Any, many: Path) -> None:
    at = open_app("home", many)
    at.text_input(key="home_words").set_value("lwptv task").run()
    assert listed(at) == ["Task Arithmetic w/ LwPTV"] and "1 of 13 runs." in words(at)
    at.text_input(key="home_words").set_value("no such run").run()
    assert not at.exception and not at.dataframe and "0 of 13 runs." in words(at)
    at.text_input(key="home_words").set_value("")
    at.multiselect(key="home_methods").set_value(["TIES"]).run()
    assert [name.split()[0] for name in listed(at)] == ["TIES"]


@pytest.mark.parametrize(("page", "query"), [("home", {}), ("models", {"models_view": "runs"})])
def test_a_click_on_a_name_opens_the_page_of_that_run(
    open_app: Any, many: Path, page: str, query: dict[str, str]
) -> None:
    at = open_app(page, many, **query)
    row = table(at).iloc[5]
    open_run(at, row["title"])
    assert not at.exception and at.title[0].value == "Run"
    assert at.query_params["run"] in (row["id"], [row["id"]])


def test_a_name_is_text_and_no_icon(open_app: Any, library: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(library)
    name = ":material/delete: **x** <b>"
    recipe = Recipe.build("ties", {"density": 0.9}, [], benchmark.pretrained, benchmark.experts, name)
    run = execute.execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, keep_model=False)
    at = open_app("home", library)
    assert listed(at)[0] == ": material/delete: **x** <b>"
    assert at.query_params.get("run") is None and open_run(at, listed(at)[0]).query_params["run"] in (run.id, [run.id])


@pytest.mark.full
def test_names_that_differ_by_capitals_alone_say_what_they_merge(open_app: Any) -> None:
    at = open_app("home", settings.BUNDLED_FOLDER)
    shown = listed(at)
    assert shown[2:4] == ["TIES (sum, λ 0.3)", "TIES-Merging (mean, λ 1)"] and "Ties" not in shown


def test_home_has_no_filters_for_a_few_runs(open_app: Any, library: Path) -> None:
    at = open_app("home", library)
    assert not at.text_input
    assert len(listed(at)) == 4


def test_own_runs_can_be_listed_alone(open_app: Any, many: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(many)
    recipe = Recipe.build("ties", {"density": 0.9}, [], benchmark.pretrained, benchmark.experts, "Mine")
    execute.execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, keep_model=False)
    at = open_app("home", many)
    assert listed(at)[0] == "Mine"
    at.multiselect(key="home_origins").set_value(["this machine"]).run()
    assert listed(at) == ["Mine"]
    at.multiselect(key="home_origins").set_value(["library"]).run()
    assert "Mine" not in listed(at)
    assert not at.exception


RATIO = "lwptv.prune_ratio"


@pytest.mark.full
def test_sliders_are_answered_from_the_stored_grid(open_app: Any) -> None:
    at = open_app("home", settings.BUNDLED_FOLDER)
    scaling = at.select_slider(key="first_value_task_arithmetic.scaling")
    assert scaling.value == 0.3 and "49 merges are stored" in words(at)
    scaling.set_value(0.5).run()
    benchmark, store = Benchmark.load(settings.BUNDLED_FOLDER), Store(libraries=(settings.LIBRARY_FOLDER,))
    (grid,) = (sweep for sweep in list_sweeps(store).values() if sweep.axes[0].target == RATIO and len(sweep.axes) == 2)
    (name,) = (one.name for one in plan_sweep(grid, benchmark) if one.point.values == (0.7, 0.5))
    (table,) = (settings.BUNDLED_FOLDER / "points" / name).glob("scores.csv*")  # packed if it is long
    scores = pd.read_csv(table).set_index("task")["accuracy"]
    is_inside = scores.index.isin(list(benchmark.experts))
    for mean in (scores[is_inside].mean(), scores[~is_inside].mean()):
        assert f"**{100 * mean:.1f}%**" in words(at)
