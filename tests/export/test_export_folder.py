"""Exported folders: the same bytes again, whole or not there, with a card that says what the model is."""

from __future__ import annotations

import errno
import getpass
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import peers
import pytest
import tiny
import torch
from peers import alike, by_open_clip, by_transformers, ours, random_images
from safetensors import safe_open

from merging.base.errors import Cancelled, CheckpointError, StoreError
from merging.cli.main import main
from merging.models import model_references
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection import checkpoint_facts
from merging.recipes.recipe import Recipe
from merging.sharing.export import export_provenance
from merging.sharing.export.model_export import export, export_file
from merging.sharing.export.stored_exports import resolve_typed_folder
from merging.study.runs.execute import execute
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def contents(folder):
    """{file: bytes} of everything in a folder."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- runs ------------------------------------------------------------------------------------------------------------


def test_the_same_recipe_gives_the_same_bytes(run, tiny_benchmark, tiny_folder, tmp_path):
    elsewhere = tmp_path / "alice" / "models"
    shutil.copytree(tiny_folder / "models", elsewhere)
    experts = {name: str(elsewhere / f"{name}.safetensors") for name in tiny_benchmark.experts}
    recipe = Recipe.build("ties", {}, ["lwptv"], str(elsewhere / "pretrained.safetensors"), experts, "A title")
    again = execute(recipe, Store(tmp_path / "other", libraries=()), benchmark=tiny_benchmark, context=Context("cpu"))
    for to in ("hf", "open_clip"):
        one, other = (export(found, tmp_path / to / name, to=to) for name, found in (("1", run), ("2", again)))
        assert contents(one.folder) == contents(other.folder)
        assert set(one.files) == set(contents(one.folder))
        assert {"README.md", "recipe.yaml", "scores.csv", "tables/saliency.csv"} <= set(one.files)


def test_nothing_tells_of_the_machine(run, tmp_path):
    export(run, tmp_path / "hf")
    private = [str(tmp_path).encode(), b"/tmp", str(Path.home()).encode(), os.uname().nodename.encode()]
    if len(getpass.getuser()) > 4:
        private.append(getpass.getuser().encode())
    for name, raw in contents(tmp_path / "hf").items():
        assert not [word for word in private if len(word) > 2 and word in raw], name


def test_files_that_share_a_name_stay_apart():
    experts = {"a/b": "/home/alice/cars/finetuned.pt", "dtd": "/home/alice/dtd/finetuned.pt", "x": "bundled:digits"}
    snapshot = "/home/alice/.cache/huggingface/hub/models--openai--clip-vit-base-patch32/snapshots/3d74acf"
    found = export_provenance.anonymize_recipe(Recipe.build("ties", {}, [], snapshot, experts))
    assert found.pretrained == "hf-hub:openai/clip-vit-base-patch32@3d74acf"
    assert dict(found.experts) == {"a/b": "a%2Fb/finetuned.pt", "dtd": "dtd/finetuned.pt", "x": "bundled:digits"}
    named = export_provenance.anonymize_recipe(
        Recipe.build("ties", {}, [], "ViT-B-32/openai", {"a": "hf-hub:me/cars@main"})
    )
    assert (named.pretrained, dict(named.experts)) == ("ViT-B-32/openai", {"a": "hf-hub:me/cars@main"})
    assert model_references.hub_id_of("hf-hub:me/cars@main") == "me/cars" and not model_references.hub_id_of("/me/cars")
    assert model_references.hub_id_of(snapshot) == "openai/clip-vit-base-patch32"
    same = export_provenance.anonymize_recipe(
        Recipe.build("ties", {}, [], "p.pt", {"one": "C:\\me\\x.pt", "two": "C:\\me\\x.pt"})
    )
    assert dict(same.experts) == {"one": "x.pt", "two": "x.pt"}


def test_the_file_says_what_it_is(run, tmp_path):
    export(run, tmp_path / "hf")
    with safe_open(tmp_path / "hf" / "model.safetensors", "pt") as file:
        said = file.metadata()
    assert (said["format"], said["merge_method"], said["hidden_act"], said["scope"]) == (
        "pt", "ties", "quick_gelu", "visual",
    )  # fmt: skip
    assert said["engine_version"] and said["base_sha256"] == run.inputs["pretrained"]
    assert json.loads(said["source_sha256"]) == {name: run.inputs[f"experts/{name}"] for name in tiny.EXPERTS}
    recipe = json.loads(said["merge_recipe"])
    assert recipe["merge"] == {"ties": run.recipe.merge.params.to_plain()} and recipe["experts"]["flags"]
    assert said["base_sha256"] == checkpoint_facts.inspect(run.recipe.pretrained)["digest"]


def test_the_exported_recipe_runs_beside_its_files(run, tiny_folder, tmp_path, capsys):
    export(run, tmp_path / "hf")
    assert main(["run", str(tmp_path / "hf" / "recipe.yaml"), "--base", str(tiny_folder / "models"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == run.id


def test_images_are_prepared_as_those_that_were_scored(run, tiny_benchmark, tmp_path):
    from PIL import Image

    export(run, tmp_path / "hf")
    export(run, tmp_path / "oc", to="open_clip")
    pixels = np.random.default_rng(0).integers(0, 256, (1, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
    expected = tiny_benchmark.preprocess(pixels)
    image = Image.fromarray(pixels[0])

    peers.transformers()  # first, because it makes torchvision importable
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    config = json.loads((tmp_path / "hf" / "preprocessor_config.json").read_text())
    found = CLIPImageProcessorPil.from_pretrained(tmp_path / "hf")(image, return_tensors="pt")["pixel_values"]
    assert config["image_processor_type"] == "CLIPImageProcessor"
    assert torch.allclose(found, expected, atol=1e-6)
    _, _, preprocess = peers.open_clip().create_model_and_transforms(f"local-dir:{tmp_path / 'oc'}", load_weights=False)
    assert torch.allclose(preprocess(image)[None], expected, atol=1e-6)


def test_runs_without_weights_are_refused(run, store, tiny_benchmark, tmp_path):
    bare = execute(run.recipe, Store(tmp_path / "bare", libraries=()), keep_model=False, context=Context(device="cpu"))
    with pytest.raises(StoreError, match="has no stored weights; run its recipe again"):
        export(bare, tmp_path / "out")
    reference = find_references(store, tiny_benchmark, context=Context(device="cpu"))["pretrained"]
    with pytest.raises(StoreError, match="not a merge; convert that file"):
        export(reference, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- one model per task ----------------------------------------------------------------------------------------------


@pytest.fixture
def per_task(tiny_benchmark, store):
    names = {"../x": "circles", "a/b\n---": "digits", "flags": "flags", "Flags": "leaves"}
    experts = {name: tiny_benchmark.experts[key] for name, key in names.items()}
    return execute(
        Recipe.build("emr", {}, [], tiny_benchmark.pretrained, experts), store, evaluate=False, context=Context("cpu")
    )


def test_one_model_per_task_is_one_folder_per_task(per_task, tmp_path):
    images = random_images(tiny.SIZE)
    for to, reload in (("hf", by_transformers), ("open_clip", by_open_clip)):
        done = export(per_task, tmp_path / to, to=to)
        places = json.loads((tmp_path / to / "tasks.json").read_text())
        assert list(places) == list(per_task.experts)
        assert len({place.casefold() for place in places.values()}) == 4
        assert all(re.fullmatch(r"tasks/[^/]+", place) and ".." not in place for place in places.values())
        for task, place in places.items():
            expected = ours(open_checkpoint(per_task.model_paths[task]), images)
            assert alike(reload(tmp_path / to / place, images), expected)
            with safe_open(next((tmp_path / to / place).glob("*.safetensors")), "pt") as file:
                assert file.metadata()["task"] == task
        assert {"recipe.yaml", "tables/rescalers.csv", "README.md"} <= set(done.files)
        assert "One model per task" in (tmp_path / to / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "open_clip", "runs"]
    with pytest.raises(StoreError, match="one model per task; export it to a folder"):
        export_file(per_task, tmp_path / "x.safetensors")


# --- whole or not there ----------------------------------------------------------------------------------------------


def test_only_an_own_export_is_replaced(small, run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    export(run, out)
    with pytest.raises(StoreError, match="exists already"):
        export(small, out)
    (out / "thesis.tex").write_text("x")
    before = contents(out)
    with pytest.raises(StoreError, match=r"other files in it, such as 'thesis.tex'; it is not replaced"):
        export(small, out, overwrite=True)
    assert contents(out) == before
    (out / "thesis.tex").unlink()
    export(small, out, overwrite=True)
    assert not (out / "recipe.yaml").exists() and (out / "README.md").read_text().count("converted by")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file; an export needs a folder"):
        export(small, tmp_path / "file", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out"]


def fill_the_disk(monkeypatch, after):
    """The disk takes so many bytes of weights."""
    left, write = [after], os.pwrite

    def pwrite(descriptor, raw, offset):
        left[0] -= len(raw)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, raw, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


@pytest.mark.parametrize("after", [0, 50_000])
def test_a_full_disk_leaves_nothing(after, small, run, tmp_path, monkeypatch):
    export(run, tmp_path / "old")
    before = contents(tmp_path / "old")
    fill_the_disk(monkeypatch, after)
    says = r"The disk is full \(No space left on device\): {} was not written\. Nothing of it was kept"
    with pytest.raises(StoreError, match=says.format("out")):
        export(small, tmp_path / "new" / "deep" / "out")
    with pytest.raises(StoreError, match=says.format("old")):
        export(small, tmp_path / "old", overwrite=True)
    fill_the_disk(monkeypatch, 0)
    with pytest.raises(StoreError, match=says.format("x.safetensors")):
        export_file(run, tmp_path / "new" / "x.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
    assert contents(tmp_path / "old") == before


def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_place(small, run, tmp_path, monkeypatch):
    export(run, tmp_path / "out")
    before, rename = contents(tmp_path / "out"), Path.rename

    def refuse_the_second(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EACCES, "Permission denied")
        return rename(self, target)

    calls = []
    monkeypatch.setattr(Path, "rename", refuse_the_second)
    with pytest.raises(StoreError, match=r"out cannot be written \(Permission denied\)"):
        export(small, tmp_path / "out", overwrite=True)
    assert len(calls) == 3 and contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_disk_without_room_is_told_before(small, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StoreError, match=r"out needs 1\.\d+ MB on its disk; 1 kB are free"):
        export(small, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_cancel_leaves_nothing(small, run, tmp_path):
    seen = []
    with pytest.raises(Cancelled):
        export(small, tmp_path / "new" / "out", context=Context(progress=seen.append, cancel=lambda: len(seen) > 5))
    with pytest.raises(Cancelled):
        export_file(run, tmp_path / "x.safetensors", context=Context(cancel=lambda: True))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changes_meanwhile_is_not_exported(run, tmp_path):
    path = tmp_path / "model.safetensors"
    shutil.copy(next(iter(run.model_paths.values())), path)

    def touch(progress):
        os.utime(path, (1, 1))

    with pytest.raises(CheckpointError, match="was changed while it was being read"):
        export(path, tmp_path / "out", context=Context(progress=touch))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("merged", "merged is a relative path. Write an absolute one, such as "),
        ("../merged", "is a relative path"),
        ("out\\merged", "is a relative path"),
        ("C:\\models\\out", "is a Windows path; on this machine paths begin with / or ~"),
        ("c:/models/out", "is a Windows path"),
        ("\\\\server\\share", "is a Windows path"),
        ("file:///tmp/out", "is an address, not a folder"),
        ("~nobody-here/out", "is not a valid path on this machine"),
        ("/tmp/a\0b", "is not a valid path on this machine"),
        ("/" + "x" * 5000, "is not a valid path on this machine"),
    ],
)
def test_folders_that_depend_on_where_the_app_was_started_are_refused(text, problem):
    with pytest.raises(StoreError) as refused:
        resolve_typed_folder(text)
    assert problem in str(refused.value) and str(refused.value).isprintable()


def test_whole_folders_are_taken(tmp_path):
    assert resolve_typed_folder(str(tmp_path / "a b")) == tmp_path / "a b"
    assert resolve_typed_folder("~/merged") == Path.home() / "merged"
