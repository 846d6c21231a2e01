"""The stored features among which neighbors are looked for, and finding images by them."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from merging.analysis import stored
from merging.analysis.find_images import at_random, following, nearest_to
from merging.analysis.image import neighbors
from merging.analysis.image.neighbors import bank, same_domain
from merging.analysis.image.tables import ImageTables
from merging.analysis.image.towers import Towers, expert_of
from merging.checkpoints.references import PRETRAINED
from merging.errors import StoreError, TaskError
from merging.runs.reference_models import references
from merging.tasks.context import Context


def test_stored_features_are_those_that_are_read(store, run, towers, tiny_benchmark):
    references(store, tiny_benchmark, context=Context(device="cpu"))
    tasks = ["flags", "digits"]  # another order than the benchmark's
    for key in (run.id, PRETRAINED, expert_of("digits")):
        kept, read = neighbors.kept_bank(towers, key, tasks), bank(towers(key).encoder, tiny_benchmark, tasks)
        np.testing.assert_array_equal(kept.features, read.features)
        assert kept.images.equals(read.images) and kept.features.dtype == np.float16
    measured = stored.find(neighbors.BANK, store, tiny_benchmark, run.id)
    assert measured.notes == {"split": "choosing", "images": 6 * tiny.CHOOSING}


def test_neighbors_of_a_second_image_cost_one_pass(store, run, image, tiny_benchmark, passes):
    tasks = same_domain(tiny_benchmark, "digits", run.experts)
    first = ImageTables(Towers(store, tiny_benchmark, Context("cpu"))).neighbors(image, run.id, tasks)
    passes.clear()
    again = ImageTables(Towers(store, tiny_benchmark, Context("cpu")))  # another process, later
    assert again.neighbors(image, run.id, tasks).equals(first)
    assert passes == {"attend": 1.0}


def test_a_store_that_cannot_be_written_to(store, run, image, tiny_benchmark, monkeypatch):
    def refused(*_, **__):
        raise StoreError("read-only")

    towers = Towers(store, tiny_benchmark, Context("cpu"), drafts={})
    expected = bank(towers(run.id).encoder, tiny_benchmark, ["digits"])
    monkeypatch.setattr(neighbors, "measure", refused)
    monkeypatch.setattr(neighbors.stored, "find", lambda *_: None)
    assert np.array_equal(neighbors.kept_bank(towers, run.id, ["digits"]).features, expected.features)


def test_nearest_to_some_images(towers, run, tiny_benchmark):
    kept = bank(towers(run.id).encoder, tiny_benchmark, ["digits", "flags"])
    names = ["digits:choosing:3", "flags:choosing:0", "letters:choosing:1"]  # the last one is not in the bank
    table = nearest_to(names, kept, 5)
    rows = kept.features.astype(np.float64)
    mean = rows[[3, tiny.CHOOSING]].mean(axis=0)
    cosines = rows @ mean / np.linalg.norm(mean)
    cosines[[3, tiny.CHOOSING]] = -1
    order = np.argsort(-cosines)[:5]
    names_of = [f"{'digits' if at < tiny.CHOOSING else 'flags'}:choosing:{at % tiny.CHOOSING}" for at in order]
    assert table["image"].tolist() == names_of
    np.testing.assert_allclose(table["value"], cosines[order], atol=1e-5)
    assert "digits:choosing:3" not in set(nearest_to(names[:1], kept, 39)["image"])  # it would be the nearest to itself
    with pytest.raises(TaskError, match="None of these images"):
        nearest_to(["letters:choosing:1"], kept)


def test_the_next_image_and_one_at_random(tiny_benchmark):
    names = ["a:reporting:1", "b:reporting:0", "a:reporting:7"]
    assert [following(names, name) for name in names] == [*names[1:], names[0]]
    assert following(names, names[0], -1) == names[2] and following(names, "c:reporting:1") == names[0]
    drawn = [at_random(tiny_benchmark, ["digits", "tiles"], seed) for seed in range(200)]
    assert drawn == [at_random(tiny_benchmark, ["digits", "tiles"], seed) for seed in range(200)]
    numbers = {task: {int(one.split(":")[2]) for one in drawn if one.startswith(task)} for task in ("digits", "tiles")}
    assert all(min(some) == 0 and max(some) == tiny.REPORTING - 1 for some in numbers.values())
    for call in (lambda: following([], "a"), lambda: at_random(tiny_benchmark, [], 0)):
        with pytest.raises(TaskError):
            call()
