"""The Merge page: a recipe put together, run, watched, cancelled, and taken from text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_harness import find_buttons, named, open_page, press, run_until_idle, words
from stand_in_jobs import SLEEP
from streamlit.testing.v1 import AppTest

from app import page_text
from app.reading import page_data
from app.session.draft import parse_chain
from app.session.job_queue import SessionQueue
from merging.base import modes
from merging.recipes.presets import PRESETS
from merging.recipes.recipe import Exemplars, Recipe
from merging.tasks.queue.job_records import Job, JobFiles, State


def test_merging_shows_accuracy_and_links(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="lwptv:prune_ratio=0.4;task_arithmetic")
    assert at.slider[0].value == 0.4
    press(at, "Run")
    assert not at.exception
    assert "**Jobs**" in words(at)
    at = run_until_idle(at)
    accuracies = at.metric[:3]  # those of the preview follow
    assert [metric.label for metric in accuracies] == ["In-domain", "Out-of-domain", "H-score"]
    assert all(metric.value.endswith("%") for metric in accuracies)
    (job,) = page_data.job_queue().list_jobs()
    assert job.title == "LwPTV (prune ratio 0.4) → Task Arithmetic"
    assert page_data.store().get_run(job.subject).has_scores
    at.switch_page("screens/scores.py").run()
    assert job.subject in at.multiselect(key="compare").options or job.subject in at.multiselect(key="compare").value


@pytest.mark.full
def test_a_job_can_be_cancelled_and_dismissed(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="ties:density=0.37")
    press(at, "Run")
    press(at, "Cancel")
    at = run_until_idle(at)
    (job,) = page_data.job_queue().list_jobs()
    assert job.state == "cancelled"
    assert not page_data.store().has_run(job.subject)
    press(at, "Dismiss")
    assert not at.exception
    assert not page_data.job_queue().list_jobs()


@pytest.mark.full
def test_progress_stands_beside_run_also_after_a_reload(open_app: Any, library: Path) -> None:
    at = press(open_app("merge", library, chain="ties:density=0.43"), "Run")
    started = {"chain": "ties:density=0.43", "started": named(at, "started")[0]}
    assert [button.key.split("_")[1] for button in find_buttons(at, "Cancel")] == ["merge", "tray"]
    again = open_page("merge", started)
    assert not again.exception and f"cancel_merge_{started['started']}" in {button.key for button in again.button}
    again = run_until_idle(again)
    assert "is done" in words(again) and named(again, "run") == [started["started"]]  # taken in hand
    run_until_idle(at)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that several people share; its jobs do nothing until they are stopped."""

    def start(files: JobFiles, *_: object) -> subprocess.Popen[bytes]:
        with (files.folder / "log.txt").open("wb") as log:
            return subprocess.Popen([sys.executable, "-c", SLEEP], stdout=log, start_new_session=True)

    monkeypatch.setenv(modes.SHARED_VARIABLE, "1")
    monkeypatch.setattr(JobFiles, "start", start)


def follow_link(started: str) -> AppTest:
    """Merge in another session, opened by a link that names a started run."""
    return open_page("merge", {"started": started})


@pytest.mark.usefixtures("shared")
def test_a_link_shows_another_sessions_run_and_changes_nothing(open_app: Any, library: Path) -> None:
    at = press(open_app("merge", library, chain="ties:density=0.47"), "Run")
    (started,) = named(at, "started")
    runner = page_data.job_queue().runner
    runner.order_measurements(started, ["drift"], at.session_state["_session_name"])
    assert find_buttons(at.run(), "Do not measure it afterwards") and at.session_state["_watched"] == started
    other = follow_link(started)
    assert not other.exception and "density 0\\.47" in words(other)
    assert not find_buttons(other, "Do not measure it afterwards") and "_watched" not in other.session_state
    press(at, "Do not measure it afterwards")
    assert not runner.get(started).followed_by


