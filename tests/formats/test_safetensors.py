"""The safetensors reader and writer against the reference library, and against files that are damaged or no file."""

from __future__ import annotations

import os

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from safetensors_header import container, entry

from merging.base.errors import CheckpointError
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsWriter, save
from merging.models.tensor_info import TensorInfo


def test_what_we_write_the_reference_library_reads(tmp_path):
    state = tiny.pretrained() | {"visual.half": torch.randn(3).half(), "visual.bf": torch.randn(2, 2).bfloat16()}
    state |= {"visual.count": torch.arange(4), "visual.empty": torch.empty(0, 3), "visual.scalar": torch.tensor(2.0)}
    save(tmp_path / "ours.safetensors", state, {"note": "é ü"})
    read = load_file(tmp_path / "ours.safetensors")
    assert all(torch.equal(read[name], value) for name, value in state.items())
    save_file(state, tmp_path / "theirs.safetensors", {"note": "é ü"})
    theirs, ours = (open_checkpoint(tmp_path / f"{who}.safetensors") for who in ("theirs", "ours"))
    assert theirs.digest == ours.digest == MappingCheckpoint(state, "m").digest
    assert ours.metadata == {"note": "é ü"}


def test_pieces_in_any_order_give_the_same_aligned_file(tmp_path):
    state = {"wide": torch.randn(5, 3, dtype=torch.float64), "half": torch.randn(7).half(), "x": torch.randn(4)}
    save(tmp_path / "whole.safetensors", state, {"name": "of odd length"})
    infos = {name: TensorInfo(tuple(value.shape), value.dtype) for name, value in state.items()}
    with SafetensorsWriter(tmp_path / "pieces.safetensors", infos, {"name": "of odd length"}) as writer:
        for start, stop in ((9, 15), (0, 2), (2, 9)):
            for name, value in state.items():
                writer.write(name, value.reshape(-1)[start:stop], min(start, value.numel()))
    whole, pieces = ((tmp_path / f"{name}.safetensors").read_bytes() for name in ("whole", "pieces"))
    assert whole == pieces
    assert all(torch.equal(load_file(tmp_path / "pieces.safetensors")[name], value) for name, value in state.items())
    assert int.from_bytes(whole[:8], "little") % 8 == 0  # so that tensors begin at multiples of their size


BAD_FILES = {
    "truncated": ({"w": entry(0, 8, [2])}, b"1234", "truncated: the header promises"),
    "trailing bytes": ({"w": entry(0, 4, [1])}, b"123456", "2 bytes follow the last tensor"),
    "overlap": ({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, b"x" * 12, "'b' overlaps"),
    "hole": ({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, b"x" * 12, "'b' leaves a hole"),
    "lying shape": ({"a": entry(0, 4, [2])}, b"x" * 4, r"'a' of shape \[2\] and dtype F32 needs 8 bytes"),
    "room to spare": ({"a": entry(0, 8, [1])}, b"x" * 8, r"shape \[1\] and dtype F32 needs 4 bytes, its offsets"),
    "negative size": ({"a": entry(0, 4, [-1])}, b"x" * 4, "'a' is malformed"),
    "unknown dtype": ({"a": entry(0, 4, [1], "F77")}, b"x" * 4, "dtype 'F77'"),
    "float offsets": ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}}, b"x" * 4, "malformed"),
    "not json": (b"{not json", b"", "not valid JSON"),
    "a list": ([1, 2], b"", "not a mapping"),
    "nothing": ({}, b"", "holds no tensors"),
    "twice": (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
              b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"x" * 4, "names 'a' twice"),
    "metadata": ({"__metadata__": {"k": 3}, "a": entry(0, 4, [1])}, b"x" * 4, "not a mapping of text to text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_damaged_files_are_refused_by_name(name, tmp_path):
    header, data, message = BAD_FILES[name]
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(container(tmp_path, header, data))
    assert "bad.safetensors" in str(caught.value)


@pytest.mark.parametrize("length", [0, 2**63, 2**64 - 1, 10**6])
def test_lying_header_lengths_are_refused(length, tmp_path):
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        open_checkpoint(container(tmp_path, {}, b"", length))


@pytest.mark.parametrize(
    "content,says",
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + b"0" * 90, "PNG image"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"PK\x03\x04" + b"0" * 90, "zip archive"),
    ],
)
def test_other_files_are_recognized(content, says, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(tmp_path / "x.safetensors")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, says in {"pipe": "not a regular file", ".": "a folder", "gone": "not found", "loop": "not found"}.items():
        with pytest.raises(CheckpointError, match=says):
            open_checkpoint(tmp_path / name)


def test_a_file_cut_while_open_is_an_error_not_a_crash(tmp_path):
    path = tiny.write(tmp_path / "cut.safetensors", tiny.pretrained())
    checkpoint = open_checkpoint(path)
    os.truncate(path, 4000)
    with pytest.raises(CheckpointError, match="became shorter"):
        checkpoint.state_dict()
