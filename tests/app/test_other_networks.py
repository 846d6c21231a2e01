"""Models that are no CLIP: listed, merged, shown where weights are enough; elsewhere a sentence says what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import other_kinds
import pytest
import torch
from models_page import table
from page_harness import charts, labels, press, run_until_idle, words

from app.reading import page_data
from merging.engine.capture.data_files import save_layer_inputs
from merging.recipes.recipe import Recipe
from merging.sharing.catalog.model_set_store import make_model_set as make_set
from merging.sharing.catalog.model_set_store import store_model_set as keep_set
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture
def t5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """References to a pretrained T5 and two experts in a models folder."""
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tmp_path / "t5"))
    return other_kinds.write_team(tmp_path / "t5", "T5", ("qasc", "rte"))


@pytest.fixture
def run(t5: dict[str, str], tmp_path: Path) -> Run:
    """A stored run of them."""
    experts = {name: reference for name, reference in t5.items() if name != "pretrained"}
    recipe = Recipe.build("ties", edits=["lwptv"], pretrained=t5["pretrained"], experts=experts)
    return execute(recipe, Store(tmp_path / "store", libraries=()), context=Context(device="cpu"))


def test_they_are_listed_as_models_that_belong_together(open_app: Any, library: Path, t5: dict[str, str]) -> None:
    at = open_app("models", library)
    assert not at.exception
    rows = table(at).set_index("name")
    assert rows.loc["qasc", "architecture"] == "T5, 4 blocks"
    assert str(rows.loc["qasc", "fits"]).startswith("pretrained, changed by")
    assert "These models are of T5" in words(at) and "benchmark make" not in words(at)


def test_merge_names_what_does_not_fit_into_memory(
    open_app: Any, library: Path, t5: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_set("T5", t5["pretrained"], {name: t5[name] for name in ("qasc", "rte")})
    keep_set(tmp_path / "store", made)
    monkeypatch.setattr("merging.base.free_memory.free_memory", lambda: 1000)
    at = open_app("merge", library, models=made.id, chain="drm")
    said = next(error.value for error in at.error if "Memory is too small" in error.value)
    assert "tensors that DRM cannot merge in pieces" in said and "DenseReluDense" in said and "1 kB are free" in said


@pytest.mark.full
def test_a_set_is_merged_and_methods_for_clip_are_refused(
    open_app: Any, library: Path, t5: dict[str, str], tmp_path: Path
) -> None:
    experts = {name: reference for name, reference in t5.items() if name != "pretrained"}
    made = make_set("T5", t5["pretrained"], experts)
    keep_set(tmp_path / "store", made)
    at = open_app("merge", library, models=made.id, chain="fisher")
    assert at.button(key="run_button").disabled
    assert any("T5" in error.value for error in at.error)
    assert not [box for box in at.selectbox if box.label in {"Activation", "Then adapt it with"}]
    at = open_app("merge", library, models=made.id, chain="ties")
    assert "qasc, rte: the order of its tokens was not checked" in words(at).replace("\\", "")
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.exception and "Not evaluated\\: images pass through CLIP towers" in words(at)
    assert "It was not evaluated" not in words(at)
    jobs = page_data.job_queue().list_jobs()
    (run_id,) = {job.subject for job in jobs}
    assert {job.kind for job in jobs} == {"merge", "signs", "pairs"}  # what pages show of it is measured after it
    assert page_data.store().get_run(run_id).network == "T5"


@pytest.mark.parametrize("page,least", [("masks", 2), ("conflicts", 1), ("compare", 0)])
def test_pages_on_weights_show_them(open_app: Any, library: Path, run: Run, page: str, least: int) -> None:
    at = open_app(page, library, run=run.id)
    assert not at.exception and not at.error
    assert charts(at) >= least


@pytest.mark.parametrize("page", ["drift", "features", "image"])
def test_pages_on_images_say_that_it_is_no_clip(open_app: Any, library: Path, run: Run, page: str) -> None:
    at = open_app(page, library)
    assert not at.exception
    assert "1 run of T5 is not offered on this page." in words(at)
    at = open_app(page, library, runs=run.id)
    assert not at.exception
    says = (
        "Drift by depth passes images through CLIP towers; this run is of T5."
        if page == "drift"
        else ("is of T5. This page passes images through CLIP towers")
    )
    assert says in words(at)


def test_one_tower_of_several_can_be_shown(open_app: Any, library: Path, run: Run) -> None:
    at = open_app("masks", library, run=run.id, tower="decoder")
    assert not at.exception
    (tensors,) = [box.options for box in at.selectbox if box.label == "Tensor"]
    assert len(tensors) > 10 and all(name.startswith("decoder.") for name in tensors[1:])


@pytest.mark.full
def test_methods_says_what_such_models_need_and_what_papers_print_of_them(
    open_app: Any, library: Path, t5: dict[str, str], tmp_path: Path
) -> None:
    at = open_app("methods", library, method="lot")
    assert not [toggle for toggle in at.toggle if toggle.label == "Beyond CLIP"] and "BLIP" not in words(at)
    assert "here" not in {column for frame in at.dataframe for column in frame.value.columns}
    experts = {name: reference for name, reference in t5.items() if name != "pretrained"}
    made = make_set("T5", t5["pretrained"], experts)
    keep_set(tmp_path / "store", made)
    at = open_app("methods", library, method="lot", models=made.id)
    assert not at.exception and "Needs on this model: the inputs of each method for T5" in words(at)
    (needs,) = [frame.value for frame in at.dataframe if "here" in frame.value.columns]
    here = needs.set_index("title")["here"]
    assert (here["LOT"], here["Fisher Merging"], here["TIES"]) == ("layer inputs", "gradients", "nothing")
    assert here["TATR"] == "gradients; nothing with sensitivity magnitude" and here["MASS"] == "not possible"
    (blip,) = [frame.value for frame in at.dataframe if ("CIDEr", "COCO") in frame.value.columns]
    assert blip.iloc[0]["CIDEr", "COCO"] == "0.91" and blip.iloc[0]["accuracy", "OKVQA"] == "38.35%"
    at = open_app("methods", library, method="ties", other_networks="true")
    shown = [part for part in words(at).split("**") if part in {"T5-base", "DeBERTa-v3-base", "BLIP-VQA"}]
    assert shown == ["DeBERTa-v3-base", "T5-base", "BLIP-VQA"]


@pytest.mark.full
def test_drift_shows_a_run_layer_by_layer_if_its_recipe_names_layer_inputs(
    open_app: Any, library: Path, run: Run, t5: dict[str, str], tmp_path: Path
) -> None:
    at = open_app("drift", library, drift_view="layer by layer", runs=run.id)
    assert "this run is of T5. Layer by layer works with layer inputs" in words(at)
    base, draw, files = other_kinds.pretrained("T5"), torch.Generator().manual_seed(0), {}
    linear = [name for name, value in base.items() if name.endswith((".q.weight", ".wi.weight"))]
    for name in ("qasc", "rte"):
        files[name] = str(tmp_path / f"{name}.rows.safetensors")
        rows = {tensor: torch.randn(5, base[tensor].shape[1], generator=draw) for tensor in linear}
        save_layer_inputs(files[name], rows)
    recipe = Recipe.build("lot", pretrained=t5["pretrained"], layer_inputs=files,
                          experts={name: t5[name] for name in files})  # fmt: skip
    lot = execute(recipe, page_data.store(), context=Context(device="cpu"))
    at = open_app("drift", library, drift_view="layer by layer", runs=lot.id)
    assert not at.exception and "1 run of T5 is not offered on this page" in words(at)
    assert "Drift layer by layer, from the layer inputs that the recipe names, has not been measured" in words(at)
    press(at, "Measure")
    at = run_until_idle(at)
    assert not at.exception and charts(at) == 2 and "put" not in " ".join(labels(at, "button"))
    assert "n = 5 rows per tensor and task, from qasc.rows.safetensors, rte.rows.safetensors." in words(at)
    tensor = next(box for box in at.selectbox if box.label == "Tensor")
    assert tensor.options[1:] == linear
    tensor.select(linear[0]).run()
    assert not at.exception and charts(at) == 3
    at = open_app("drift", library, runs=lot.id)
    assert "this run is of T5" in words(at)
