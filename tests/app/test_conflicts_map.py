"""The map of models on the Conflicts page: asked for, drawn, measured again for newer runs, and clicked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_library
from page_harness import chart_specs, charts, click, own, press, words

from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.run_store import Store
from merging.study.weight_space import model_map
from merging.tasks.context import Context

VIEW = "map of models"
CPU = Context(device="cpu")


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with a map of its models."""
    folder = tiny_library.write(tmp_path_factory.mktemp("mapped"), ("ties", "weight_averaging"))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    run = next(run for run in store.list_runs() if run.recipe is not None)
    measure.measure("model_map", store, Benchmark.load(folder), run.id, context=CPU)
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


def test_the_page_asks_before_it_measures(open_app: Any, library: Path, asked: list[tuple[str, str]]) -> None:
    at = open_app("conflicts", library, conflicts_view=VIEW)
    assert not at.exception and charts(at) == 0 and "There is no map of models" in words(at)
    press(at, "Measure")
    assert [key for key, _ in asked] == ["model_map"]


def test_a_click_on_a_merge_opens_its_run(open_app: Any, mapped: Path) -> None:
    at = open_app("conflicts", mapped, conflicts_view=VIEW)
    assert not at.exception and charts(at) == 1 and "of the variance" in words(at) and "made after" not in words(at)
    store = Store(mapped / "measuring", libraries=(mapped / "runs",))
    run = next(run for run in store.list_runs() if run.title == "Ties")
    assert run.id in chart_specs(at)[0]
    at = click(at, "model_map", "digits")  # an expert has no run of its own here
    assert not at.exception and charts(at) == 1
    at = click(at, "model_map", run.id)
    assert not at.exception and str(at.query_params["run"]).strip("[]'") == run.id
    assert "Where in the network did the merge change what?" in words(at)


@pytest.mark.full
def test_a_newer_run_is_on_the_next_map(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store", libraries=(library / "runs",))
    benchmark, run_id = Benchmark.load(library), next(run.id for run in store.list_runs() if run.recipe is not None)
    measure.measure("model_map", store, benchmark, run_id, context=CPU)
    at = open_app("conflicts", library, conflicts_view=VIEW, run=run_id, mapped_models="all models")
    assert not at.exception and charts(at) == 1 and "made after" not in words(at)
    newer = own(library, tmp_path / "store", "dare_ties")
    at = at.run()
    assert "1 run was made after this map, which shows 4 merges" in words(at) and newer.id not in chart_specs(at)[0]
    measure.measure("model_map", store, benchmark, run_id, context=CPU)
    at = at.run()  # by the same server, which has the earlier map in its caches
    assert not at.exception and newer.id in chart_specs(at)[0] and "made after" not in words(at)
    store.delete(newer.id)
    at = at.run()
    assert not at.exception and charts(at) == 1 and newer.id not in chart_specs(at)[0]
    assert "left out: its weights" not in words(at)
    monkeypatch.setattr(model_map, "is_quick", lambda run: False)  # as if it learned
    assert "The chosen run is left out: its weights are not stored" in words(at.run())


def test_a_run_with_several_models_is_not_on_the_map(open_app: Any) -> None:
    at = open_app("conflicts", settings.BUNDLED_FOLDER, conflicts_view=VIEW, run="95f0989be4c6")  # EMR-Merging
    assert not at.exception and charts(at) == 1 and "it is no single model without modules" in words(at)
