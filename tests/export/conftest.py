"""A store and a benchmark of its own for every test, a small tower, and a stored run to export."""

from __future__ import annotations

import peers
import pytest

from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


@pytest.fixture(scope="module")
def small():
    return peers.tower(*peers.FAMILIES["B/32"])


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", libraries=())


@pytest.fixture(scope="module")
def run(tiny_benchmark, tmp_path_factory):
    recipe = Recipe.build("ties", {}, ["lwptv"], tiny_benchmark.pretrained, tiny_benchmark.experts, "A title")
    store = Store(tmp_path_factory.mktemp("runs"), libraries=())
    return execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
