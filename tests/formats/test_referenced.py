"""Small files that say where a model is: what they give, and one sentence where the model cannot be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from safetensors.torch import save_file

from merging.base.errors import CheckpointError
from merging.models.formats import referenced_model
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.referenced_model import (
    MAX_REFERENCE_BYTES,
    VERSION_KEY,
    resolve_model_path,
    write_reference,
)

STATE = tiny.pretrained()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file that lies outside of the folder of references."""
    path = tmp_path / "far" / "model.safetensors"
    path.parent.mkdir()
    save_file(STATE, path)
    return path


@pytest.fixture
def reference(tmp_path: Path, model: Path) -> Path:
    """A reference to it, in a folder where such files count."""
    path = tmp_path / "models" / "pretrained.json"
    path.parent.mkdir()
    write_reference(path, model, {"role": "pretrained"})
    return path


def changed(path: Path, **values: Any) -> None:
    """Write other values into a reference; None removes one."""
    content = {**json.loads(path.read_text("utf-8")), **values}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}), "utf-8")


def refused(path: Path) -> str:
    """The sentence with which a reference is refused."""
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(path)
    sentence = str(error.value)
    assert len(sentence) < 700 and "\n" not in sentence
    return sentence


def test_it_is_the_model_with_its_own_metadata(reference: Path, model: Path) -> None:
    opened, direct = open_checkpoint(reference), open_checkpoint(model)
    assert set(opened.infos) == set(direct.infos) and opened.metadata["role"] == "pretrained"
    assert all(opened.read(name).equal(direct.read(name)) for name in direct.infos)
    assert resolve_model_path(str(reference)) == str(model) and resolve_model_path(str(model)) == str(model)


def test_a_model_that_is_gone_is_named_with_what_to_do(reference: Path, model: Path) -> None:
    model.unlink()
    sentence = refused(reference)
    assert sentence == (
        f"pretrained.json refers to {model}, which is missing: fetch it again, name the folder that holds it now "
        f"(mergescope benchmark find {reference.parent.parent} FOLDER), or make the benchmark again."
    )


@pytest.mark.parametrize(
    "values",
    [
        {VERSION_KEY: 2}, {"model": None}, {"model": 7}, {"like": None}, {"like": ["pretrained.json"]},
        {"metadata": None}, {"metadata": {"role": 1}}, {"metadata": "role"},
    ],
    ids=str,
)  # fmt: skip
def test_a_file_without_what_is_needed_does_not_say_where_a_model_is(reference: Path, values: dict[str, Any]) -> None:
    changed(reference, **values)
    assert refused(reference) == "pretrained.json does not say where a model is; make the benchmark again."


@pytest.mark.parametrize("cut", [0.4, 0.9])
def test_a_file_that_is_cut_off_is_damaged(reference: Path, cut: float) -> None:
    raw = reference.read_bytes()
    reference.write_bytes(raw[: int(cut * len(raw))])
    assert refused(reference) == (
        "pretrained.json: the file is not valid JSON; the file is damaged or not what its name says."
    )


def test_a_damaged_model_is_named_by_its_own_file(reference: Path, model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-100])
    assert "model.safetensors" in refused(reference)
    model.write_bytes(b"<html>not found</html>")
    assert "model.safetensors" in refused(reference)


def test_a_folder_without_a_model_says_so(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    changed(reference, model=str(tmp_path / "empty"))
    assert refused(reference).startswith("empty is a folder without a checkpoint; one with model.safetensors")


def test_the_model_whose_names_are_taken_must_be_there_and_beside_it(reference: Path, model: Path) -> None:
    expert = reference.with_name("flags.json")
    write_reference(expert, model, {}, reference.name)
    assert set(open_checkpoint(expert).infos) == set(open_checkpoint(reference).infos)
    changed(expert, like="../far/model.safetensors")
    assert refused(expert) == "flags.json names a model outside of its folder; refused."
    changed(expert, like=reference.name)
    reference.unlink()
    assert "pretrained.json" in refused(expert)


@pytest.mark.parametrize("way", ["model", "like", "both"])
def test_a_file_that_refers_to_itself_is_refused(reference: Path, way: str) -> None:
    other = reference.with_name("flags.json")
    if way == "model":
        changed(reference, model=str(reference))
    elif way == "like":
        changed(reference, like=reference.name)
    else:
        write_reference(other, reference, {})
        changed(reference, model=str(other))
        assert refused(other) == "flags.json refers to itself; make the benchmark again."
    assert refused(reference) == "pretrained.json refers to itself; make the benchmark again."


def test_a_reference_to_a_reference_is_followed(reference: Path, tmp_path: Path) -> None:
    other = tmp_path / "second" / "models" / "copy.json"
    other.parent.mkdir(parents=True)
    write_reference(other, reference, {"role": "expert"})
    assert open_checkpoint(other).metadata["role"] == "expert"
    assert open_checkpoint(other).read("visual.proj").equal(STATE["visual.proj"])


def test_it_counts_in_a_folder_called_models_and_if_it_is_small(
    reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = reference.parent.with_name("other") / reference.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(reference.read_bytes())
    assert "refers to" not in refused(elsewhere) and resolve_model_path(str(elsewhere)) == str(elsewhere)
    raw = reference.read_bytes()
    monkeypatch.setattr(referenced_model, "MAX_REFERENCE_BYTES", len(raw) - 1)
    assert referenced_model.MAX_REFERENCE_BYTES < MAX_REFERENCE_BYTES and not referenced_model.is_reference(
        reference, raw
    )


def test_a_name_with_odd_characters_fakes_no_line(reference: Path) -> None:
    changed(reference, model="/gone/\n\u202eok" + "x" * 5000)
    sentence = refused(reference)
    assert r"\n\u202eok" in sentence and "\u202e" not in sentence
