"""Models & runs, models: folders of one's own, fit reports, and sets that Merge offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bad_files
import bad_parts
import bad_pickles
import pytest
import tiny
import torch
from models_page import run_merge, table
from page_harness import press, words
from safetensors.torch import load_file

from app import page_text
from app.reading import listed_models, page_data
from merging.sharing.catalog.model_set_store import list_model_sets

HOSTILE = "<img src=x onerror=alert(1)> $x$ **b**"


# Models


def test_without_models_of_ones_own(open_app: Any, library: Path) -> None:
    at = open_app("models", library)
    assert not at.exception and not at.error
    assert "MERGESCOPE\\_MODELS" in words(at) or "MERGESCOPE_MODELS" in words(at)
    assert list(table(at)["folder"].unique()) == [library.name]
    assert "None of your models" in at.info[0].value
    assert set(table(at)["name"]) == {"pretrained", "multitask", *tiny.EXPERTS}


def test_without_a_benchmark(open_app: Any, own_models: Path, tmp_path: Path) -> None:
    at = open_app("models", tmp_path / "nothing")
    assert not at.exception and not at.error
    assert len(table(at)) == 3
    press(at, "Add to the Merge page")
    at.switch_page("screens/merge.py").run()
    assert not at.exception and not at.error
    assert "not evaluated" in words(at) and "benchmark make" in at.code[0].value


def test_a_folder_is_listed_with_what_each_file_is(open_app: Any, library: Path, own_models: Path) -> None:
    (own_models / f"{HOSTILE}.safetensors").write_bytes(b"")
    (own_models / "notes.txt").write_text("hello")
    bad_pickles.RUNNING["exec"][0](own_models)
    at = open_app("models", library)
    assert not at.exception and not at.error
    rows = table(at)[table(at)["folder"] == "clip"].set_index("name")
    assert rows["what"].to_dict() == {"circles": "model", "digits": "model", "pretrained": "pretrained"}
    assert rows.loc["digits", "fits"].startswith("pretrained, changed by")
    assert rows.loc["digits", "architecture"] == "2 × 16, patch 8, 16 px"
    assert rows["digest"].str.fullmatch("[0-9a-f]{8}").all()
    said = words(at)
    assert "2 files cannot be read" in said and "asks to run code" in said and "is empty" in said
    assert page_text.safe_text(f"clip/{HOSTILE}.safetensors", 120) in said
    assert "notes\\.txt" in said
    assert not (own_models / bad_parts.MARKER).exists()


@pytest.mark.parametrize("case", ["safetensors: cut in data", "path: dot dot", "torch: zip bomb", "runs: tar"])
def test_bad_files_never_break_the_page(open_app: Any, library: Path, own_models: Path, case: str) -> None:
    bad_files.CASES[case][0](own_models)
    at = open_app("models", library)
    assert not at.exception
    assert "cannot be read" in words(at)


def test_the_fit_report_is_there_before_anything_is_computed(open_app: Any, library: Path, own_models: Path) -> None:
    broken = load_file(own_models / "digits.safetensors")
    broken["visual.ln_post.bias"][0] = torch.nan
    broken["visual.proj"] = broken["visual.proj"][:, :3].contiguous()
    tiny.write(own_models / "digits.safetensors", broken, torch.float32)
    at = open_app("models", library)
    assert "They cannot be merged" in at.error[0].value
    assert "not finite" in at.error[0].value and "expected \\(16, 8\\)" in at.error[0].value
    assert next(button for button in at.button if button.key == "keep_set").disabled
    at.multiselect[0].unselect("models:clip/digits.safetensors").run()
    assert not at.error
    assert "All 32 tensors of every checkpoint fit" in words(at)
    assert not next(button for button in at.button if button.key == "keep_set").disabled


def test_warnings_are_in_words(open_app: Any, library: Path, own_models: Path) -> None:
    tiny.write(own_models / "digits.safetensors", load_file(own_models / "circles.safetensors"), torch.float32)
    at = open_app("models", library)
    assert "same file twice" in at.warning[0].value
    assert "They can be merged" in at.warning[0].value
    at = open_app("models", library)
    stranger = tiny.write(own_models / "stranger.safetensors", tiny.pretrained(9), torch.float32)
    listed_models.list_again()
    at.run()
    at.multiselect[0].set_value([f"models:clip/{stranger.name}"]).run()
    assert "unrelated" in at.warning[0].value
    distances = next(frame.value for frame in at.dataframe if "Verdict" in frame.value)
    assert list(distances["Verdict"]) == ["unrelated"]


@pytest.mark.full
def test_a_set_is_offered_on_merge_and_merged(open_app: Any, library: Path, own_models: Path, tmp_path: Path) -> None:
    at = open_app("models", library)
    names = [field for field in at.text_input if "_name_" in str(field.key)]
    assert [field.value for field in names] == ["circles", "digits"]
    names[0].set_value("kreise").run()
    at.text_input(key=next(str(f.key) for f in at.text_input if str(f.key).endswith("_title"))).set_value(
        "My set"
    ).run()
    press(at, "Add to the Merge page")
    (made,) = list_model_sets(tmp_path / "store")
    assert (made.title, dict(made.experts)["kreise"]) == ("My set", "models:clip/circles.safetensors")
    assert "My set" in words(at)
    at.switch_page("screens/merge.py")
    at.query_params["models"] = made.id
    at.run()
    assert at.selectbox(key="models_chosen").value == made.id
    assert at.multiselect(key="experts_chosen").value == ["kreise", "digits"]
    run = page_data.store().get_run(run_merge(at))
    assert run.experts == ("kreise", "digits") and run.has_scores  # digits is a task of the benchmark
    assert at.query_params["models"] == made.id


def test_merge_shows_the_set_that_was_added_last(
    open_app: Any, library: Path, own_models: Path, tmp_path: Path
) -> None:
    at = open_app("merge", library)  # a draft of the benchmark's models is begun
    at.switch_page("screens/models.py").run()
    press(at, "Add to the Merge page")
    (made,) = list_model_sets(tmp_path / "store")
    at.query_params.clear()
    at.switch_page("screens/merge.py").run()  # as by the sidebar's link
    assert not at.exception and not at.error
    assert at.selectbox(key="models_chosen").value == made.id
    assert at.multiselect(key="experts_chosen").value == ["circles", "digits"]
    assert at.query_params["models"] in (made.id, [made.id])


@pytest.mark.full
def test_a_set_without_a_benchmark_is_merged_without_scores(
    open_app: Any, library: Path, own_models: Path, own_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "SIZE", 16)
    for path in own_models.glob("*.safetensors"):
        state = load_file(path)
        state["visual.positional_embedding"] = torch.cat([state["visual.positional_embedding"]] * 2)
        tiny.write(path, state, torch.float32)
    at = open_app("merge", library, models=own_set, chain="weight_averaging")
    assert "not evaluated" in words(at) and "of computing (" in words(at)
    run = page_data.store().get_run(run_merge(at))
    assert not run.has_scores and run.has_model
    assert words(at.run()).count("Not evaluated") == 1 and "It was not evaluated" not in words(at)


def test_chains_that_need_images_are_refused_with_the_reason(
    open_app: Any, library: Path, own_models: Path, own_set: str, tmp_path: Path
) -> None:
    at = open_app("merge", tmp_path / "nothing", models=own_set, chain="lot")
    assert not at.exception
    assert "training images" in at.error[0].value and "benchmark folder" in at.error[0].value
    assert next(button for button in at.button if button.key == "run_button").disabled


def test_switching_models_keeps_the_chain(open_app: Any, library: Path, own_set: str) -> None:
    at = open_app("merge", library, chain="lwptv:prune_ratio=0.3;ties")
    assert at.multiselect(key="experts_chosen").value == list(tiny.EXPERTS)
    at.selectbox(key="models_chosen").select(own_set).run()
    assert at.multiselect(key="experts_chosen").value == ["circles", "digits"]
    assert at.query_params["chain"] == "lwptv:prune_ratio=0.3;ties"
    at.switch_page("screens/sweeps.py").run()
    assert not at.exception  # the draft is on models that sweeps do not offer
    at.switch_page("screens/merge.py").run()
    assert at.selectbox(key="models_chosen").value == own_set
    at.selectbox(key="models_chosen").select("").run()
    assert at.multiselect(key="experts_chosen").value == list(tiny.EXPERTS)


def test_a_recipe_of_a_set_is_taken_over(open_app: Any, library: Path, own_set: str) -> None:
    at = open_app("merge", library, models=own_set, chain="ties")
    recipe = next(block.value for block in at.code if "pretrained:" in block.value)
    assert "models:clip/pretrained.safetensors" in recipe and "/tmp" not in recipe
    at = open_app("merge", library)
    at.text_area(key="recipe_text").set_value(recipe)
    press(at, "Use this recipe")
    assert at.selectbox(key="models_chosen").value == own_set
    assert at.query_params["chain"] == "ties"


@pytest.mark.parametrize("damage", ["gone", "cut", "replaced"])
def test_a_file_that_changes_while_in_use_is_a_sentence(
    open_app: Any, library: Path, own_models: Path, own_set: str, damage: str
) -> None:
    path = own_models / "digits.safetensors"
    at = open_app("merge", library, models=own_set, chain="ties")
    assert "All 32 tensors" in words(at)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:5000] if damage == "cut" else b"<!DOCTYPE html>")
    at.run()
    assert not at.exception
    assert {"gone": "not found", "cut": "truncated", "replaced": "web page"}[damage] in at.error[0].value
    assert at.selectbox(key="models_chosen").value == own_set  # another set can be chosen
    (own_models / "pretrained.safetensors").unlink()
    at.run()
    assert not at.exception and at.error


def test_a_set_that_is_gone_says_so(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, models="0123456789ab")
    assert not at.exception
    assert "no longer available" in at.warning[0].value
    assert at.multiselect(key="experts_chosen").value == list(tiny.EXPERTS)


def test_sets_are_forgotten(open_app: Any, library: Path, own_set: str, tmp_path: Path) -> None:
    at = open_app("models", library)
    press(at, "Forget")
    assert not at.exception
    assert list_model_sets(tmp_path / "store") == []


def test_a_benchmark_among_the_models_is_offered(open_app: Any, library: Path, own_models: Path) -> None:
    tiny.write_benchmark(own_models / "bench")
    at = open_app("models", library)
    assert "is a benchmark folder" in words(at)
    assert [button for button in at.button if button.label == "Switch to it"]


def test_files_are_looked_into_in_slices(open_app: Any, library: Path, own_models: Path, monkeypatch: Any) -> None:
    left = []
    whole = listed_models.list_models

    def noted(*args: Any) -> listed_models.ListedModels:
        found = whole(*args)
        left.append(found.not_inspected)
        return found

    monkeypatch.setattr(listed_models, "MAX_READ_SECONDS", -1.0)
    monkeypatch.setattr(listed_models, "list_models", noted)
    at = open_app("models", library)
    assert not at.exception
    assert left == sorted(left, reverse=True) and left[0] > 3 and left[-1] == 0
