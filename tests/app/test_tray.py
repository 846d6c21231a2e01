"""The tray of jobs: a finished measurement links to the page that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from compared_runs import TIES
from page_harness import runs
from streamlit.testing.v1 import AppTest

from app.reading import measurements
from app.session import pages, run_choice, view_state
from app.widgets import page_parts
from app.widgets.jobs import tray
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_registry import MEASUREMENTS
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import Job, name_job

RUN_ID = "0123456789ab"
PAGES = {  # measurement -> the page that shows it, and what the link says besides the run
    "drift": (pages.DRIFT, {}),
    "layer_drift": (pages.DRIFT, {"drift_view": "layer by layer"}),
    "ablation": (pages.DRIFT, {"drift_view": "layer by layer"}),
    "exemplars": (pages.DRIFT, {"drift_view": "exemplars"}),
    "put_back": (pages.DRIFT, {"drift_view": "put back"}),
    "first_order": (pages.DRIFT, {"drift_view": "put back"}),
    "signs": (pages.CONFLICTS, {"conflicts_view": "sign agreement"}),
    "pairs": (pages.CONFLICTS, {"conflicts_view": "experts against experts"}),
    "cka": (pages.DRIFT, {"drift_view": "model against model"}),
    "spectra": (pages.CONFLICTS, {"conflicts_view": "spectra"}),
    "model_map": (pages.CONFLICTS, {"conflicts_view": "map of models"}),
    "drm_ablations": (pages.CONFLICTS, {"conflicts_view": "ablations of DRM"}),
    "task_counts": (pages.CONFLICTS, {"conflicts_view": "number of tasks"}),
    "features": (pages.FEATURES, {}),
    "tsne": (pages.FEATURES, {"map": "t-SNE alone"}),
    "joint_tsne": (pages.FEATURES, {"map": "joint t-SNE"}),
    "merge_path": (pages.FEATURES, {"map": "along the merge"}),
    "features_in_domain": (pages.FEATURES, {"image_domain": "in domain"}),
    "tsne_in_domain": (pages.FEATURES, {"map": "t-SNE alone", "image_domain": "in domain"}),
    "joint_tsne_in_domain": (pages.FEATURES, {"map": "joint t-SNE", "image_domain": "in domain"}),
    "merge_path_in_domain": (pages.FEATURES, {"map": "along the merge", "image_domain": "in domain"}),
    "along_steps": (pages.LEARNING, {"learning_view": "loss and gain"}),
    "modules": (pages.LEARNING, {"learning_view": "modules"}),
    "depths": (pages.IMAGE, {"image_view": "whole data sets"}),
    "feature_bank": (pages.IMAGE, {"image_view": "neighbors"}),
    "robustness": (pages.SCORES, {"scores_view": "corrupted images"}),
    "robustness_choosing": (pages.SCORES, {"scores_view": "corrupted images", "corrupted_half": "choosing half"}),
    "robustness_references": (pages.SCORES, {"scores_view": "corrupted images"}),
    "robustness_references_choosing": (
        pages.SCORES,
        {"scores_view": "corrupted images", "corrupted_half": "choosing half"},
    ),
    "method_times": (pages.METHODS, {}),
}


def finished(measurement: str, subject: str = RUN_ID) -> Job:
    return Job(name_job(measurement, subject), "Measuring", "done", kind=measurement, subject=subject)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    opened: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        page_parts, "draw_page_link", lambda path, label, icon, *width, **query: opened.append((path, query))
    )
    monkeypatch.setattr(view_state, "relative_address", lambda: "merge?chain=ties")
    return opened


@pytest.mark.parametrize("measurement", MEASUREMENTS)
def test_a_finished_measurement_links_to_its_view_and_names_its_run(measurement: str, links: Any) -> None:
    tray.draw_measurement_link(finished(measurement))
    path, query = PAGES[measurement]
    run = "run" if path in (pages.CONFLICTS, pages.LEARNING) else "runs"
    assert links == [(path, {run: RUN_ID, **query})]


def test_a_measurement_of_several_runs_names_them_all(links: Any) -> None:
    tray.draw_measurement_link(finished("joint_tsne", f"{RUN_ID}+{RUN_ID[::-1]}"))
    assert links == [(pages.FEATURES, {"map": "joint t-SNE", "runs": f"{RUN_ID},{RUN_ID[::-1]}"})]


def test_a_measurement_of_the_benchmark_names_no_run(links: Any) -> None:
    tray.draw_measurement_link(finished(measurements.EXEMPLARS, ""))
    assert links == [(pages.DRIFT, {"drift_view": "exemplars"})]


@pytest.mark.parametrize("measurement", [measurements.SIGNS, measurements.DRIFT, measurements.TSNE])
def test_on_its_own_page_a_button_picks_the_run_and_the_view(
    measurement: str, links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, _, query = tray.RESULT_VIEWS.get(measurement, tray.DRIFT)
    picked: list[Any] = []
    monkeypatch.setattr(view_state, "relative_address", lambda: path.removeprefix("screens/").removesuffix(".py"))
    monkeypatch.setattr(run_choice, "pick_run", picked.append)
    monkeypatch.setattr(run_choice, "pick_runs", picked.extend)
    monkeypatch.setattr(st, "session_state", {})
    monkeypatch.setattr(st, "button", lambda *words, on_click, args, **look: on_click(*args))
    tray.draw_measurement_link(finished(measurement))
    assert (links, picked, st.session_state) == ([], [RUN_ID], query)


@pytest.mark.parametrize(
    ("chain", "scored", "opened"),
    [
        ("adamerging", True, [pages.RUN, pages.LEARNING]),
        ("ties", True, [pages.RUN]),
        ("ties", False, [pages.RUN]),
        ("ties", None, []),
    ],
)
def test_a_merge_links_to_the_page_of_its_run_and_to_what_it_learned(
    chain: str, scored: bool | None, opened: list[str], links: Any, monkeypatch: pytest.MonkeyPatch, open_app: Any,
    library: Path, tmp_path: Path,
) -> None:  # fmt: skip
    run_id = RUN_ID  # of a run that was deleted
    if scored is not None:
        benchmark = Benchmark.load(library)
        recipe = Recipe.build("ties", {"density": 0.3}, [], benchmark.pretrained, dict(benchmark.experts))
        store = Store(tmp_path / "store", libraries=())
        run_id = execute(recipe, store, benchmark=benchmark if scored else None, keep_model=False).id
    open_app("home", library)
    links.clear()
    monkeypatch.setattr(st, "button", lambda *words, **look: False)
    job = Job(run_id, "Merging", "done", subject=run_id, recipe_yaml=Recipe.build(chain).to_yaml())
    tray.draw_buttons(job, "tray")
    assert [path for path, _ in links] == opened
    assert all(run_id in query.values() for _, query in links)


@pytest.mark.parametrize("kind", ["merge", "drift"])
def test_the_title_of_a_job_on_a_stored_run_opens_its_page(
    kind: str, links: Any, open_app: Any, compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs(compared)[TIES].id
    open_app("home", compared)
    links.clear()
    told: list[str] = []
    monkeypatch.setattr(st, "markdown", told.append)
    job = Job(name_job(kind, run), "A job", "done", kind=kind, subject=run)
    tray.draw_title(job, "tray")
    assert (links, told) == ([(pages.RUN, {"run": run})], [])
    tray.draw_title(job, "merge")  # the page has a link of its own
    tray.draw_title(Job(RUN_ID, "A job", "done", subject=RUN_ID), "tray")  # of a run that was deleted
    tray.draw_title(Job(run, "A job", "running", subject=run), "tray")
    assert (len(links), told) == (1, ["A job"] * 3)


SHORT = """
import streamlit as st
from app.widgets.jobs import missing_box, tray
from merging.tasks.queue.job_records import Job

