"""Experts stored as whole-number changes: how near they come, and what damaged or foreign files say."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from merging.base.errors import CheckpointError
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats import integer_changes
from merging.models.formats.integer_changes import IntegerChanges, is_integer_changes, write_changes
from merging.models.formats.model_sources import open_checkpoint

SHAPES = {"visual.conv1.weight": (6, 3, 4, 4), "visual.ln_pre.bias": (6,), "visual.proj": (6, 5), "visual.scale": ()}

State = dict[str, torch.Tensor]


@pytest.fixture
def states() -> tuple[State, State]:
    """A pretrained model in float16 and an expert in float32, of four tensors."""
    generator = torch.Generator().manual_seed(0)
    pretrained = {name: torch.randn(shape, generator=generator).half() for name, shape in SHAPES.items()}
    change = {name: 0.01 * torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return pretrained, {name: pretrained[name].float() + change[name] for name in SHAPES}


@pytest.fixture
def file(states: tuple[State, State], tmp_path: Path) -> Path:
    return write(*states, tmp_path)


def write(
    pretrained: dict[str, torch.Tensor], expert: dict[str, torch.Tensor], folder: Path, levels: int = 127
) -> Path:
    """The file of an expert, with its pretrained model beside it."""
    save_file(pretrained, folder / "pretrained.safetensors")
    path = folder / f"expert{levels}.npz"
    write_changes(
        path, open_checkpoint(folder / "pretrained.safetensors"), MappingCheckpoint(expert, "e"), {"task": "x"}, levels
    )
    return path


def replace_array(path: Path, name: str, content: np.ndarray) -> None:
    """Replace or add one array of a file of changes."""
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **arrays | {name: content})


@pytest.mark.parametrize("levels", [1, 15, 127])
def test_every_scalar_is_within_half_a_step_of_its_row(states, tmp_path, levels):
    pretrained, expert = states
    opened = open_checkpoint(write(pretrained, expert, tmp_path, levels))
    for name, shape in SHAPES.items():
        exact = expert[name].double() - pretrained[name].double()
        rows = exact.reshape(shape[0] if len(shape) > 1 else 1, -1)
        step = rows.abs().amax(1, keepdim=True) / levels
        found = (opened.read(name).double() - pretrained[name].double()).reshape(rows.shape)
        assert opened.read(name).dtype == torch.float32 and opened.read(name).shape == shape
        assert ((found - rows).abs() <= step / 2 + 1e-6).all(), name  # and float32's rounding of the sum
    assert opened.metadata["task"] == "x"


def test_pieces_of_a_tensor_are_those_of_the_whole(file):
    opened = open_checkpoint(file)
    whole = opened.read("visual.conv1.weight").reshape(-1)
    assert torch.equal(opened.read_flat("visual.proj", 3, 3), torch.empty(0))
    assert torch.equal(opened.read_flat("visual.conv1.weight", 7, 50), whole[7:50])


def test_a_small_file_is_unpacked_once_until_it_changes(states, tmp_path, monkeypatch):
    pretrained, expert = states
    path, reads = write(pretrained, expert, tmp_path), list[str]()
    read_codes = IntegerChanges.read_codes

    def read_and_note(self, name):
        reads.append(name)
        return read_codes(self, name)

    monkeypatch.setattr(IntegerChanges, "read_codes", read_and_note)
    opened = open_checkpoint(path)
    opened.label = "models:somebody's"  # as where a reference names the file
    first = opened.read("visual.proj")
    first.zero_()  # the caller's copy
    second = open_checkpoint(path).read("visual.proj")
    assert reads == ["visual.proj"] and second.any()
    write(pretrained, {name: values + 1 for name, values in expert.items()}, tmp_path)
    assert not torch.equal(open_checkpoint(path).read("visual.proj"), second)
    opened = open_checkpoint(path)
    save_file({name: values + 1 for name, values in pretrained.items()}, tmp_path / "other")
    times = (tmp_path / "pretrained.safetensors").stat()
    kept = (tmp_path / "pretrained.safetensors").read_bytes()
    (tmp_path / "pretrained.safetensors").write_bytes((tmp_path / "other").read_bytes())
    wrong = opened.read("visual.conv1.weight")  # a file is overwritten while it is read
    (tmp_path / "pretrained.safetensors").write_bytes(kept)
    os.utime(tmp_path / "pretrained.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not torch.equal(open_checkpoint(path).read("visual.conv1.weight"), wrong)
    monkeypatch.setattr(integer_changes, "SHARED_BYTES", 0)
    reads.clear()
    large = open_checkpoint(path)
    for name in ("visual.proj", "visual.proj", "visual.ln_pre.bias", "visual.proj"):
        large.read(name)
    assert reads == ["visual.proj", "visual.ln_pre.bias", "visual.proj"]


def test_a_row_that_does_not_change_stays_exactly(states, tmp_path):
    pretrained, expert = states
    projection = expert["visual.proj"].clone()
    projection[2] = pretrained["visual.proj"][2].float()
    opened = open_checkpoint(write(pretrained, expert | {"visual.proj": projection}, tmp_path))
    assert torch.equal(opened.read("visual.proj")[2], pretrained["visual.proj"][2].float())


def test_fewer_levels_take_fewer_bytes(states, tmp_path):
    sizes = [write(*states, tmp_path, levels).stat().st_size for levels in (127, 15, 3)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]


def test_the_file_is_the_same_for_the_same_expert(states, tmp_path):
    first = open_checkpoint(write(*states, tmp_path)).digest
    assert open_checkpoint(write(*states, tmp_path)).digest == first


def test_the_file_is_recognized_by_its_content(file, tmp_path):
    renamed = file.rename(tmp_path / "expert.bin")
    assert is_integer_changes(renamed.read_bytes()[:64])
    assert open_checkpoint(renamed).infos["visual.proj"].dtype == torch.float32
    assert not is_integer_changes((tmp_path / "pretrained.safetensors").read_bytes()[:64])


def test_the_fingerprint_follows_both_files(states, file, tmp_path):
    before = open_checkpoint(file).file_fingerprint()
    save_file(states[0], tmp_path / "pretrained.safetensors")  # the same model, written again
    assert open_checkpoint(file).file_fingerprint() != before


def test_it_says_that_the_pretrained_model_is_missing_or_another(states, file, tmp_path):
    other = states[0] | {"visual.proj": states[0]["visual.proj"] + 1}
    save_file(other, tmp_path / "pretrained.safetensors")
    with pytest.raises(CheckpointError, match="changes of another pretrained model than pretrained beside it"):
        open_checkpoint(file)
    (tmp_path / "pretrained.safetensors").unlink()
    with pytest.raises(CheckpointError, match="must be beside it under the name pretrained; it is missing"):
        open_checkpoint(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no stream", "the codes of 'visual.proj' are damaged"),
        (zlib.compress(b"x" * 29), "needs 30 codes; 29 came"),
        (zlib.compress(b"x" * 100), "needs 30 codes; more came"),
    ],
)
def test_it_names_the_tensor_whose_changes_do_not_fit(file, content, reason):
    replace_array(file, "visual.proj", np.frombuffer(content, np.uint8))
    opened = open_checkpoint(file)
    with pytest.raises(CheckpointError, match=reason):
        opened.read("visual.proj")


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("scales", np.ones(12, np.float32), r"must have 14 scales of float32, one for each row; got float32 \[12\]"),
        ("scales", np.ones(14), "got float64"),
        ("visual.other", np.ones(3, np.uint8), "changes visual.other, which the pretrained model does not have"),
    ],
)
def test_it_says_which_arrays_do_not_belong_to_the_pretrained_model(file, name, array, reason):
    replace_array(file, name, array)
    with pytest.raises(CheckpointError, match=reason):
        open_checkpoint(file)


def replace_base_by_changes(file: Path, name: str) -> None:
    (file.parent / "pretrained.safetensors").unlink()
    (file.parent / name).write_bytes(file.read_bytes())


@pytest.mark.parametrize("name", ["pretrained.npz", "pretrained.safetensors"])
def test_a_pretrained_model_is_no_file_of_changes(file, name):
    replace_base_by_changes(file, name)
    for path in (file, file.parent / name):
        with pytest.raises(CheckpointError, match=f"{name} stores changes, too, and must be a whole pretrained model"):
            open_checkpoint(path)


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("scales", np.full(14, np.nan, np.float32), "finite and not negative"),
        ("scales", np.full(14, -1, np.float32), "finite and not negative"),
        ("scales", np.ones(14, ">f4"), "got >f4"),
        ("scales", np.full(14, "1"), "got <U1"),
        ("metadata", np.array([1, 2]), "must have a text under 'metadata'"),
        ("metadata", np.array("\ud800"), "the text under 'metadata' cannot be read"),
        ("digest_of_pretrained", np.array(3.5), "must have a text under 'digest_of_pretrained'"),
        ("digest_of_pretrained", np.array([0x110000], np.uint32).view("<U1")[0:1].reshape(()), "cannot be read"),
    ],
)
def test_arrays_of_another_kind_are_refused(file, name, array, reason):
    replace_array(file, name, array)
    with pytest.raises(CheckpointError, match=reason):
        open_checkpoint(file)


def test_codes_of_too_many_bytes_are_not_read(file):
    replace_array(file, "visual.proj", np.zeros(10_000, np.uint8))
    with pytest.raises(CheckpointError, match=r"the codes of 'visual\.proj' must be at most 124 bytes"):
        open_checkpoint(file).read("visual.proj")


def test_a_tensor_that_was_read_can_be_changed(file):
    opened = open_checkpoint(file)
    first = opened.read("visual.proj").clone()
    opened.read("visual.proj").zero_()
    assert torch.equal(opened.read("visual.proj"), first)


@pytest.mark.parametrize("levels", [0, 128])
def test_levels_that_bytes_cannot_hold_are_refused(states, tmp_path, levels):
    with pytest.raises(CheckpointError, match=f"Levels must be 1 to 127; got {levels}"):
        write(*states, tmp_path, levels)


def test_an_expert_that_does_not_fit_is_not_written(states, tmp_path):
    pretrained, expert = states
    others = {
        "differs in visual.proj": expert | {"visual.proj": torch.ones(1, 5)},
        "differs in visual.new": expert | {"visual.new": torch.ones(2)},
        "'visual.proj' has numbers that are not finite": expert | {"visual.proj": torch.full((6, 5), torch.nan)},
    }
    for reason, other in others.items():
        with pytest.raises(CheckpointError, match=reason):
            write(pretrained, other, tmp_path)
    assert not list(tmp_path.glob("*.npz"))


def test_tensors_without_a_change_are_left_out(states, tmp_path):
    pretrained, expert = states
    empty = {"visual.empty": torch.empty(0, 3).half()}
    path = write(pretrained | empty, expert | empty | {"visual.proj": pretrained["visual.proj"]}, tmp_path)
    with np.load(path) as archive:
        assert not {"visual.proj", "visual.empty"} & set(archive.files)
    assert open_checkpoint(path).infos["visual.proj"].dtype == torch.float16


@pytest.mark.parametrize("end", [200, 900])
def test_a_file_that_was_cut_off_is_refused(file, end):
    file.write_bytes(file.read_bytes()[:end])
    with pytest.raises(CheckpointError, match=r"expert127\.npz is damaged"):
        open_checkpoint(file)


def test_an_archive_with_that_first_name_alone_is_refused(file):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("digest_of_pretrained.npy", b"")
    file.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match=r"expert127\.npz"):
        open_checkpoint(file)
