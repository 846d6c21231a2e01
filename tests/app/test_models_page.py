"""Models & runs: own folders, typed paths, uploads, sets that Merge offers, runs to choose, export, drop and delete."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bad_files
import pytest
import test_app
import tiny
import torch
from safetensors.torch import load_file
from streamlit.testing.v1 import AppTest
from test_app import charts, finish, press, words
from test_shelf import transformers

from app import text
from app.reading import data, models
from app.views.runs import actions
from app.views.runs import export as run_export
from app.widgets import fit_report
from merging.catalog.model_sets import all_sets
from merging.catalog.model_sets import keep as keep_set
from merging.catalog.model_sets import make as make_set
from merging.checkpoints import digests
from merging.export import stored

library, open_app = test_app.library, test_app.open_app  # fixtures
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b**"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with a pretrained model and two experts, as files."""
    folder = tmp_path / "clip"
    folder.mkdir()
    base, tuned = tiny.family(("circles", "digits"))
    for name, state in {"pretrained": base, **tuned}.items():
        tiny.write(folder / f"{name}.safetensors", state, torch.float32)
    monkeypatch.setenv("MERGESCOPE_MODELS", str(folder))
    return folder


@pytest.fixture
def mine(root: Path, tmp_path: Path) -> str:
    """The id of a set of those models."""
    made = make_set("Mine", "models:clip/pretrained.safetensors",
                    {name: f"models:clip/{name}.safetensors" for name in ("circles", "digits")})  # fmt: skip
    keep_set(tmp_path / "store", made)
    return made.id


def table(at: AppTest) -> Any:
    return at.dataframe[0].value


def tick(at: AppTest, runs: list[str]) -> AppTest:
    """Choose runs."""
    return at.multiselect(key="chosen_runs").set_value(runs).run()


def merged(at: AppTest, chain: str = "ties") -> str:
    """Press Run and wait; gives the run's id."""
    press(at, "Run")
    at = finish(at)
    assert not at.error and not at.exception
    return next(job.id for job in data.runner().jobs() if job.kind == "merge")


# Models


def test_without_models_of_ones_own(open_app: Any, library: Path) -> None:
    at = open_app("models", library)
    assert not at.exception and not at.error
    assert "MERGESCOPE\\_MODELS" in words(at) or "MERGESCOPE_MODELS" in words(at)
    assert list(table(at)["folder"].unique()) == [library.name]
    assert "None of your models" in at.info[0].value
    assert set(table(at)["name"]) == {"pretrained", "multitask", *tiny.EXPERTS}


def test_without_a_benchmark(open_app: Any, root: Path, tmp_path: Path) -> None:
    at = open_app("models", tmp_path / "nothing")
    assert not at.exception and not at.error
    assert len(table(at)) == 3
    press(at, "Add to the Merge page")
    at.switch_page("screens/merge.py").run()
    assert not at.exception and not at.error
    assert "not evaluated" in words(at) and "benchmark make" in at.code[0].value


def test_a_folder_is_listed_with_what_each_file_is(open_app: Any, library: Path, root: Path) -> None:
    (root / f"{HOSTILE}.safetensors").write_bytes(b"")
    (root / "notes.txt").write_text("hello")
    bad_files.RUNNING["exec"][0](root)
    at = open_app("models", library)
    assert not at.exception and not at.error
    rows = table(at)[table(at)["folder"] == "clip"].set_index("name")
    assert rows["what"].to_dict() == {"circles": "model", "digits": "model", "pretrained": "pretrained"}
    assert rows.loc["digits", "fits"].startswith("pretrained, changed by")
    assert rows.loc["digits", "architecture"] == "2 × 16, patch 8, 16 px"
    assert rows["digest"].str.fullmatch("[0-9a-f]{8}").all()
    said = words(at)
    assert "2 files cannot be read" in said and "asks to run code" in said and "is empty" in said
    assert text.safe_text(f"clip/{HOSTILE}.safetensors", 120) in said
    assert "notes\\.txt" in said
    assert not (root / bad_files.MARKER).exists()


@pytest.mark.parametrize("case", ["safetensors: cut in data", "path: dot dot", "torch: zip bomb", "runs: tar"])
def test_bad_files_never_break_the_page(open_app: Any, library: Path, root: Path, case: str) -> None:
    bad_files.CASES[case][0](root)
    at = open_app("models", library)
    assert not at.exception
    assert "cannot be read" in words(at)


