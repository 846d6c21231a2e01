"""Neighbors, what tables cost, and what is asked for or refused."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from torch.nn.functional import normalize

from merging.base.errors import TaskError
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.one_image.image_tables import ImageTables
from merging.study.one_image.named_towers import MAX_TOWERS, Towers, expert_key, model_key, reference_key
from merging.study.one_image.nearest_images import compute_bank, list_same_domain, mean_overlap
from merging.study.one_image.studied_image import find_image, parse_image_name
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

BLOCKS, PATCHES = tiny.LAYERS, tiny.TOKENS - 1
NAME = "digits:reporting:3"


# Neighbors


def test_neighbors_are_those_of_all_cosines(made, towers, run, tiny_benchmark):
    tasks = list_same_domain(tiny_benchmark, "digits", run.experts)
    assert tasks == list(tiny.EXPERTS) and list_same_domain(tiny_benchmark, "tiles", run.experts) == list(tiny.OUTSIDE)
    studied = find_image(tiny_benchmark, "digits:choosing:5")
    encoder, cosines = towers(run.id).encoder, {}
    own = normalize(encoder(studied.inputs), dim=-1)[0]
    for task in tasks:
        for number, x in enumerate(tiny_benchmark.preprocess(tiny_benchmark.load_unlabeled(task, "choosing"))):
            cosines[f"{task}:choosing:{number}"] = float(normalize(encoder(x[None]), dim=-1)[0] @ own)
    del cosines[studied.name]  # the image itself
    expected = sorted(cosines, key=cosines.__getitem__, reverse=True)[:20]
    table = made.neighbors(studied, run.id, tasks)
    assert table["image"].tolist() == expected
    np.testing.assert_allclose(table["cosine"], [cosines[name] for name in expected], atol=5e-4)  # half precision
    assert made.overlap(studied, run.id, run.id, tasks)[["overlap", "mean"]].to_numpy().tolist() == [[1.0, 1.0]]
    shown = made.overlap(studied, run.id, PRETRAINED, tasks).iloc[0]
    near = [set(made.neighbors(studied, key, tasks)["image"]) for key in (run.id, PRETRAINED)]
    assert shown["overlap"] == len(near[0] & near[1]) / 20 and shown["n"] == tiny.CHOOSING
    banks = tuple(compute_bank(towers(key).encoder, tiny_benchmark, tasks) for key in (run.id, PRETRAINED))
    assert mean_overlap(banks, np.array([tiny.CHOOSING + 5])) == shown["overlap"]  # digits are the second data set


# What it costs


def test_three_tables_of_four_models_cost_four_passes(made, towers, image, run, tiny_benchmark, passes):
    keys = [PRETRAINED, expert_key("digits"), expert_key("flags"), run.id]
    for key in keys:
        towers(key)
    for key in keys:
        made.lens(image, key)
        made.attention(image, key)
        made.drift(image, key, expert_key("digits"), scaled=False)
        made.attention_change(image, key, expert_key("digits"))
    assert passes == {"attend": 4.0}
    passes.clear()
    made.restore(image, run.id, PRETRAINED)
    assert passes["run"] == 3 * sum(BLOCKS - b for b in range(BLOCKS)) / BLOCKS and not passes["attend"]
    passes.clear()
    made.restore(image, run.id, PRETRAINED)
    made.lens(image, run.id)
    assert not passes


def test_four_towers_are_in_memory_and_the_rest_is_read(store, tiny_benchmark, run):
    own = Towers(store, tiny_benchmark, Context("cpu"))
    first = own(run.id)
    assert own(run.id) is first
    for task in tiny_benchmark.experts:
        own(expert_key(task))
    assert len(own) == MAX_TOWERS and own(run.id) is not first
    assert torch.equal(own(run.id).encoder.tensors["proj"], first.encoder.tensors["proj"])


# What is asked for, and what is refused


@pytest.mark.parametrize("name", ["digits", "digits:reporting", "digits:training:1", "digits:reporting:-1", "a:b:c"])
def test_a_name_that_is_none(name):
    with pytest.raises(TaskError, match="TASK:SPLIT:N"):
        parse_image_name(name)


def test_images_and_models_that_are_not_there(tiny_benchmark, towers, store):
    with pytest.raises(TaskError, match="digits has 30 images in the split 'reporting', numbered from 0; got 30"):
        find_image(tiny_benchmark, "digits:reporting:30")
    with pytest.raises(TaskError, match="Letters has no expert"):
        towers(expert_key("letters"))
    assert find_image(tiny_benchmark, NAME, "flags").label is None


@pytest.mark.full
def test_one_model_per_expert(tmp_path, tiny_benchmark):
    own = Store(tmp_path, libraries=())
    emr = execute(Recipe.build("emr", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts), own,
                  benchmark=tiny_benchmark)  # fmt: skip
    assert reference_key(emr, "digits") == expert_key("digits") and reference_key(emr, "tiles") == PRETRAINED
    made = ImageTables(Towers(own, tiny_benchmark, Context("cpu")))
    studied = find_image(tiny_benchmark, NAME)
    assert made.lens(studied, model_key(emr, "digits"))["title"][0].endswith("model of digits")
    with pytest.raises(TaskError, match="one model per expert, and none is of tiles"):
        model_key(emr, "tiles")
    with pytest.raises(TaskError, match=f"Write {emr.id}/circles"):
        made.trace(studied, emr.id)


def test_a_draft_that_is_not_stored(store, tiny_benchmark, image):
    held = tiny.checkpoint(tiny.pretrained())
    own = Towers(store, tiny_benchmark, Context("cpu"), drafts={"draft": ("My draft", held)})
    made = ImageTables(own)
    assert (made.drift(image, "draft", PRETRAINED)["drift"] < 1e-4).all()  # files are in half precision
    assert made.sentence(image, "draft", PRETRAINED).startswith("My draft says “digits ")
