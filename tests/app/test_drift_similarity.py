"""CKA on the Drift page: asked for, drawn for a run against the pretrained model and others, and turned around."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_library
from page_harness import chart_keys, chart_specs, press, runs, words

from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.run import join_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

VIEW = "model against model"


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library in which one merge is compared with the pretrained model and with another merge."""
    folder = tiny_library.write(tmp_path_factory.mktemp("similar"), ("ties", "weight_averaging", "emr"))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    by_title = {run.title: run.id for run in store.list_runs()}
    for other in ("Pretrained", "Weight Averaging"):
        pair = join_run_ids([by_title["Ties"], by_title[other]])
        measure.measure("cka", store, Benchmark.load(folder), pair, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


def test_a_run_is_compared_with_the_pretrained_model(
    open_app: Any, similar: Path, asked: list[tuple[str, str]]
) -> None:
    by_title = runs(similar)
    at = open_app("drift", similar, drift_view=VIEW, runs=by_title["Ties"].id)
    assert not at.exception and chart_keys(at) == ["cka_depths"]
    assert at.selectbox(key="other_model").value == "Pretrained" and at.selectbox(key="compared_images").value
    assert "Nguyen et al., 2021" in words(at) and "sampled with seed 0" in words(at)
    at.selectbox(key="other_model").set_value("Expert for Digits").run()
    assert not at.exception and not chart_keys(at) and "have not been compared" in words(at)
    press(at, "Measure")
    assert asked == [("cka", join_run_ids(sorted((by_title["Ties"].id, by_title["Expert for Digits"].id))))]


def test_each_side_of_a_comparison_is_the_depth_of_its_model(open_app: Any, similar: Path) -> None:
    by_title = runs(similar)
    store, benchmark = Store(similar / "measuring", libraries=(similar / "runs",)), Benchmark.load(similar)
    own, average = by_title["Ties"].id, by_title["Weight Averaging"].id
    asked = {"drift_view": VIEW, "token": "mean of all tokens", "similarity": "linear"}
    for against in ("Weight Averaging", "Pretrained"):
        pair = join_run_ids([own, by_title[against].id])
        measured = measure.measure("cka", store, benchmark, pair)
        at = open_app("drift", similar, runs=f"{own},{average}", run=own, **asked)
        at.selectbox(key="other_model").set_value(against).run()
        assert not at.exception and chart_keys(at) == ["cka_depths"]
        drawn = json.loads(chart_specs(at)[0])["data"][0]["z"]
        values = np.frombuffer(base64.b64decode(drawn["bdata"]), drawn["dtype"])
        scopes = [rows for _, rows in measured.table("cka").groupby(["over", "token"])]
        sides = ["first", "second"] if measured.notes["runs"][0] == own else ["second", "first"]
        stored = [rows.sort_values(sides, ascending=[False, True])["linear"].to_numpy() for rows in scopes]
        assert any(np.allclose(values, one, atol=1e-5, equal_nan=True) for one in stored)
        turned = [rows.sort_values(sides[::-1], ascending=[False, True])["linear"].to_numpy() for rows in scopes]
        assert not any(np.allclose(values, one, atol=1e-5, equal_nan=True) for one in turned)


def test_one_model_per_task_has_no_features_to_compare(open_app: Any, similar: Path) -> None:
    at = open_app("drift", similar, drift_view=VIEW, runs=runs(similar)["EMR-Merging"].id)
    assert not at.exception and not chart_keys(at) and "one model per task" in words(at)
