"""Tables about images on the bench: the library's own, table by table, and in words what cannot be made."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pandas as pd
import pytest
from direct_bench import answer_tables
from torch import Tensor

from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import image_stages
from merging.study.image_stages import ERROR_COLUMN, MAX_DRAFTS
from merging.study.one_image.image_tables import ImageTables
from merging.study.one_image.named_towers import MAX_TOWERS, Towers
from merging.study.one_image.studied_image import find_image, image_from_pixels
from merging.study.previews import models_in_memory
from merging.study.previews.preview_process import (
    IMAGES_PER_TABLE,
    ImageRequest,
    PreviewProcess,
    PreviewState,
    TableName,
)
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

IMAGE = "letters:reporting:4"


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_benchmark):
    store = Store(tmp_path_factory.mktemp("store"), libraries=())
    recipe = find_preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    return execute(recipe, store, benchmark=tiny_benchmark)


def request(benchmark, run, *names: tuple[str, str, str], **more) -> ImageRequest:
    fields = {"image": IMAGE, "store": str(run.path.parent.parent), "benchmark": str(benchmark.folder)} | more
    return ImageRequest(tables=tuple(TableName(*name) for name in names), **fields)


def tables(asked: ImageRequest) -> dict[TableName, pd.DataFrame]:
    state = answer_tables(asked)
    assert not state.error, state.error
    return state.tables


def test_tables_are_the_library_s_own(tiny_benchmark, run):
    store = Store(run.path.parent.parent, libraries=())
    made, image = ImageTables(Towers(store, tiny_benchmark, Context("cpu"))), find_image(tiny_benchmark, IMAGE)
    names = [
        ("lens", run.id, ""), ("restore", run.id, "pretrained"), ("attention", run.id, "1"),
        ("attention", run.id, "rollout"), ("full_summary", run.id, "pretrained"),
        ("quick_summary", run.id, "pretrained"),
    ]  # fmt: skip
    found = tables(request(tiny_benchmark, run, *names))
    pd.testing.assert_frame_equal(found[names[0]], made.lens(image, run.id), check_dtype=False)
    pd.testing.assert_frame_equal(found[names[1]], made.restore(image, run.id, "pretrained"), check_dtype=False)
    whole = made.attention(image, run.id)
    assert len(found[names[2]]) == (whole["block"] == 1).sum() and set(found[names[2]]["block"]) == {1}
    assert len(found[names[3]]) == (whole["view"] == "rollout").sum() and set(found[names[3]]["view"]) == {"rollout"}
    assert found[names[4]]["sentence"][0] == made.sentence(image, run.id, "pretrained")
    assert found[names[5]]["sentence"][0] == made.sentence(image, run.id, "pretrained", restored=False)


def test_a_table_that_cannot_be_made_leaves_the_others(tiny_benchmark, run):
    names = [("lens", "0" * 12, ""), ("lens", "experts/letters", ""), ("nothing", run.id, ""), ("lens", run.id, "")]
    found = tables(request(tiny_benchmark, run, *names))
    assert [ERROR_COLUMN in found[name] for name in names] == [True, True, True, False]
    assert "There is no run" in found[names[0]][ERROR_COLUMN][0] and "no expert" in found[names[1]][ERROR_COLUMN][0]
    state = answer_tables(request(tiny_benchmark, run, names[-1], image="letters:reporting:99999"))
    assert "images in the split" in state.error and not state.tables


def test_a_draft_is_merged_in_memory_and_has_a_key_of_its_own(tiny_benchmark, run):
    recipe = Recipe.build(
        "task_arithmetic", {"scaling": 0.3}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, "Mine"
    )
    names = [("lens", "draft", ""), ("restore", "draft", "pretrained"), ("lens", run.id, "")]
    found = tables(request(tiny_benchmark, run, *names, draft=recipe.to_yaml()))
    assert set(found[names[0]]["model"]) == {"draft"} and set(found[names[0]]["title"]) == {"Mine"}
    assert set(found[names[1]]["donor"]) == {"pretrained"}
    same = ["depth", "number", "probability", "rank"]
    pd.testing.assert_frame_equal(found[names[0]][same], found[names[2]][same], rtol=1e-5)
    lot = Recipe.build("adamerging", {"steps": 1}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    assert answer_tables(request(tiny_benchmark, run, names[0], draft=lot.to_yaml())).error  # it learns


def test_drafts_of_sessions_that_take_turns_stay_in_memory(tiny_benchmark, run, monkeypatch):
    merged_scalings: list[float] = []

    def merged(opened: OpenedRecipe, *given: Any) -> dict[str, dict[str, Tensor]]:
        merged_scalings.append(opened.recipe.merge.params.values()["scaling"])
        return models_in_memory.merge_in_memory(opened, *given)

    monkeypatch.setattr(image_stages, "merge_in_memory", merged)
    image_stages.open_tables.cache_clear()

    def ask(*scalings: float) -> list[float]:
        """The drafts that are merged for these requests."""
        merged_scalings.clear()
        for scaling in scalings:
            built = "task_arithmetic", {"scaling": scaling}, [], tiny_benchmark.pretrained, tiny_benchmark.experts
            draft = Recipe.build(*built).to_yaml()
            tables(request(tiny_benchmark, run, ("lens", "draft", ""), draft=draft))
        return list(merged_scalings)

    assert MAX_DRAFTS == 3 and ask(0.1, 0.2, 0.3) == [0.1, 0.2, 0.3]
    assert ask(0.1, 0.3, 0.2, 0.1) == []
    assert ask(0.4, 0.1, 0.2, 0.3) == [0.4, 0.3]  # 0.3 was not asked for longest


def test_an_own_picture_is_sent_as_pixels(tiny_benchmark, run):
    size = tiny_benchmark.image_size
    pixels = np.random.default_rng(0).integers(0, 255, (size, size, 3), np.uint8)
    asked = request(
        tiny_benchmark, run, ("lens", "pretrained", ""), image="", head="letters",
        pixels=base64.b64encode(pixels.tobytes()).decode(),
    )  # fmt: skip
    found = tables(asked)["lens", "pretrained", ""]
    made = ImageTables(Towers(Store(run.path.parent.parent, libraries=()), tiny_benchmark, Context("cpu")))
    expected = made.lens(image_from_pixels(tiny_benchmark, pixels, "letters"), "pretrained")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert not found["right"].any()


def test_at_most_four_towers_stay_in_memory(tiny_benchmark, run):
    image_stages.open_tables.cache_clear()
    keys = ["pretrained", run.id, *(f"experts/{task}" for task in tiny_benchmark.experts)]
    asked = request(tiny_benchmark, run, *(("lens", key, "") for key in keys))
    tables(asked)
    tables(asked)  # what is in memory serves the next request
    assert image_stages.open_tables.cache_info().misses == 1
    state = image_stages.state_of(tiny_benchmark.folder)
    made = image_stages.open_tables(tiny_benchmark.folder, state, run.path.parent.parent, "cpu")
    assert len(keys) > MAX_TOWERS and len(made.towers) == MAX_TOWERS


@pytest.mark.full
def test_the_process_sends_tables_as_they_are_made(tiny_benchmark, run):
    import time

    charged: list[tuple[str, int]] = []
    bench = PreviewProcess("cpu", idle=2.0, charge=lambda session, images: charged.append((session, images)))
    asked = request(tiny_benchmark, run, ("lens", run.id, ""), ("restore", run.id, "pretrained"))
    try:
        state: PreviewState | None = bench.send_request("a", asked)
        limit = time.monotonic() + 120
        while state is not None and not state.done and time.monotonic() < limit:
            time.sleep(0.02)
            state = bench.find_state("a", asked)
        assert state is not None and state.done and not state.error
        assert list(state.tables) == list(asked.tables)
        assert not any(ERROR_COLUMN in table for table in state.tables.values())
        assert {session for session, _ in charged} == {"a"} and sum(
            images for _, images in charged
        ) == 2 * IMAGES_PER_TABLE
    finally:
        bench.close()