def test_the_fit_report_is_there_before_anything_is_computed(open_app: Any, library: Path, root: Path) -> None:
    broken = load_file(root / "digits.safetensors")
    broken["visual.ln_post.bias"][0] = torch.nan
    broken["visual.proj"] = broken["visual.proj"][:, :3].contiguous()
    tiny.write(root / "digits.safetensors", broken, torch.float32)
    at = open_app("models", library)
    assert "They cannot be merged" in at.error[0].value
    assert "not finite" in at.error[0].value and "expected \\(16, 8\\)" in at.error[0].value
    assert next(button for button in at.button if button.key == "keep_set").disabled
    at.multiselect[0].unselect("models:clip/digits.safetensors").run()
    assert not at.error
    assert "All 32 tensors of every checkpoint fit" in words(at)
    assert not next(button for button in at.button if button.key == "keep_set").disabled


@pytest.mark.slow
def test_warnings_are_in_words(open_app: Any, library: Path, root: Path) -> None:
    tiny.write(root / "digits.safetensors", load_file(root / "circles.safetensors"), torch.float32)
    at = open_app("models", library)
    assert "same file twice" in at.warning[0].value
    assert "They can be merged" in at.warning[0].value
    at = open_app("models", library)
    stranger = tiny.write(root / "stranger.safetensors", tiny.pretrained(9), torch.float32)
    models.look_again()
    at.run()
    at.multiselect[0].set_value([f"models:clip/{stranger.name}"]).run()
    assert "unrelated" in at.warning[0].value
    distances = next(frame.value for frame in at.dataframe if "Verdict" in frame.value)
    assert list(distances["Verdict"]) == ["unrelated"]


@pytest.mark.slow
def test_a_set_is_offered_on_merge_and_merged(open_app: Any, library: Path, root: Path, tmp_path: Path) -> None:
    at = open_app("models", library)
    names = [field for field in at.text_input if "_name_" in str(field.key)]
    assert [field.value for field in names] == ["circles", "digits"]
    names[0].set_value("kreise").run()
    at.text_input(key=next(str(f.key) for f in at.text_input if str(f.key).endswith("_title"))).set_value(
        "My set"
    ).run()
    press(at, "Add to the Merge page")
    (made,) = all_sets(tmp_path / "store")
    assert (made.title, dict(made.experts)["kreise"]) == ("My set", "models:clip/circles.safetensors")
    assert "My set" in words(at)
    at.switch_page("screens/merge.py")
    at.query_params["models"] = made.id
    at.run()
    assert at.selectbox(key="models_chosen").value == made.id
    assert at.multiselect(key="experts_chosen").value == ["kreise", "digits"]
    run = data.store().run(merged(at))
    assert run.experts == ("kreise", "digits") and run.has_scores  # digits is a task of the benchmark
    assert at.query_params["models"] == made.id


@pytest.mark.slow
def test_a_set_without_a_benchmark_is_merged_without_scores(
    open_app: Any, library: Path, root: Path, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "SIZE", 16)
    for path in root.glob("*.safetensors"):
        state = load_file(path)
        state["visual.positional_embedding"] = torch.cat([state["visual.positional_embedding"]] * 2)
        tiny.write(path, state, torch.float32)
    at = open_app("merge", library, models=mine, chain="weight_averaging")
    assert "not evaluated" in words(at) and "computing, after" in words(at)
    run = data.store().run(merged(at))
    assert not run.has_scores and run.has_model
    assert "It was not evaluated" in words(at.run())


def test_chains_that_need_images_are_refused_with_the_reason(
    open_app: Any, library: Path, root: Path, mine: str, tmp_path: Path
) -> None:
    at = open_app("merge", tmp_path / "nothing", models=mine, chain="lot")
    assert not at.exception
    assert "training images" in at.error[0].value and "benchmark folder" in at.error[0].value
    assert next(button for button in at.button if button.key == "run_button").disabled


