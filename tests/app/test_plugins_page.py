"""The plug-in matrix and the ablations on Scores: full, empty, with bad links, and what is still to be computed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import tiny_library
from page_harness import charts, run_until_idle, words
from stand_in_jobs import SLEEP
from streamlit.testing.v1 import AppTest

from app import page_text
from app.reading import page_data
from merging.base.errors import MergingError
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset, list_bases
from merging.recipes.recipe import Recipe
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue.job_records import JobFiles

MATRIX, ABLATIONS = "plug-in matrix", "ablations"


@pytest.fixture(scope="module")
def rivals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with two rivals of LwPTV on task arithmetic, one of which is an edit that a merge refuses."""
    keys = ("task_arithmetic_lwptv", "magnitude", "task_arithmetic_dare")
    return tiny_library.write(tmp_path_factory.mktemp("rivals"), keys)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that are queued from now on; nothing is computed."""
    found: list[Recipe] = []
    monkeypatch.setattr("merging.study.run_queue.RunQueue.submit", lambda self, recipe, *_, **__: found.append(recipe))
    return found


def compute(at: AppTest, key: str) -> AppTest:
    return at.button(key=f"compute_{key}").click().run()


@pytest.mark.parametrize("show", [MATRIX, ABLATIONS])
def test_a_view_without_runs_leads_to_merge(look: Any, tiny_folder: Path, show: str) -> None:
    at = look("scores", tiny_folder, scores_view=show)
    assert not at.exception
    assert charts(at) == 0
    assert "No run has been evaluated yet" in words(at)


def test_the_matrix_draws_the_pairs_and_their_numbers(look: Any, library: Path) -> None:
    at = look("scores", library, scores_view=MATRIX)
    assert not at.exception and not at.error and not at.warning
    assert charts(at) == 1
    table = at.dataframe[0].value
    assert table["", "Merge"].tolist() == ["Task Arithmetic"]
    for title in ("In-domain", "Out-of-domain", "H-score"):
        plain, plugged, change = (float(table[title, name][0]) for name in ("Plain", "With it", "Change"))
        assert plugged - plain == pytest.approx(change)
    assert " to " in table["In-domain, 95%", "With it"][0] and table["Out-of-domain, 95%", "Images"][0] > 0
    assert " of 1 merge does not drop" in words(at)
    assert tiny_library.NASTY not in words(at)  # its chain is a preset's, whose name is shown


@pytest.mark.full
def test_what_the_matrix_lacks_is_named_and_queued(open_app: Any, library: Path, submitted: list[Recipe]) -> None:
    at = open_app("scores", library, scores_view=MATRIX)
    said = words(at)
    assert "Not computed yet" in said and "About **" in said
    lacking = [base.title for base in list_bases("lwptv") if base.key != "task_arithmetic"]
    assert all(page_text.safe_text(f"{title} w/ LwPTV") in said for title in lacking)
    compute(at, "plugin")
    assert not at.exception and not at.error
    titles = [recipe.title for recipe in submitted]
    assert {f"{title} w/ LwPTV" for title in lacking} <= set(titles) and "Weight Averaging" not in titles
    assert all([name for name, _ in recipe.experts] == list(page_data.models()[1]) for recipe in submitted)


@pytest.mark.full
def test_a_recipe_that_cannot_be_queued_says_why(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MergingError("The disk is *full*.")

    at = open_app("scores", library, scores_view=MATRIX)
    monkeypatch.setattr("merging.study.run_queue.RunQueue.submit", refuse)
    compute(at, "plugin")
    assert not at.exception
    assert at.error[0].value == "The disk is \\*full\\*\\."


def sleeping(files: JobFiles, *_: object) -> subprocess.Popen[bytes]:
    """A child that does nothing for a minute."""
    return subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)


@pytest.mark.full
def test_queued_recipes_are_not_offered_again(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_app("scores", library, scores_view=ABLATIONS)
    monkeypatch.setattr(JobFiles, "start", sleeping)  # nothing gets done
    compute(at, "ablations")
    assert "In the queue" in words(at)
    assert "Not computed yet" not in words(at)
    at.button(key="stop_ablations").click().run()
    run_until_idle(at)
    assert {job.state for job in page_data.job_queue().list_jobs()} == {"cancelled"}
    assert "Not computed yet" in words(at)


@pytest.mark.full
def test_a_merge_with_which_the_edit_makes_no_sense_says_why(open_app: Any, rivals: Path) -> None:
    at = open_app("scores", rivals, scores_view=MATRIX, edit="dare")
    assert not at.exception and not at.warning
    assert "**Model Stock, across tasks**" in words(at) and "are random after" in words(at)
    assert at.query_params["edit"] == "dare"
    first, *others = at.selectbox(key="plugin_front").options
    assert first == "LwPTV (prune ratio 0.7)" and "DARE (drop rate 0.5, seed 0)" in others
    at.selectbox(key="plugin_front").select("magnitude").run()
    assert at.query_params["edit"] == "magnitude"
    assert "With **Magnitude" in words(at)


@pytest.mark.parametrize(
    "query",
    [
        {"edit": "no_such_edit"},
        {"edit": "<img src=x>;**b**"},
        {"expert_group": "nobody", "scores_view": MATRIX},
    ],
)
def test_the_matrix_survives_a_bad_link(look: Any, library: Path, query: dict[str, str]) -> None:
    at = look("scores", library, **({"scores_view": MATRIX} | query))
    assert not at.exception and not at.error
    assert charts(at) == 1
    assert len(at.warning) == ("edit" in query)
    assert "<img" not in words(at).replace("\\<img", "")


def test_the_card_of_the_edit_leads_to_the_matrix(look: Any, library: Path) -> None:
    at = look("methods", library, method="lwptv")
    (door,) = (link for link in at.get("page_link") if link.proto.label == "In front of every merge")
    assert parse_qs(door.proto.query_string) == {"scores_view": [MATRIX]}
    at = look("methods", library, method="dare")
    assert not [link for link in at.get("page_link") if link.proto.label == "In front of every merge"]


def test_an_unknown_view_shows_the_runs(look: Any, library: Path) -> None:
    at = look("scores", library, scores_view="EVIL")
    assert not at.exception
    assert at.multiselect(key="compare").value


@pytest.mark.full
def test_the_experts_can_be_chosen_where_runs_merged_others(open_app: Any, library: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(library)
    few = {name: benchmark.experts[name] for name in list(benchmark.experts)[:2]}
    own = Store(tmp_path / "store", libraries=(library / "runs",))
    for key in ("ties", "ties_lwptv"):
        recipe = find_preset(key).recipe(benchmark.pretrained, few)
        execute.execute(recipe, own, benchmark=benchmark, keep_model=False, context=Context(device="cpu"))
    at = open_app("scores", library, scores_view=MATRIX)
    assert at.dataframe[0].value["", "Merge"].tolist() == ["Task Arithmetic"]
    picker = at.selectbox(key="expert_group")
    assert [option.split(":")[0] for option in picker.options] == ["4 experts", "2 experts"]
    picker.select(picker.options[1]).run()
    assert not at.exception
    assert at.dataframe[0].value["", "Merge"].tolist() == ["TIES (sum, λ 0.3)"]
    assert "◇ published, ViT-B/32" in at.dataframe[0].value.columns.get_level_values(0)


def test_the_ablations_show_ours_beside_the_papers(look: Any, library: Path) -> None:
    at = look("scores", library, scores_view=ABLATIONS)
    assert not at.exception and not at.error
    assert charts(at) == 2
    means, inside, outside, printed, printed_outside = (table.value for table in at.dataframe)
    rows = means.set_index(("", "Chain"))
    whole = rows.loc["LwPTV"]
    assert whole["◇ published, ViT-B/32", "In"] == "72.8%" and whole["● measured here", "In"].endswith("%")
    assert whole["● measured here", "H, change"] and not rows.loc["Task Arithmetic"]["● measured here", "H, change"]
    assert rows.loc["Model Stock, paper"]["◇ published, ViT-B/32", "Out"] == "58.7%"
    assert inside["Merge"].tolist() == outside["Merge"].tolist() == ["Task Arithmetic", "LwPTV"]
    assert list(inside.columns[1:]) == ["Mean", *inside.columns[2:]] and len(inside.columns) == 6
    assert printed.shape == (12, 11) and printed_outside.shape == (12, 16)
    assert "without OR" in words(at).split("Not computed yet")[1]
    (door,) = (link for link in at.page_link if "Saliency by kind" in link.label)
    assert "features_view=saliency+by+layer+kind" in door.proto.query_string and "runs=" in door.proto.query_string


@pytest.mark.full
def test_the_ablations_can_show_intervals_and_a_variant(open_app: Any, rivals: Path) -> None:
    at = open_app("scores", rivals, scores_view=ABLATIONS, intervals="true", variant="nothing")
    assert not at.exception
    assert at.selectbox(key="variant").value == "DARE"
    inside = at.dataframe[1].value
    assert len(inside) == 4 and " to " in inside[inside.columns[2]][0]
    at.toggle(key="intervals").set_value(False).run()
    assert not at.exception
    assert at.dataframe[1].value["Mean"].dtype == float
