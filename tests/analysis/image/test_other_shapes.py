"""Towers of another shape than the bundled ones: all tables, what they cost, and how many towers are in memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tiny

from merging.images.benchmarks.benchmark import Benchmark
from merging.models.model_references import PRETRAINED
from merging.recipes.presets import find_preset
from merging.study import measure
from merging.study.measurements.depths import read_depths
from merging.study.measurements.find_images import find_by_depth
from merging.study.one_image import named_towers, restore
from merging.study.one_image.image_tables import ImageTables
from merging.study.one_image.named_towers import MAX_TOWERS, Towers, expert_key
from merging.study.one_image.nearest_images import list_same_domain
from merging.study.one_image.studied_image import find_image
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

WIDTH, HEADS, BLOCKS, PATCH, SIDE, EMBED, CLASSES = 40, 5, 5, 4, 7, 12, 7
TOKENS = 1 + SIDE**2
EXPERTS = ("circles", "digits", "flags", "leaves", "moons", "stars")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A benchmark with 7 × 7 patches, 5 heads, 5 blocks, GELU, 7 classes and 6 experts, and a run of it."""
    folder = tmp_path_factory.mktemp("other")
    architecture = {
        "embed_dim": EMBED, "quick_gelu": False,
        "vision_cfg": {"image_size": SIDE * PATCH, "layers": BLOCKS, "width": WIDTH, "head_width": WIDTH // HEADS,
                       "patch_size": PATCH},
    }  # fmt: skip
    family = tiny.family
    changed = {
        "WIDTH": WIDTH, "LAYERS": BLOCKS, "PATCH": PATCH, "SIZE": SIDE * PATCH, "EMBED": EMBED, "TOKENS": TOKENS,
        "ARCHITECTURE": architecture, "CLASSES": CLASSES, "EXPERTS": EXPERTS,
        "family": lambda *_: family(EXPERTS),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setattr(tiny, name, value)
        benchmark = Benchmark.load(tiny.write_benchmark(folder / "benchmark"))
    store = Store(folder / "store", libraries=())
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    return benchmark, store, execute(recipe, store, benchmark=benchmark, keep_model=False)


@pytest.mark.full
def test_every_table_has_the_shape_of_the_tower(other):
    benchmark, store, run = other
    made, image = ImageTables(Towers(store, benchmark, Context("cpu"))), find_image(benchmark, "moons:reporting:2")
    key, reference = run.id, expert_key("moons")
    lens = made.lens(image, key)
    assert set(lens["depth"]) == set(range(BLOCKS + 1)) and lens["number"].max() < CLASSES
    looks = made.attention(image, key)
    views = HEADS + 3
    assert len(looks) == BLOCKS * views * TOKENS and looks["row"].max() == looks["column"].max() == SIDE - 1
    np.testing.assert_allclose(looks.groupby(["block", "view"])["share"].sum(), 1, atol=1e-5)
    assert len(made.attention_change(image, key, reference)) == BLOCKS * HEADS
    assert len(made.drift(image, key, reference)) == (BLOCKS + 1) * TOKENS
    assert len(made.restore(image, key, reference)) == 3 * (BLOCKS + 1)
    assert len(made.restore(image, key, reference, tokens=True)) == TOKENS * (BLOCKS + 1)
    assert len(made.occlude(image, key, reference)) == SIDE**2
    tasks = list_same_domain(benchmark, "moons", run.experts)
    assert len(made.neighbors(image, key, tasks)) == 20 and made.overlap(image, key, reference, tasks)["n"][0] > 0
    assert made.sentence(image, key, reference).startswith("Task Arithmetic says")


@pytest.mark.full
def test_data_sets_by_depth_have_it_too(other):
    benchmark, store, run = other
    measured = measure.measure("depths", store, benchmark, run.id, context=Context(device="cpu"))
    by_task = read_depths(measured, benchmark)
    assert set(by_task) == {*EXPERTS, *tiny.OUTSIDE}
    assert all(
        one.restored_right.shape == (tiny.REPORTING, BLOCKS + 1, len(restore.TOKEN_KINDS)) for one in by_task.values()
    )
    scores = run.scores[run.scores["split"] == "reporting"].set_index("task")["accuracy"]
    for task, one in by_task.items():
        assert (one.answers[:, -1] == one.labels).mean() == pytest.approx(scores[task])
    assert len(find_by_depth("drift", by_task, benchmark, depth=BLOCKS)) == len(by_task) * tiny.REPORTING
    assert list(read_depths(measured, benchmark, {"moons"})) == ["moons"]


def test_four_models_cost_four_passes_and_restoring_two_b(other, passes, monkeypatch):
    monkeypatch.setattr(tiny, "LAYERS", BLOCKS)  # what the counter divides by
    benchmark, store, run = other
    made, image = ImageTables(Towers(store, benchmark, Context("cpu"))), find_image(benchmark, "moons:reporting:2")
    keys = [PRETRAINED, expert_key("moons"), expert_key("flags"), run.id]
    for key in keys:
        made.towers(key)
    passes.clear()
    for key in keys:
        made.lens(image, key)
        made.attention(image, key)
        made.drift(image, key, keys[1], scaled=False)
        made.attention_change(image, key, keys[1])
    assert sum(passes.values()) == pytest.approx(4)  # at most 6
    passes.clear()
    made.restore(image, run.id, keys[1])
    assert sum(passes.values()) == pytest.approx(1.5 * (BLOCKS + 1)) and sum(passes.values()) <= 2 * BLOCKS


@pytest.mark.full
def test_at_most_four_towers_are_alive(other, monkeypatch):
    """Also where tables and passes of more models are kept."""
    benchmark, store, run = other
    alive: weakref.WeakSet[object] = weakref.WeakSet()
    most, named = [], named_towers.NamedTower

    def counted(*parts):
        tower = named(*parts)
        alive.add(tower)
        gc.collect()
        most.append(len(alive))
        return tower

    monkeypatch.setattr(named_towers, "NamedTower", counted)
    made, keys = ImageTables(Towers(store, benchmark, Context("cpu"))), [PRETRAINED, *map(expert_key, EXPERTS), run.id]
    for image in (find_image(benchmark, f"moons:reporting:{number}") for number in (0, 1)):
        for key in keys:
            made.lens(image, key)
            made.drift(image, key, PRETRAINED, scaled=False)
            made.occlude(image, key, PRETRAINED)
    assert max(most) == MAX_TOWERS and len(keys) > MAX_TOWERS and len(most) > len(keys)