@pytest.mark.slow
def test_switching_models_keeps_the_chain(open_app: Any, library: Path, mine: str) -> None:
    at = open_app("merge", library, chain="lwptv:prune_ratio=0.3;ties")
    assert at.multiselect(key="experts_chosen").value == list(tiny.EXPERTS)
    at.selectbox(key="models_chosen").select(mine).run()
    assert at.multiselect(key="experts_chosen").value == ["circles", "digits"]
    assert at.query_params["chain"] == "lwptv:prune_ratio=0.3;ties"
    at.switch_page("screens/sweeps.py").run()
    assert not at.exception  # the draft is on models that sweeps do not offer
    at.switch_page("screens/merge.py").run()
    assert at.selectbox(key="models_chosen").value == mine
    at.selectbox(key="models_chosen").select("").run()
    assert at.multiselect(key="experts_chosen").value == list(tiny.EXPERTS)


@pytest.mark.slow
def test_a_recipe_of_a_set_is_taken_over(open_app: Any, library: Path, mine: str) -> None:
    at = open_app("merge", library, models=mine, chain="ties")
    recipe = next(block.value for block in at.code if "pretrained:" in block.value)
    assert "models:clip/pretrained.safetensors" in recipe and "/tmp" not in recipe
    at = open_app("merge", library)
    at.text_area(key="recipe_text").set_value(recipe)
    press(at, "Use this recipe")
    assert at.selectbox(key="models_chosen").value == mine
    assert at.query_params["chain"] == "ties"


@pytest.mark.parametrize("damage", ["gone", "cut", "replaced"])
def test_a_file_that_changes_while_in_use_is_a_sentence(
    open_app: Any, library: Path, root: Path, mine: str, damage: str
) -> None:
    path = root / "digits.safetensors"
    at = open_app("merge", library, models=mine, chain="ties")
    assert "All 32 tensors" in words(at)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:5000] if damage == "cut" else b"<!DOCTYPE html>")
    at.run()
    assert not at.exception
    assert {"gone": "not found", "cut": "truncated", "replaced": "web page"}[damage] in at.error[0].value
    assert at.selectbox(key="models_chosen").value == mine  # another set can be chosen
    (root / "pretrained.safetensors").unlink()
    at.run()
    assert not at.exception and at.error


def test_a_set_that_is_gone_says_so(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, models="0123456789ab")
    assert not at.exception
    assert "no longer available" in at.warning[0].value
    assert at.multiselect(key="experts_chosen").value == list(tiny.EXPERTS)


def test_sets_are_forgotten(open_app: Any, library: Path, mine: str, tmp_path: Path) -> None:
    at = open_app("models", library)
    press(at, "Forget")
    assert not at.exception
    assert all_sets(tmp_path / "store") == []


def test_a_benchmark_among_the_models_is_offered(open_app: Any, library: Path, root: Path) -> None:
    tiny.write_benchmark(root / "bench")
    at = open_app("models", library)
    assert "is a benchmark folder" in words(at)
    assert [button for button in at.button if button.label == "Switch to it"]


def test_files_are_looked_into_in_slices(open_app: Any, library: Path, root: Path, monkeypatch: Any) -> None:
    left = []
    whole = models._inspect

    def noted(*args: Any) -> Any:
        found = whole(*args)
        left.append(found[1])
        return found

    monkeypatch.setattr(models, "PATIENCE", -1.0)
    monkeypatch.setattr(models, "_inspect", noted)
    at = open_app("models", library)
    assert not at.exception
    assert left == sorted(left, reverse=True) and left[0] > 3 and left[-1] == 0


# Typing and uploading


def test_a_typed_folder_is_listed(open_app: Any, library: Path, tmp_path: Path) -> None:
    transformers(tmp_path / "typed" / "a", tiny.pretrained())
    at = open_app("models", library)
    at.text_input(key="models_typed").set_value(str(tmp_path / "typed")).run()
    assert "typed" in set(table(at)["folder"])
    at.text_input(key="models_typed").set_value(str(tmp_path / "typed" / "a" / "model.safetensors")).run()
    assert "model" in set(table(at)["name"])
    for odd in ("/nowhere/at/all", "a\0b", "~nobody/x", "http://x", "$(x)", "x" * 1000):
        at.text_input(key="models_typed").set_value(odd).run()
        assert not at.exception, odd


