"""Features without measurements: what is offered, what one click orders, and what is shown while it is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_harness import charts, press, runs, words
from streamlit.testing.v1 import AppTest

from app.session.job_queue import SessionQueue
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.runs.run import join_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue.job_records import Job

NUMBERS = "separability"


def test_images_in_domain_are_offered_where_they_are_not_measured(
    open_app: Any, library: Path, asked: list[tuple[str, str]]
) -> None:
    at = open_app("features", library, image_domain="in domain")
    assert charts(at) == 0 and "Features in domain have not been extracted for" in words(at)
    press_first_offer(at)
    (order,) = asked  # of the map, which measures the features first
    ids = {runs(library)["Pretrained"].id, *at.multiselect(key="features_runs").value}
    assert order == ("joint_tsne_in_domain", join_run_ids(sorted(ids)))
    at = open_app("features", library, image_domain="in domain", features_view=NUMBERS)
    press(at, "Measure")
    assert ("features_in_domain", runs(library)["Pretrained"].id) in asked


def press_first_offer(at: AppTest) -> None:
    """Press the button that orders features and map, which says how long both take together."""
    (button,) = (one for one in at.button if one.label.startswith("Measure, with one map of all, about "))
    assert button.label.endswith((" s", " min"))
    button.click().run()


def test_while_features_and_map_are_measured_their_progress_is_shown(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, store = runs(library), Store(tmp_path / "store", libraries=(library / "runs",))
    ids = join_run_ids(sorted((known["Ties"].id, known["Pretrained"].id)))
    job = Job("a1", "Joint map", "running", kind="joint_tsne", subject=ids)
    monkeypatch.setattr(SessionQueue, "list_jobs", lambda self: [job])
    for title in ("Pretrained", "Ties"):
        at = open_app("features", library, runs=known["Ties"].id)
        assert not at.exception and charts(at) == 0 and "is running" in words(at)
        assert not [button for button in at.button if button.label.startswith("Measure")]
        measure.measure("features", store, Benchmark.load(library), known[title].id, context=Context(device="cpu"))
    at = open_app("features", library, runs=known["Ties"].id)
    assert at.segmented_control(key="map").value == "joint t-SNE" and not at.exception  # not PCA meanwhile


def test_view_without_features(open_app: Any, library: Path, asked: list[tuple[str, str]]) -> None:
    at = open_app("features", library)
    assert not at.exception
    assert charts(at) == 0
    assert "Features out of domain have not been extracted for" in words(at)
    press_first_offer(at)
    ids = {runs(library)["Pretrained"].id, *at.multiselect(key="features_runs").value}
    assert asked == [("joint_tsne", join_run_ids(sorted(ids)))]
