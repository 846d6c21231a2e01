"""Files that are too large for a sha-256, and those whose writing to the disk begins before they are complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from blake3 import blake3

from merging.base.files import atomic, disk
from merging.models.formats import safetensors
from merging.models.formats.model_sources import open_checkpoint
from merging.models.tensor_info import TensorInfo


def test_a_large_file_has_a_blake3_in_its_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "BLAKE3_MIN_BYTES", 10)
    (tmp_path / "large").write_bytes(b"eleven byte")
    (tmp_path / "small").write_bytes(b"ten bytes.")
    atomic.seal(tmp_path)
    files = json.loads((tmp_path / atomic.MANIFEST).read_bytes())["files"]
    assert files["large"] == {"blake3": blake3(b"eleven byte").hexdigest(), "size": 11}
    assert set(files["small"]) == {"sha256", "size"}
    atomic.check_whole(tmp_path)
    (tmp_path / "large").write_bytes(b"eleven BYTE")
    with pytest.raises(atomic.DamagedError, match="large does not have the BLAKE3 that its manifest states"):
        atomic.check_whole(tmp_path)


def test_a_file_is_written_to_the_disk_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors, "SYNC_BYTES", 1)
    tensors = {name: torch.full((100,), float(place)) for place, name in enumerate("abcdef")}
    safetensors.save(tmp_path / "m.safetensors", tensors)
    plain = (tmp_path / "m.safetensors").read_bytes()
    monkeypatch.setattr(safetensors, "SYNC_BYTES", 1 << 25)
    safetensors.save(tmp_path / "other.safetensors", tensors)
    assert plain == (tmp_path / "other.safetensors").read_bytes()


def test_an_error_of_the_disk_met_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:  # the system reports it only once
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors, "SYNC_BYTES", 1)
    monkeypatch.setattr(safetensors.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        safetensors.save(tmp_path / "m.safetensors", {"a": torch.ones(3)})
    assert not list(tmp_path.iterdir())


def test_the_last_piece_goes_to_the_disk_before_the_file_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(safetensors.os, "fsync", lambda descriptor: synced.append(len(synced)))
    infos = {"a": TensorInfo((4,), torch.float32)}
    writer = safetensors.SafetensorsWriter(tmp_path / "m.safetensors", infos)
    writer.write("a", torch.zeros(2))
    assert not writer._syncs
    writer.write("a", torch.zeros(2), 2)
    for sync in writer._syncs:
        sync.result(timeout=60)
    assert synced == [0]
    writer.commit()


def test_what_was_just_written_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with atomic.write_folder(tmp_path, "entry", lambda folder: False, "It") as folder:
        (folder / "file").write_bytes(b"content")
    entry = tmp_path / "entry"
    hashed: list[Path] = []
    hash_of = atomic.file_hash

    def counted(path: Path, kind: str = atomic.SHA256) -> str:
        hashed.append(path)
        return hash_of(path, kind)

    monkeypatch.setattr(atomic, "file_hash", counted)
    atomic.check_whole(entry)
    assert not hashed
    (entry / "file").write_bytes(b"CONTENT")
    with pytest.raises(atomic.DamagedError, match="does not have the sha-256"):
        atomic.check_whole(entry)
    assert hashed == [entry / "file"]


@pytest.mark.parametrize("number", [95, 22])
def test_where_no_room_can_be_reserved_a_file_gets_its_size_alone(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, start: int, size: int) -> None:
        raise OSError(number, "not supported")

    monkeypatch.setattr(disk.os, "posix_fallocate", unsupported)
    safetensors.save(tmp_path / "m.safetensors", {"a": torch.ones(3)})
    assert open_checkpoint(tmp_path / "m.safetensors").read("a").tolist() == [1, 1, 1]


def test_a_disk_without_room_is_known_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "posix_fallocate", full)
    monkeypatch.setattr(disk.os, "ftruncate", None)
    with pytest.raises(OSError, match="No space left"):
        safetensors.SafetensorsWriter(tmp_path / "m.safetensors", {"a": TensorInfo((3,), torch.float32)})
    assert not list(tmp_path.iterdir())