@pytest.mark.usefixtures("shared")
def test_a_link_does_not_submit_the_merge_of_another_sessions_command(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_app("merge", library)
    submitted: list[Recipe] = []
    monkeypatch.setattr(SessionQueue, "submit", lambda _queue, recipe: submitted.append(recipe))
    command = Job("read-x", "Reading", State.DONE, kind="read", words=("digest",), recipe_yaml="merge: ties\n")
    monkeypatch.setattr(SessionQueue, "get", lambda _queue, _job_id: command)
    other = follow_link("read-x")
    assert not other.exception and not submitted and "Reading" in words(other)


@pytest.mark.full
def test_a_job_is_seen_in_another_tab(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="ties:density=0.41")
    press(at, "Run")
    other = open_page("home", {})
    assert "TIES" in words(other)
    assert "density 0\\.41" in words(other)
    press(other, "Cancel")
    run_until_idle(at)


@pytest.mark.full
def test_a_chain_that_needs_exemplars_can_be_run(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="exemplars:per_task=8,seed=3;lot")
    assert at.caption
    assert "Training images that the chain uses" in words(at)
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.error
    (job,) = page_data.job_queue().list_jobs()
    assert job.state == "done"
    recipe = page_data.store().get_run(job.subject).recipe
    assert recipe is not None
    assert recipe.exemplars == Exemplars(per_task=8, seed=3)


def test_edits_are_added_moved_and_removed(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="lwptv:prune_ratio=0.3;weight_averaging")
    at.selectbox(key="new_edit").select("lwptv").run()
    assert at.query_params["chain"] == "lwptv:prune_ratio=0.3;lwptv;weight_averaging"
    later = [button for button in at.button if str(button.key).startswith("arrow_downward")]
    later[0].click().run()
    assert at.query_params["chain"] == "lwptv;lwptv:prune_ratio=0.3;weight_averaging"
    next(button for button in at.button if str(button.key).startswith("close")).click().run()
    assert at.query_params["chain"] == "lwptv:prune_ratio=0.3;weight_averaging"
    assert not at.exception


def test_another_merge_and_other_experts(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="weight_averaging")
    next(box for box in at.selectbox if box.label == "Then merge with").select("ties").run()
    assert at.query_params["chain"] == "ties"
    at.multiselect(key="experts_chosen").unselect("digits").run()
    assert at.query_params["experts"] == "circles,flags,leaves"
    at.multiselect(key="experts_chosen").set_value([]).run()
    assert not at.exception
    assert "Choose at least one expert" in at.error[0].value


def test_a_merge_of_two_experts_says_so_before_it_can_be_run(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="weight_averaging")
    next(box for box in at.selectbox if box.label == "Then merge with").select("slerp").run()
    assert not at.exception and not find_buttons(at, "Run")
    assert "SLERP merges at most 2 experts, and 4 are given" in at.error[0].value
    at.multiselect(key="experts_chosen").set_value(["circles", "digits"]).run()
    assert not at.error and find_buttons(at, "Run")
    assert at.query_params["experts"] == "circles,digits" and at.query_params["chain"] == "slerp"


def test_the_recipe_survives_a_visit_to_another_page(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="lwptv:prune_ratio=0.3;ties:density=0.5")
    at.switch_page("screens/home.py").run()
    del at.query_params["chain"]
    at.switch_page("screens/merge.py").run()
    assert [slider.value for slider in at.slider][:2] == [0.3, 0.5]


@pytest.mark.full
def test_every_preset_can_be_chosen(open_app: Any, library: Path) -> None:
    at = open_app("merge", library)
    for preset in PRESETS:
        at.selectbox(key="preset").select(preset.key).run()
        assert not at.exception
        assert not at.error
        found = parse_chain(at.query_params["chain"], "p", [])
        assert [stage.key for stage in found.edits] == [key for key, _ in preset.edits]
        assert {name: found.merge.values[name] for name in preset.params} == dict(preset.params)


def test_a_recipe_is_loaded_from_text(open_app: Any, library: Path) -> None:
    at = open_app("merge", library)
    recipe = at.code[0].value if at.code else ""
    recipe = next(block.value for block in at.code if "pretrained:" in block.value)
    at.text_area(key="recipe_text").set_value(recipe.replace("prune_ratio: 0.7", "prune_ratio: 0.25"))
    press(at, "Use this recipe")
    assert at.query_params["chain"].startswith("lwptv:prune_ratio=0.25;")
    at.text_area(key="recipe_text").set_value(recipe + "\ntest_data: {split: reporting}\n")
    press(at, "Use this recipe")
    assert [box.value for box in at.info if "learns from test data" in box.value]


def test_a_config_of_mergekit_is_loaded_from_text(open_app: Any, library: Path) -> None:
    at = open_app("merge", library)
    config = (
        "merge_method: task_arithmetic\nbase_model: pretrained\nmodels:\n- {model: digits, parameters: {weight: 0.5}}"
    )
    at.text_area(key="recipe_text").set_value(config)
    press(at, "Use this recipe")
    assert not at.exception and not at.error
    assert at.query_params["chain"] == "task_arithmetic:scaling=0.5"


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ("merge_method: ties\nbase_model: pretrained\nmodels: [{model: /etc/passwd}]", "names the model /etc/passwd"),
        ("merge_method: passthrough", "cannot be run here"),
        ("a: [", "not valid YAML"),
        ("just words", "A recipe is a mapping"),
        ("merge: tiez\nexperts: {}", "Did you mean"),
        ("merge: ties\npretrained: /etc/passwd\nexperts: {digits: /etc/shadow}", "not one of the sets on this page"),
    ],
)
def test_a_recipe_that_cannot_be_used_says_why(open_app: Any, library: Path, recipe: str, says: str) -> None:
    at = open_app("merge", library)
    at.text_area(key="recipe_text").set_value(recipe)
    press(at, "Use this recipe")
    assert not at.exception
    assert page_text.safe_text(says) in at.error[0].value
