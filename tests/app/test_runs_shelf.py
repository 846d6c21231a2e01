"""Models & runs, runs: chosen, exported, dropped and deleted; the machine."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tiny
from models_page import choose_runs, run_merge, table
from page_harness import charts, labels, press, run_until_idle, words
from safetensors.torch import load_file
from streamlit.testing.v1 import AppTest

from app.page_text import plain_text
from app.reading import page_data
from app.views.runs import run_exports as run_export
from merging.base import modes
from merging.sharing.export import stored_exports
from merging.study.run_queue import RunQueue
from merging.tasks.queue.job_records import Job, State


def test_runs_are_chosen_compared_and_drawn(open_app: Any, library: Path) -> None:
    at = open_app("models", library, models_view="runs")
    assert not at.exception and not at.error
    rows = table(at)
    assert len(rows) == 4 and set(rows["made"]) == {"precomputed"}
    assert charts(at) == 0
    assert {str(rows[name].dtype) for name in ("in", "out", "h")} == {"float64"}, (
        "numbers, which a click on a head sorts"
    )
    assert "TIES (sum, λ 0.3)" in set(rows["title"])
    first, second = rows["id"][:2]
    choose_runs(at, [first])
    assert charts(at) == 1
    assert not [link for link in at.page_link if link.value == "Compare"]
    choose_runs(at, [first, second])
    assert at.query_params["selected_runs"] == f"{first},{second}"
    assert [link for link in at.page_link if link.value == "Compare"]
    again = open_app("models", library, models_view="runs", selected_runs=second)
    assert again.multiselect(key="chosen_runs").value == [second]


@pytest.mark.parametrize(
    "query",
    [{"selected_runs": "000000000000"}, {"selected_runs": "../../etc"}, {"models_view": "EVIL", "selected_runs": ",,"}],
)
def test_a_bad_link(open_app: Any, library: Path, query: dict[str, str]) -> None:
    at = open_app("models", library, **{"models_view": "runs", **query})
    assert not at.exception
    if query["selected_runs"].strip(","):
        assert "does not have" in at.warning[0].value
        press(at, "Show an available run")
        assert not at.exception and len(table(at)) == 4


def test_without_runs(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("models", tiny_folder, models_view="runs")
    assert not at.exception
    assert "There is no run yet" in words(at)
    at.segmented_control(key="models_view").set_value("storage and machine").run()
    assert not at.exception
    assert "0 own runs" in str(at.get("progress")[0].proto) or at.dataframe


def downloads_in_class(at: AppTest) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(modes.MODE_VARIABLE, "class")
        found = labels(at.run(), "download_button")
    at.run()
    return found


@pytest.mark.full
def test_a_run_is_exported_dropped_and_deleted(
    open_app: Any, library: Path, own_set: str, own_models: Path, tmp_path: Path
) -> None:
    at = open_app("merge", library, models=own_set, chain="task_arithmetic:scaling=0.4")
    run_id = run_merge(at)
    at.switch_page("screens/models.py")
    at.query_params["models_view"], at.query_params["selected_runs"] = "runs", run_id
    at.run()
    press(at, "Export the model")
    at = run_until_idle(at)
    assert not at.exception and not at.error
    (export,) = stored_exports.list_exports(page_data.store().root)
    assert {"model.safetensors", "config.json", "README.md", "recipe.yaml"} <= {name for name, _ in export.files}
    assert any("library_name: transformers" in block.value for block in at.code)
    archive = zipfile.ZipFile(io.BytesIO(run_export.zip_export(export)))
    assert archive.testzip() is None
    assert all(name.startswith(f"{run_id}-hf/") and ".." not in name for name in archive.namelist())
    assert "Download (zip)" in labels(at, "download_button") and "Download (zip)" not in downloads_in_class(at)
    config = json.loads(archive.read(f"{run_id}-hf/config.json"))
    assert config["hidden_size"] == tiny.WIDTH

    at.segmented_control(key="export_to").set_value("file").run()
    press(at, "Export the model")
    at = run_until_idle(at)
    (single,) = [found for found in stored_exports.list_exports(page_data.store().root) if found.target_key == "file"]
    assert set(load_file(single.folder / "model.safetensors")) == set(tiny.shapes())

    at.text_input(key="export_folder").set_value(str(own_models)).run()
    at.segmented_control(key="export_to").set_value("open_clip").run()
    press(at, "Export the model")
    assert "not replaced" in at.error[0].value  # somebody's own folder
    at.text_input(key="export_folder").set_value("merged").run()
    press(at, "Export the model")
    assert "is a relative path" in at.error[0].value and str(Path.home() / "merged") in plain_text(at.error[0].value)
    at.text_input(key="export_folder").set_value(str(tmp_path / "out")).run()
    assert f"It is written to {tmp_path / 'out'}." in plain_text(words(at)) and "image tower alone" in words(at)
    at.text_input(key="export_folder").set_value(str(tmp_path / "out")).run()
    press(at, "Export the model")
    at = run_until_idle(at)
    assert (tmp_path / "out" / "open_clip_config.json").is_file()
    assert str(tmp_path / "out") in [block.value for block in at.code]

    press(at, "Drop the weights")
    assert not page_data.store().get_run(run_id).has_model and page_data.store().get_run(run_id).has_scores
    assert "computed again first" in words(at)
    at.text_input(key="export_folder").set_value("").run()
    at.segmented_control(key="export_to").set_value("hf").run()
    press(at, "Delete this export")
    press(at, "Export the model")
    at = run_until_idle(at)
    assert page_data.store().get_run(run_id).has_model

    press(at, "Delete 1 run")
    assert not at.exception
    assert not page_data.store().has_run(run_id)
    assert at.multiselect(key="chosen_runs").value == []
    assert at.success[0].value == "1 run deleted\\."


def test_a_run_that_a_job_works_on_is_not_deleted(
    open_app: Any, library: Path, own_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_app("models", library, models_view="runs")
    precomputed = table(at)["id"][0]
    choose_runs(at, [precomputed])
    assert not [
        button for button in at.button if button.key in {"delete_runs", "drop_runs"} and not button.disabled
    ] or ("0 runs" in words(at))
    shutil.copytree(library / "runs" / precomputed, page_data.store().root / "runs" / precomputed)
    choose_runs(at, []), choose_runs(at, [precomputed])
    job = Job(precomputed, "A job that began after the page was drawn", State.RUNNING, subject=precomputed)
    monkeypatch.setattr(RunQueue, "list_jobs", lambda self: [job])
    press(at, "Delete 1 run")
    assert page_data.store().has_run(precomputed) and (page_data.store().root / "runs" / precomputed).is_dir()
    assert "A job has started to use run" in at.error[0].value


def test_the_machine_and_the_meter(open_app: Any, library: Path, own_set: str) -> None:
    at = open_app("models", library, models_view="storage and machine")
    assert not at.exception and not at.error
    assert at.dataframe[0].value["What"][0] == "merged weights"
    assert {"What uses disk space?", "About this machine"} == {head.value for head in at.header}