if "drawn" not in st.session_state:  # the job ends after the box is drawn, and before the tray is
    st.session_state["drawn"] = True
    short = Job("1", "Short", "running")
    missing_box.draw_box("x", [("it", short)], lambda items, jobs: st.write("running"), lambda rest: None)
tray.draw_tray()
"""


def test_a_job_that_ends_before_the_tray_is_drawn_does_not_stay_on_the_page(open_app: Any, library: Path) -> None:
    open_app("home", library)
    at = AppTest.from_string(SHORT, default_timeout=60).run()
    assert not at.exception
    assert "running" not in [markdown.value for markdown in at.markdown]
    assert at.session_state["_live"] == set()


SEVERAL = """
import dataclasses
from app.reading import page_data as data
from app.widgets.jobs import tray
from merging.tasks.queue.job_kinds import SWEEP
from merging.tasks.queue.job_records import Job

words = [("on 4 workers", 61.0), ("on 3 workers, 1 lost", 15.0), ("on 4 workers", None), ("on 4 workers", None)]
words += [("", 19.0)]
jobs = [
    Job(f"sweep-{number}", f"Sweep {number}", "running", f"Point 3 of 12, {on}", kind=SWEEP, seconds_left=left)
    for number, (on, left) in enumerate(words)
]
queue = data.job_queue()
type(queue).own_jobs = lambda self: [*jobs, Job("sweep-5", "Sweep 5", "queued", kind=SWEEP, position=1)]
tray._draw_tray(False)
"""


def test_every_job_that_runs_is_shown_with_its_workers_and_its_time_left(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.session.job_queue import SessionQueue

    monkeypatch.setattr(SessionQueue, "own_jobs", SessionQueue.own_jobs)  # put back afterwards
    open_app("home", library)
    at = AppTest.from_string(SEVERAL, default_timeout=60).run()
    assert not at.exception
    bars = [bar.proto.text.replace("\\", "") for bar in at.get("progress")]
    assert [bar.partition(", ")[2] for bar in bars] == [
        "on 4 workers, about 1 min 1 s left",
        "on 3 workers, 1 lost, about 15 s left",
        "on 4 workers",
        "on 4 workers",
        ", about 19 s left",
    ]
    assert "Sweep 5" not in [markdown.value for markdown in at.markdown]
    assert [button.label for button in at.button].count("Cancel") == 5


STOPPED = """
from app.widgets.jobs import tray
from merging.tasks.queue.job_records import Job
from merging.recipes.recipe import Recipe

recipe = Recipe.build("adamerging").to_yaml()
tray.draw_buttons(Job("1", "Learning", "STATE", recipe_yaml=recipe, is_resumable=KEPT), "tray")
"""


@pytest.mark.parametrize(
    ("state", "kept", "label"),
    [("paused", True, "Resume"), ("interrupted", True, "Resume"), ("cancelled", False, "Run again")],
)
def test_only_what_is_kept_is_resumed(open_app: Any, library: Path, state: str, kept: bool, label: str) -> None:
    open_app("home", library)
    at = AppTest.from_string(STOPPED.replace("STATE", state).replace("KEPT", str(kept)), default_timeout=60).run()
    assert not at.exception
    assert [button.label for button in at.button] == [label, "Dismiss"]
