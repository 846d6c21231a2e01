"""Uploads: kept under their hash, named like files, checked, limited."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from merging.base.errors import CheckpointError, StoreError
from merging.sharing.catalog import uploaded_models
from merging.sharing.catalog.model_listing import CatalogEntry
from merging.sharing.catalog.model_recognition import recognize_model


def test_an_upload_is_kept_under_its_hash(tmp_path: Path) -> None:
    content = tiny.write(tmp_path / "x.safetensors", tiny.pretrained()).read_bytes()
    item = uploaded_models.store_upload(tmp_path, "../../My model?.SAFETENSORS", content)
    assert item.path.name == "My_model.safetensors" and item.path.parent.parent == tmp_path / "uploads"
    assert recognize_model(item).kind == "model"
    assert (
        uploaded_models.store_upload(tmp_path, "again.pt", content) == item == uploaded_models.list_uploads(tmp_path)[0]
    )
    uploaded_models.delete_upload(tmp_path, item)
    assert uploaded_models.list_uploads(tmp_path) == []
    with pytest.raises(StoreError, match="not an upload"):
        uploaded_models.delete_upload(tmp_path, CatalogEntry("x", tmp_path / "x.safetensors", "x"))


@pytest.mark.parametrize("name", ["CON", "a\0b", "x" * 300, "\u202egnp.pt", "", "/", "..", "=1+1.pt"])
def test_names_of_uploads_are_names_of_files(name: str) -> None:
    safe = uploaded_models.make_safe_name(name)
    assert safe.isascii() and "/" not in safe and "\0" not in safe and len(safe) < 80
    assert safe.endswith((".safetensors", ".pt")) and not safe.startswith(".")


def test_an_upload_that_is_no_checkpoint_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"web page.*not stored"):
        uploaded_models.store_upload(tmp_path, "x.safetensors", b"<!DOCTYPE html>")
    with pytest.raises(StoreError, match="64 MB"):
        uploaded_models.store_upload(tmp_path, "x.safetensors", bytes(uploaded_models.MAX_BYTES_PER_FILE + 1))
    assert uploaded_models.list_uploads(tmp_path) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_uploads_have_a_limit_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tiny.write(tmp_path / f"{seed}.st", tiny.pretrained(seed)).read_bytes() for seed in (0, 1)]
    monkeypatch.setattr(uploaded_models, "MAX_BYTES_TOTAL", len(files[0]) + 10)
    uploaded_models.store_upload(tmp_path, "a.safetensors", files[0])
    with pytest.raises(StoreError, match="delete some"):
        uploaded_models.store_upload(tmp_path, "b.safetensors", files[1])
