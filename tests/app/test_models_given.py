"""Models & runs: models that are typed or uploaded, and large ones that a job reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from models_page import table
from page_harness import press, run_until_idle, serve_several, words
from shelf_folders import transformers

from app.reading import listed_models, page_data
from app.widgets import fit_report
from merging.models import digest_cache
from merging.models.inspection import fit_check
from merging.sharing.catalog.model_set_store import list_model_sets

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


@pytest.mark.parametrize("how", ["switch", "address"])
def test_where_several_people_work_nothing_is_typed_or_deleted(
    open_app: Any, library: Path, own_models: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_several(monkeypatch, how)
    transformers(tmp_path / "secret" / "a", tiny.pretrained())
    (own_models / "out").symlink_to(tmp_path / "secret")
    at = open_app("models", library)
    assert not at.exception
    assert not [field for field in at.text_input if field.key == "models_typed"] and not at.file_uploader
    at.session_state["models_typed"] = str(tmp_path / "secret")  # as a forged message would have it
    at.run()
    assert {"clip", library.name} == set(table(at)["folder"])
    assert "not followed" in words(at)
    assert str(tmp_path) not in words(at) + "".join(block.value for block in at.code)
    press(at, "Add to the Merge page")
    assert list_model_sets(tmp_path / "store")
    assert not [button for button in at.button if button.label == "Forget"]
    at.query_params["models_view"] = "storage and machine"
    at.segmented_control(key="models_view").set_value("storage and machine").run()
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
    assert "web page" in at.error[0].value and "not stored" in at.error[0].value
    next(button for button in at.button if button.label.startswith("Delete my")).click().run()
    assert not at.exception
    assert "my_model" not in set(table(at)["name"])


# Reading in the background


@pytest.mark.full
def test_large_files_are_read_by_a_job(
    open_app: Any, library: Path, own_models: Path, own_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_SMALL_BYTES", "MAX_READ_SECONDS"):
        monkeypatch.setattr(listed_models, name, 10)
    monkeypatch.setattr(fit_check, "READ_ALL_BYTES", 10)
    monkeypatch.setattr(fit_check, "MAX_WHOLE_NUMEL", 10)
    monkeypatch.setattr(fit_report, "MAX_DIRECT_BYTES", 10)
    digest_cache.DIGESTS.clear()
    at = open_app("models", library)
    assert set(table(at)["digest"]) == {"not read yet"}
    assert "A sample was read" in words(at)
    press(at, "Check every number")
    at = run_until_idle(at)
    assert "Every number of every checkpoint was read" in words(at)
    mine_of = table(at)[table(at)["folder"] == "clip"]
    assert mine_of["digest"].str.fullmatch("[0-9a-f]{8}").all()
    next(button for button in at.button if button.key == "start_digests").click().run()
    at = run_until_idle(at)
    assert "not read yet" not in set(table(at)["digest"])

    digest_cache.DIGESTS.clear()
    for path in (page_data.store().root / digest_cache.FOLDER).iterdir():
        path.unlink()
    at = open_app("merge", library, models=own_set, chain="ties:density=0.31")
    press(at, "Run")
    assert page_data.job_queue().list_jobs()[0].title.startswith("Reading the files of")
    at = run_until_idle(run_until_idle(at))
    assert {job.state for job in page_data.job_queue().list_jobs()} == {"done"}
    assert "is done" in words(at)
    run = next(run for run in page_data.stored_runs() if run.provenance != "precomputed")
    assert "density: 0.31" in run.recipe_yaml
