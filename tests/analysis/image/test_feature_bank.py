"""The stored features among which neighbors are looked for, and finding images by them."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from merging.base.errors import StoreError, TaskError
from merging.models.model_references import PRETRAINED
from merging.study.analysis import measurement_store
from merging.study.measurements.find_images import next_image
from merging.study.one_image import nearest_images
from merging.study.one_image.image_tables import ImageTables
from merging.study.one_image.named_towers import Towers, expert_key
from merging.study.one_image.nearest_images import compute_bank, list_same_domain
from merging.study.runs.reference_models import find_references
from merging.tasks.context import Context


def test_stored_features_are_those_that_are_read(store, run, towers, tiny_benchmark):
    find_references(store, tiny_benchmark, context=Context(device="cpu"))
    tasks = ["flags", "digits"]  # another order than the benchmark's
    for key in (run.id, PRETRAINED, expert_key("digits")):
        kept, read = (
            nearest_images.get_bank(towers, key, tasks),
            compute_bank(towers(key).encoder, tiny_benchmark, tasks),
        )
        np.testing.assert_array_equal(kept.features, read.features)
        assert kept.images.equals(read.images) and kept.features.dtype == np.float16
    measured = measurement_store.find_measurement_result(nearest_images.BANK_MEASUREMENT, store, tiny_benchmark, run.id)
    assert measured.notes == {"split": "choosing", "images": 6 * tiny.CHOOSING}


def test_neighbors_of_a_second_image_cost_one_pass(store, run, image, tiny_benchmark, passes):
    tasks = list_same_domain(tiny_benchmark, "digits", run.experts)
    first = ImageTables(Towers(store, tiny_benchmark, Context("cpu"))).neighbors(image, run.id, tasks)
    passes.clear()
    again = ImageTables(Towers(store, tiny_benchmark, Context("cpu")))  # another process, later
    assert again.neighbors(image, run.id, tasks).equals(first)
    assert passes == {"attend": 1.0}


def test_a_store_that_cannot_be_written_to(store, run, image, tiny_benchmark, monkeypatch):
    def refused(*_, **__):
        raise StoreError("read-only")

    towers = Towers(store, tiny_benchmark, Context("cpu"), drafts={})
    expected = compute_bank(towers(run.id).encoder, tiny_benchmark, ["digits"])
    monkeypatch.setattr(nearest_images, "measure", refused)
    monkeypatch.setattr(nearest_images.measurement_store, "find_measurement_result", lambda *_: None)
    assert np.array_equal(nearest_images.get_bank(towers, run.id, ["digits"]).features, expected.features)


def test_the_next_image():
    names = ["a:reporting:1", "b:reporting:0", "a:reporting:7"]
    assert [next_image(names, name) for name in names] == [*names[1:], names[0]]
    assert next_image(names, names[0], -1) == names[2] and next_image(names, "c:reporting:1") == names[0]
    with pytest.raises(TaskError):
        next_image([], "a")
