"""Models folders: their names, references that stay inside, links, bounds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import bad_parts
import pytest
import torch
from safetensors.torch import save_file
from shelf_folders import list_folder

from merging.base import modes, settings
from merging.base.errors import CheckpointError
from merging.models import model_references
from merging.models.formats.model_sources import open_checkpoint
from merging.sharing.catalog import folder_walk, model_listing
from merging.sharing.catalog.model_recognition import recognize_model


def test_models_folders_have_distinct_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "a" / "clip", tmp_path / "b" / "clip"
    monkeypatch.setenv("MERGESCOPE_MODELS", os.pathsep.join(["", str(one), str(other), str(one)]))
    assert settings.models_folders() == {"clip": one, "clip-2": other}
    assert model_references.locate("models:clip-2/x.pt") == other / "x.pt"
    assert model_references.locate("models:clip") == one


@pytest.mark.parametrize(
    "reference",
    ["models:clip/../secret", "models:clip//etc", "models:clip/a\\b", "models:clip/.", "models:clip/",
     "models:nobody/x", "models:clip/a\0b", "models:clip/out/secret.safetensors"],
)  # fmt: skip
def test_a_reference_cannot_lead_out_of_a_models_folder(root: Path, tmp_path: Path, reference: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    save_file(bad_parts.state(), tmp_path / "elsewhere" / "secret.safetensors")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError):
        open_checkpoint(reference)


@pytest.mark.parametrize("place", ["inner/../m.pt", "./m.pt", "inner//m.pt", "", "m.pt/", "inner\\\\m.pt"])
def test_a_file_in_a_models_folder_has_one_reference(root: Path, place: str) -> None:
    """Other ways to write it are refused, though they lead inside."""
    (root / "inner").mkdir()
    for path in (root / "m.pt", root / "inner" / "m.pt"):
        path.write_bytes(b"")
    assert model_references.locate("models:clip/inner/m.pt") == root / "inner" / "m.pt"
    with pytest.raises(CheckpointError, match="is outside of the models folder 'clip'"):
        model_references.locate(f"models:clip/{place}")


@pytest.mark.parametrize(("text", "on"), [("", False), ("0", False), ("off", False), ("1", True), ("yes", True)])
def test_shared_is_a_switch(text: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_SHARED", text)
    assert modes.is_shared() is on


def test_links_to_folders_are_named_and_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    save_file(bad_parts.state(), tmp_path / "elsewhere" / "secret.safetensors")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "loop").symlink_to(root)
    (root / "file.safetensors").symlink_to(tmp_path / "elsewhere" / "secret.safetensors")
    found = {item.listed_path: recognize_model(item) for item in list_folder(root).items}
    assert set(found) == {"clip/out", "clip/loop", "clip/file.safetensors"}
    assert all(what.kind == "unreadable" for what in found.values())
    assert "not followed" in found["clip/out"].problem
    assert "outside of" in found["clip/file.safetensors"].problem
    assert str(tmp_path) not in "".join(what.problem for what in found.values())


def test_the_walk_has_bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = root
    for level in range(folder_walk.MAX_LEVELS + 2):
        deep = deep / f"level{level}"
        deep.mkdir()
        (deep / "x.pt").touch()
    (root / ".hidden").mkdir()
    (root / ".hidden" / "y.pt").touch()
    found = list_folder(root)
    assert len(found.items) == folder_walk.MAX_LEVELS
    assert any("too deep" in note for note in found.notes)
    for number in range(30):
        (root / f"many{number:02}.pt").touch()
    monkeypatch.setattr(folder_walk, "MAX_ENTRIES", 10)
    found = list_folder(root)
    assert len(found.items) <= 10
    assert any("only the first 10" in note for note in found.notes)


def test_a_folder_that_is_gone_is_a_note(root: Path) -> None:
    root.rmdir()
    found = list_folder(root)
    assert not found.items and "cannot be read" in found.notes[0]
    assert recognize_model(model_listing.list_typed_path(str(root)).items[0]).kind == "unreadable"


def test_shards_belong_to_their_model(root: Path) -> None:
    names = {f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}
    index = json.dumps({"weight_map": {"a": min(names), "b": max(names)}})
    for folder, stem in (("listed", "model"), ("named", "mine")):
        (root / folder).mkdir()
        (root / folder / f"{stem}.safetensors.index.json").write_text(index.replace("model-", f"{stem}-"))
        for name, tensor in zip(sorted(names), "ab", strict=True):
            save_file({tensor: torch.ones(2)}, root / folder / name.replace("model-", f"{stem}-"))
    (root / "listed" / "training_args.bin").touch()
    (root / "listed" / "model-00003-of-00003.safetensors.bak").touch()
    found = list_folder(root)
    assert {item.listed_path for item in found.items if item.has_model_name} == {
        "clip/listed",
        "clip/named/mine.safetensors.index.json",
    }
    assert found.other_files == ["clip/listed/training_args.bin"]
    assert all(recognize_model(item).tensors == 2 for item in found.items if item.has_model_name)


def test_shards_without_their_index_are_listed(root: Path) -> None:
    save_file({"a": torch.ones(2)}, root / "mine-00001-of-00002.safetensors")
    assert [item.listed_path for item in list_folder(root).items] == ["clip/mine-00001-of-00002.safetensors"]
