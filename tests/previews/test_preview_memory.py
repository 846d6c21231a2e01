"""The memory of previews: all of it counted, one bound for all benchmarks, and the same answers within it."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from weakref import WeakValueDictionary

import pandas as pd
import pytest
import torch
from pretend_device import NAME, pretend_device

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.previews import preview_stages
from merging.study.previews.models_in_memory import move_models
from merging.study.previews.moments_in_memory import MomentsInMemory
from merging.study.previews.preview_memory import Memory, count_bytes
from merging.study.previews.preview_samples import PreviewSample
from merging.study.previews.previewer import Previewer
from merging.study.runs.opened_recipe import open_inputs
from merging.tasks.context import Context


class Pile:
    """A holder of pieces of one size."""

    def __init__(self, pieces: int, size: int = 10) -> None:
        self.pieces, self.size = pieces, size

    @property
    def spare_bytes(self) -> int:
        return max(0, self.pieces) * self.size

    def drop_one(self) -> bool:
        self.pieces -= 1
        return self.pieces >= 0


def recipe_of(benchmark: Benchmark, merge: str = "task_arithmetic", **params) -> Recipe:
    exemplars = {"per_task": 6} if merge == "lot" else None
    return Recipe.build(merge, params, [], benchmark.pretrained, benchmark.experts, exemplars=exemplars)


def test_the_least_recently_used_gives_way_and_the_bound_is_of_the_sum():
    memory, one, other = Memory(100), Pile(6), Pile(6)
    assert memory.make_room(one) == 40 and memory.make_room(other) == 0
    assert (one.pieces, other.pieces) == (4, 6)
    assert memory.make_room(one, 25) == 30 and (one.pieces, other.pieces) == (4, 3)  # one is the later one now
    del other
    last = Pile(20)
    assert memory.nbytes == 40 and memory.make_room(last) == 0 and memory.nbytes == 100


def test_what_several_models_share_counts_once():
    weight = torch.zeros(6)
    assert count_bytes([weight, weight, torch.zeros(2)]) == 32


def test_moments_are_counted(tiny_benchmark):
    opened = open_inputs(recipe_of(tiny_benchmark, "lot"), benchmark=tiny_benchmark)
    kept = MomentsInMemory(opened, tiny_benchmark, "cpu")
    images = kept.nbytes
    assert images == len(opened.experts) * 6 * 3 * 16 * 16 * 4
    for parameter in opened.pretrained.parameters:
        kept.moments(parameter)
    linear = [p for p in opened.pretrained.parameters if kept.moments(p) is not None]
    each = {id(one): one for p in linear for one in kept.moments(p)}
    assert kept.nbytes > images + sum(count_bytes(one.stored_tensors) for one in each.values()) > images
    previewer = Previewer(tiny_benchmark, "cpu")
    plain = Previewer(tiny_benchmark, "cpu")
    for own, merge in ((previewer, "lot"), (plain, "task_arithmetic")):
        own.begin(recipe_of(tiny_benchmark, merge), PreviewSample(4)).finish()
    assert previewer.nbytes - plain.nbytes > images


@pytest.mark.full
@pytest.mark.parametrize("limit", [0, 400_000])
def test_two_benchmarks_share_one_bound_and_answer_as_ever(limit, tiny_benchmark, other_benchmark):
    memory = Memory(limit)
    homes = [(one, Previewer(one, "cpu", memory=memory)) for one in (tiny_benchmark, other_benchmark)]
    for merge, params in (("task_arithmetic", {"scaling": 0.4}), ("lot", {}), ("task_arithmetic", {"scaling": 0.9})):
        recipes = [(recipe_of(one, merge, **params), recipe_of(one)) for one, _ in homes]
        works = [own.begin(new, PreviewSample(12), old) for (_, own), (new, old) in zip(homes, recipes, strict=True)]
        last = ()
        for previews in zip(*(filter(None, one.previews()) for one in works), strict=True):  # they take turns
            assert memory.nbytes <= limit
            last = previews
        for (benchmark, _), (new, old), preview in zip(homes, recipes, last, strict=True):
            alone = Previewer(benchmark, "cpu").begin(new, PreviewSample(12), old).finish()
            assert preview.sample == alone.sample and preview.tables["answers"].equals(alone.tables["answers"])


@pytest.mark.parametrize(("free", "largest", "device"), [(1 << 16, 1 << 62, "PRETEND"), (1 << 34, 1 << 15, "CPU")])
def test_on_a_full_device_previews_take_smaller_pieces_and_then_the_cpu(free, largest, device, tiny_benchmark):
    recipe, sample = recipe_of(tiny_benchmark), PreviewSample(8)
    expected = Previewer(tiny_benchmark, "cpu").begin(recipe, sample).finish()
    copied = []
    for memory in ({}, {"free": free, "largest": largest}):
        with pretend_device(**memory) as seen:
            found = Previewer(tiny_benchmark, NAME).begin(recipe, sample).finish()
        copied.append(max(seen.to_device))
    assert found.device == device and bool(seen.refused) == (device == "CPU")
    if device != "CPU":
        assert copied[1] < copied[0]  # fewer images at a time
    for name, table in expected.tables.items():
        pd.testing.assert_frame_equal(found.tables[name], table)


def test_models_that_move_to_another_device_share_what_they_shared(tiny_benchmark):
    with pretend_device():
        previewer = Previewer(tiny_benchmark, NAME)
        work = previewer.begin(recipe_of(tiny_benchmark, scaling=0.0), PreviewSample(4))
        models = [one.models["merged"] for one in work.merges]
        move_models(models, torch.device("cpu"))
    assert all(model.encoder.device == torch.device("cpu") for model in models)
    first, second = (model.encoder.tensors for model in models)
    assert first["class_embedding"] is second["class_embedding"]


def test_a_benchmark_that_changed_is_kept_once_and_drives_no_other_out(tiny_benchmark, tmp_path, monkeypatch):
    made, states, recipe = WeakValueDictionary(), {}, recipe_of(tiny_benchmark).to_yaml()

    class Stub:
        def __init__(self, folder, device, memory):
            made[folder.name, states[folder]] = self

        def begin(self, *_said):
            return SimpleNamespace(previews=lambda: [])

    monkeypatch.setattr(preview_stages, "Previewer", Stub)
    monkeypatch.setattr(preview_stages, "state_of", lambda folder: states[folder])
    monkeypatch.setattr(Benchmark, "load", classmethod(lambda cls, folder: folder))
    for name, state in (("a", (1,)), ("b", (1,)), ("b", (2,))):
        states[tmp_path / name] = state
        request = {"benchmark": str(tmp_path / name), "recipe": recipe, "per_task": 4, "seed": 0, "base": ""}
        list(preview_stages.preview_stages({**request, "run": "", "reference": ""}, Context("cpu")))
    gc.collect()
    assert sorted(made) == [("a", (1,)), ("b", (2,))]
