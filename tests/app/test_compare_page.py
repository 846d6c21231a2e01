"""The Compare page: its pickers and links, recipes side by side, and scores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_library
from compared_runs import CAT, EMR, FEW, LWPTV, TIES, link_to_both, read_warnings
from page_harness import charts, press, runs, words

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store

# Pickers


def test_without_b_the_nearest_run_is_shown_and_others_are_suggested(open_app: Any, compared: Path) -> None:
    a = runs(compared)[TIES]
    at = open_app("compare", compared, run=a.id)
    assert not at.exception
    assert charts(at) == 1
    assert at.selectbox(key="other").value == runs(compared)[tiny_library.NASTY].id  # by another merge alone
    assert "run_b" not in at.query_params  # not chosen: another page does not show it
    offers = [button for button in at.button if button.label == "Compare"]
    assert len(offers) == 3
    assert FEW not in words(at) and "Adds " in words(at)
    offers[1].click().run()
    assert not at.exception
    assert charts(at) == 1
    assert not [button for button in at.button if button.label == "Compare"]
    assert at.query_params["run"] == a.id
    assert at.query_params["run_b"] == at.selectbox(key="other").value


def test_swap_exchanges_the_two(open_app: Any, compared: Path) -> None:
    link = link_to_both(compared)
    at = open_app("compare", compared, **link)
    table = at.dataframe[0].value
    next(button for button in at.button if "Swap" in button.label).click().run()
    assert not at.exception
    assert (at.selectbox(key="picker").value, at.selectbox(key="other").value) == (link["run_b"], link["run"])
    assert at.query_params["run_b"] == link["run"]
    turned = at.dataframe[0].value
    assert turned.set_index("title")["difference"].to_dict() == pytest.approx(
        (-table.set_index("title")["difference"]).to_dict()
    )


def test_a_link_restores_both_runs_and_the_view(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared), compare_view="charts", chart="layer-isolated drift")
    assert not at.exception
    assert at.selectbox(key="chart").value == "layer-isolated drift"
    at = open_app(
        "compare",
        compared,
        **link_to_both(compared),
        compare_view="images",
        compared_data_sets="Tiles",
        right_runs="both wrong",
    )
    assert (at.selectbox(key="compared_data_sets").value, at.button_group(key="right_runs").value) == (
        "Tiles",
        "both wrong",
    )


BAD_LINKS = [
    ({"run_b": "000000000000"}, "which this machine does not have"),
    ({"run": "../../etc/passwd"}, "which this machine does not have"),
    ({"compare_view": "nowhere"}, "What was done differently"),
    ({"compare_view": "charts", "chart": "x"}, "of each tensor's scalars"),
    ({"compare_view": "images", "compared_data_sets": "x", "right_runs": "y"}, "McNemar"),
]


@pytest.mark.parametrize(("query", "says"), BAD_LINKS)
def test_bad_links_show_something_sensible(look: Any, compared: Path, query: dict[str, str], says: str) -> None:
    at = look("compare", compared, **(link_to_both(compared) | query))
    assert not at.exception
    assert says in words(at)


def test_a_missing_b_can_be_left_behind_without_a(open_app: Any, compared: Path) -> None:
    a = runs(compared)[EMR].id
    at = open_app("compare", compared, run=a, run_b="000000000000")
    press(at, "Show an available run")
    assert not at.exception
    assert at.selectbox(key="picker").value == a
    assert "first of the runs on the same experts" in words(at)


def test_without_runs(look: Any, tiny_folder: Path) -> None:
    at = look("compare", tiny_folder)
    assert not at.exception
    assert "There is no run yet" in words(at)


def test_names_of_anybodys_are_text(look: Any, compared: Path) -> None:
    at = look("compare", compared, **link_to_both(compared, tiny_library.NASTY, TIES))
    assert not at.exception
    assert "<img" not in words(at).replace("\\<img", "")


# Recipes and scores


def test_only_differing_lines_are_shown(look: Any, compared: Path) -> None:
    at = look("compare", compared, **link_to_both(compared))
    lines = at.table[0].value
    assert list(lines["Step"]) == ["Edit", "Merge"]
    at = look("compare", compared, **link_to_both(compared, TIES, TIES))
    assert not at.exception
    assert "A and B are the same run" in words(at) and "Nothing. The recipes" in words(at)
    assert not at.dataframe[0].value["difference"].any()


def test_scores_are_those_of_the_scores_page(look: Any, compared: Path) -> None:
    at = look("compare", compared, **link_to_both(compared))
    assert not at.exception
    assert charts(at) == 1
    table = at.dataframe[0].value.set_index("title")
    assert {"Mean in domain", "Mean out of domain", "H-score"} <= set(table.index)
    for side, title in (("score_a", TIES), ("score_b", LWPTV)):
        scores = runs(compared)[title].scores
        assert scores is not None
        for row in scores[scores["split"] == "reporting"].to_dict("records"):
            assert table.loc[row["title"], side].startswith(f"{row['accuracy']:.1%} (")
    assert (table["interval"] != "—").all()
    assert "seed 0" in words(at)


def test_scores_without_answers_have_no_intervals(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared, CAT, TIES))
    assert not at.exception
    assert charts(at) == 1
    assert (at.dataframe[0].value["interval"] == "—").all()
    assert f"These are not stored for **{CAT}**: its scores come from elsewhere" in words(at)


def test_runs_on_other_experts_say_what_does_not_compare(look: Any, compared: Path) -> None:
    at = look("compare", compared, **link_to_both(compared, TIES, FEW))
    assert not at.exception
    assert "They merge different experts, 3 of which both merge" in read_warnings(at)
    assert "so n is the same for A and B" in words(at)
    table = at.dataframe[0].value
    assert "H-score" not in set(table["title"]) and "Mean in domain of both" in set(table["title"])
    assert list(table[table["group"] == "In domain of A only"]["title"]) == ["Leaves"]


def test_one_model_per_task_is_said_to_be_another_thing(look: Any, compared: Path) -> None:
    at = look("compare", compared, **link_to_both(compared, TIES, EMR))
    assert not at.exception
    assert "One model per task: it can only be used if" in read_warnings(at)
    table = at.dataframe[0].value.set_index("title")
    scores = runs(compared)[EMR].scores
    assert scores is not None
    for row in scores[scores["split"] == "reporting"].to_dict("records"):
        assert table.loc[row["title"], "score_b"].startswith(f"{row['accuracy']:.1%} (")


def test_a_run_of_another_version_of_the_benchmark(open_app: Any, compared: Path, tmp_path: Path) -> None:
    """What is stored on two of them is never set side by side."""
    folder = tmp_path / "other"
    shutil.copytree(compared, folder)
    (folder / "tasks.json").write_text((folder / "tasks.json").read_text() + "\n")
    store, benchmark = Store(folder / "more2", libraries=(), dated=False), Benchmark.load(folder)
    run = execute(find_preset("pcb").recipe(benchmark.pretrained, benchmark.experts), store, benchmark=benchmark)
    shutil.copytree(run.path, folder / "runs" / run.id)
    at = open_app("compare", folder, run=run.id, run_b=runs(folder)[TIES].id)
    assert not at.exception
    assert run.id in read_warnings(at) and "another benchmark" in read_warnings(at)
    assert charts(at) == 0
