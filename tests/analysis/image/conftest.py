"""A run without weights on the tiny benchmark, and the tables of images that its tests share."""

from __future__ import annotations

from collections import Counter

import pytest
import tiny

from merging.images.image_encoder import Encoder
from merging.recipes.presets import find_preset
from merging.study.one_image.image_tables import ImageTables
from merging.study.one_image.named_towers import Towers
from merging.study.one_image.studied_image import find_image
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture(scope="module")
def store(tmp_path_factory, tiny_benchmark):
    """A store with a run that kept no weights, as those of a library."""
    made = Store(tmp_path_factory.mktemp("store"), libraries=())
    recipe = find_preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    execute(recipe, made, benchmark=tiny_benchmark, keep_model=False)
    return made


@pytest.fixture(scope="module")
def run(store):
    return store.list_runs()[0]


@pytest.fixture(scope="module")
def towers(store, tiny_benchmark):
    return Towers(store, tiny_benchmark, Context("cpu"))


@pytest.fixture
def made(towers):
    return ImageTables(towers)


@pytest.fixture
def image(tiny_benchmark):
    return find_image(tiny_benchmark, "digits:reporting:3")


@pytest.fixture
def passes(monkeypatch):
    """Counts blocks times images that run, in passes of one image."""
    counted = Counter()
    run_block, attend = Encoder.block, Encoder.attend

    def block(self, x, *rest):
        counted["run"] += len(x) / tiny.LAYERS
        return run_block(self, x, *rest)

    def attended(self, section, x):
        counted["attend"] += len(x) / tiny.LAYERS
        return attend(self, section, x)

    monkeypatch.setattr(Encoder, "block", block)
    monkeypatch.setattr(Encoder, "attend", attended)
    return counted