def shared(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "switch":
        monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    else:
        monkeypatch.setattr(models, "LOOPBACK", {"nothing"})  # the server listens on another address


@pytest.mark.parametrize("how", ["switch", "address"])
@pytest.mark.slow
def test_where_several_people_work_nothing_is_typed_or_deleted(
    open_app: Any, library: Path, root: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch, how)
    transformers(tmp_path / "secret" / "a", tiny.pretrained())
    (root / "out").symlink_to(tmp_path / "secret")
    at = open_app("models", library)
    assert not at.exception
    assert not [field for field in at.text_input if field.key == "models_typed"] and not at.file_uploader
    at.session_state["models_typed"] = str(tmp_path / "secret")  # as a forged message would have it
    at.run()
    assert {"clip", library.name} == set(table(at)["folder"])
    assert "not followed" in words(at)
    assert str(tmp_path) not in words(at) + "".join(block.value for block in at.code)
    press(at, "Add to the Merge page")
    assert all_sets(tmp_path / "store")
    assert not [button for button in at.button if button.label == "Forget"]
    at.query_params["shelf"] = "storage and machine"
    at.segmented_control(key="shelf").set_value("storage and machine").run()
    assert not at.exception
    assert str(tmp_path) not in words(at)


def test_an_upload_is_checked_and_kept(open_app: Any, library: Path, tmp_path: Path) -> None:
    content = tiny.write(tmp_path / "x.safetensors", tiny.pretrained()).read_bytes()
    at = open_app("models", library)
    at.file_uploader[0].set_value(("../my model.safetensors", content, "application/octet-stream")).run()
    assert not at.exception
    assert "was uploaded" in at.success[0].value
    assert "my_model" in set(table(at)["name"])
    at.file_uploader[0].set_value(("page.pt", b"<!DOCTYPE html>", "text/html")).run()
    assert "web page" in at.error[0].value and "not kept" in at.error[0].value
    next(button for button in at.button if button.label.startswith("Delete my")).click().run()
    assert not at.exception
    assert "my_model" not in set(table(at)["name"])


# Reading in the background


@pytest.mark.slow
def test_large_files_are_read_by_a_job(
    open_app: Any, library: Path, root: Path, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SMALL", "PATIENCE"):
        monkeypatch.setattr(models, name, 10)
    monkeypatch.setattr(fit_report, "SMALL", 10)
    monkeypatch.setattr(digests, "AT_ONCE", 10)
    digests.DIGESTS.clear()
    at = open_app("models", library)
    assert set(table(at)["digest"]) == {"not read yet"}
    assert "4,096 numbers" in words(at)
    press(at, "Check every number")
    at = finish(at)
    assert "Every number of every file was read" in words(at)
    mine_of = table(at)[table(at)["folder"] == "clip"]
    assert mine_of["digest"].str.fullmatch("[0-9a-f]{8}").all()
    next(button for button in at.button if button.key == "start_digests").click().run()
    at = finish(at)
    assert "not read yet" not in set(table(at)["digest"])

    digests.DIGESTS.clear()
    for path in (data.store().root / digests.FOLDER).iterdir():
        path.unlink()
    at = open_app("merge", library, models=mine, chain="ties:density=0.31")
    press(at, "Run")
    assert data.runner().jobs()[0].title.startswith("Reading the files of")
    at = finish(finish(at))
    assert {job.state for job in data.runner().jobs()} == {"done"}
    assert "is done" in words(at)
    run = next(run for run in data.stored() if run.provenance != "precomputed")
    assert "density: 0.31" in run.recipe_yaml


# Runs


@pytest.mark.slow
def test_runs_are_chosen_compared_and_drawn(open_app: Any, library: Path) -> None:
    at = open_app("models", library, shelf="runs")
    assert not at.exception and not at.error
    rows = table(at)
    assert len(rows) == 4 and set(rows["made"]) == {"precomputed"}
    assert charts(at) == 0
    first, second = rows["id"][:2]
    tick(at, [first])
    assert charts(at) == 1
    assert not [link for link in at.page_link if link.value == "Compare"]
    tick(at, [first, second])
    assert at.query_params["chosen"] == f"{first},{second}"
    assert [link for link in at.page_link if link.value == "Compare"]
    again = open_app("models", library, shelf="runs", chosen=second)
    assert again.multiselect(key="chosen_runs").value == [second]


@pytest.mark.parametrize(
    "query", [{"chosen": "000000000000"}, {"chosen": "../../etc"}, {"shelf": "EVIL", "chosen": ",,"}]
)
def test_a_bad_link(open_app: Any, library: Path, query: dict[str, str]) -> None:
    at = open_app("models", library, **{"shelf": "runs", **query})
    assert not at.exception
    if query["chosen"].strip(","):
        assert "does not have" in at.warning[0].value
        press(at, "Show an available run")
        assert not at.exception and len(table(at)) == 4


def test_without_runs(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("models", tiny_folder, shelf="runs")
    assert not at.exception
    assert "There is no run yet" in words(at)
    at.segmented_control(key="shelf").set_value("storage and machine").run()
    assert not at.exception
    assert "0 own runs" in str(at.get("progress")[0].proto) or at.dataframe


@pytest.mark.slow
def test_a_run_is_exported_dropped_and_deleted(
    open_app: Any, library: Path, mine: str, root: Path, tmp_path: Path
) -> None:
    at = open_app("merge", library, models=mine, chain="task_arithmetic:scaling=0.4")
    run_id = merged(at)
    at.switch_page("screens/models.py")
    at.query_params["shelf"], at.query_params["chosen"] = "runs", run_id
    at.run()
    press(at, "Export the model")
    at = finish(at)
    assert not at.exception and not at.error
    (export,) = stored.exports(data.store().root)
    assert {"model.safetensors", "config.json", "README.md", "recipe.yaml"} <= {name for name, _ in export.files}
    assert any("library_name: transformers" in block.value for block in at.code)
    archive = zipfile.ZipFile(io.BytesIO(run_export.zipped(export)))
    assert archive.testzip() is None
    assert all(name.startswith(f"{run_id}-hf/") and ".." not in name for name in archive.namelist())
    config = json.loads(archive.read(f"{run_id}-hf/config.json"))
    assert config["hidden_size"] == tiny.WIDTH

    at.segmented_control(key="export_to").set_value("file").run()
    press(at, "Export the model")
    at = finish(at)
    (single,) = [found for found in stored.exports(data.store().root) if found.to == "file"]
    assert set(load_file(single.folder / "model.safetensors")) == set(tiny.shapes())

    at.text_input(key="export_folder").set_value(str(root)).run()
    at.segmented_control(key="export_to").set_value("open_clip").run()
    press(at, "Export the model")
    assert "not replaced" in at.error[0].value  # somebody's own folder
    at.text_input(key="export_folder").set_value(str(tmp_path / "out")).run()
    press(at, "Export the model")
    at = finish(at)
    assert (tmp_path / "out" / "open_clip_config.json").is_file()
    assert str(tmp_path / "out") in [block.value for block in at.code]

    press(at, "Drop the weights")
    assert not data.store().run(run_id).has_model and data.store().run(run_id).has_scores
    assert "computed again first" in words(at)
    at.text_input(key="export_folder").set_value("").run()
    at.segmented_control(key="export_to").set_value("hf").run()
    press(at, "Delete this export")
    press(at, "Export the model")
    at = finish(at)
    assert data.store().run(run_id).has_model

    press(at, "Delete 1 run")
    assert not at.exception
    assert not data.store().has(run_id)
    assert at.multiselect(key="chosen_runs").value == []
    assert at.success[0].value == "1 run deleted\\."


def test_a_run_that_a_job_works_on_is_not_deleted(
    open_app: Any, library: Path, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_app("models", library, shelf="runs")
    precomputed = table(at)["id"][0]
    tick(at, [precomputed])
    assert not [
        button for button in at.button if button.key in {"delete_runs", "drop_runs"} and not button.disabled
    ] or ("0 runs" in words(at))
    asked: list[str] = []
    live = [type("Job", (), {"subject": precomputed, "live": True})()]
    monkeypatch.setattr(data._runner(), "jobs", lambda: live)
    act: Callable[[str], None] = asked.append
    actions._each([precomputed], act, "{}")
    assert asked == []


def test_the_machine_and_the_meter(open_app: Any, library: Path, mine: str) -> None:
    at = open_app("models", library, shelf="storage and machine")
    assert not at.exception and not at.error
    assert at.dataframe[0].value["What"][0] == "merged weights"
    assert {"What uses disk space?", "About this machine"} == {sub.value for sub in at.subheader}
