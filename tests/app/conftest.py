"""Fixtures that the tests of pages share: small libraries, and models of one's own."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import mergescope_stand_in
import pytest
import stored_runs
import tiny
import tiny_library
import torch
from compared_runs import CAT, EMR, FEW, LWPTV, PRETRAINED, TIES
from page_harness import forget, forgotten, open_page
from streamlit.testing.v1 import AppTest

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.sharing.catalog.model_set_store import make_model_set as make_set
from merging.sharing.catalog.model_set_store import store_model_set as keep_set
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.run_queue import RunQueue
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_library.write(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with everything measured that the page can show, a run without answers to each image (CAT Merging), and
    one on fewer experts; do not change it."""
    folder = tiny_library.write(tmp_path_factory.mktemp("compared"), ("task_arithmetic_lwptv", "ties", "cat", "emr"))
    benchmark, making = Benchmark.load(folder), Store(folder / "more", libraries=(), dated=False)
    few = Recipe.build(
        "lot", {}, [], benchmark.pretrained, dict(list(benchmark.experts.items())[:3]), FEW, {"per_task": 4}
    )
    run = execute(few, making, benchmark=benchmark, keep_model=False)
    shutil.copytree(run.path, folder / "runs" / run.id)
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    for run in store.list_runs():
        if run.title in (LWPTV, TIES, EMR, FEW):
            for key in ("drift", "signs", "pairs"):
                measure.measure(key, store, benchmark, run.id, context=Context(device="cpu"))
        if run.title in (LWPTV, TIES, PRETRAINED):
            measure.measure("features", store, benchmark, run.id, context=Context(device="cpu"))
        if run.title == CAT:
            stored_runs.remove_answers(run.path)
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., AppTest]]:
    """A function that opens a page on a library and an empty store, once for all tests of a file that only read it."""
    opened: dict[tuple[object, ...], AppTest] = {}
    store, before = tmp_path_factory.mktemp("looked_at") / "store", None

    def open_once(page: str, benchmark: Path, /, **query: str) -> AppTest:
        nonlocal before
        asked = (page, benchmark, *sorted(query.items()))
        if asked not in opened:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("MERGESCOPE_STORE", str(store))
                patch.setenv("MERGESCOPE_BENCHMARK", str(benchmark))
                patch.setattr("app.widgets.panels.preview_panel.SHORT_SECONDS", 0.0)
                if before != (benchmark, forgotten[0]):
                    forget()
                before = benchmark, forgotten[0]
                opened[asked] = open_page(page, query)
        return opened[asked]

    yield open_once
    forget()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The measurements that pages ask for, which nothing computes: key and run."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(RunQueue, "submit_measurement", lambda self, key, run_id, *on: found.append((key, run_id)))
    return found


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with a pretrained model and two experts, as files."""
    folder = tmp_path / "clip"
    folder.mkdir()
    base, tuned = tiny.family(("circles", "digits"))
    for name, state in {"pretrained": base, **tuned}.items():
        tiny.write(folder / f"{name}.safetensors", state, torch.float32)
    monkeypatch.setenv("MERGESCOPE_MODELS", str(folder))
    return folder


@pytest.fixture
def own_set(own_models: Path, tmp_path: Path) -> str:
    """The id of a set of those models."""
    made = make_set("Mine", "models:clip/pretrained.safetensors",
                    {name: f"models:clip/{name}.safetensors" for name in ("circles", "digits")})  # fmt: skip
    keep_set(tmp_path / "store", made)
    return made.id


@pytest.fixture
def mergescope() -> Iterator[ModuleType]:
    """The package as a notebook imports it; a stand-in where it is not installed."""
    if importlib.util.find_spec("mergescope"):
        yield importlib.import_module("mergescope")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mergescope", mergescope_stand_in)
        yield mergescope_stand_in


@pytest.fixture
def notebook_place(compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The small library as the benchmark of a notebook, and an empty store."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(compared))
    forget()
    yield compared
    forget()
