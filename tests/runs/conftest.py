"""Fixtures that the tests of runs share: a store, a recipe, and a call that runs it."""

from __future__ import annotations

import pytest
from contexts import context_of

from merging.methods import method as method_module
from merging.methods import registry
from merging.methods.method import Merge
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def recipe(tiny_benchmark):
    return Recipe.build("ties", {}, ["lwptv"], tiny_benchmark.pretrained, tiny_benchmark.experts)


@pytest.fixture
def run_it(store, tiny_benchmark):
    """execute with everything but the recipe filled in."""

    def call(recipe, **options):
        named = {"benchmark": tiny_benchmark, "context": context_of(options)} | options
        return execute(recipe, named.pop("store", store), **named)

    return call


@pytest.fixture
def per_task():
    """A merge that gives one model per task: each expert, halved."""
    method = Merge(
        key="halves", title="Halves", summary="", formula="", cite=registry.find_merge("ties").cite, per_task=True,
        run=lambda slot, params, found: slot.task_vectors / 2,
    )  # fmt: skip
    registry.list_methods()
    method_module.REGISTERED["merge", "halves"] = method
    yield method
    del method_module.REGISTERED["merge", "halves"]
