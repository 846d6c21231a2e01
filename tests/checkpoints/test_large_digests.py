"""Digests of large checkpoints: one hash for each tensor, the same from another process."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest
import tiny
from blake3 import blake3

from merging.models import content_digest, digest_cache
from merging.models.formats import early_digests
from merging.models.formats.model_sources import ModelRef, open_checkpoint


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_cache, "DIGESTS", cache := digest_cache.DigestCache())
    for place in ("merging.study.runs.opened_recipe", "merging.models.formats.early_digests"):
        monkeypatch.setattr(f"{place}.DIGESTS", cache)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (content_digest, early_digests):
        monkeypatch.setattr(module, "DIRECT_HASH_BYTES", 100)


def parts(path: Path) -> tuple[dict[str, dict], bytes]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, raw[8 + length :]


def by_hand(path: Path, large: bool) -> str:
    header, values = parts(path)
    total = b""
    for name, entry in sorted(header.items()):
        begin, end = entry["data_offsets"]
        total += f"{name}\0{entry['dtype']}\0{tuple(entry['shape'])}\0".encode()
        total += blake3(values[begin:end]).digest() if large else values[begin:end]
    return hashlib.sha256(total).hexdigest()


def test_values_of_a_small_checkpoint_enter_as_they_are(tiny_family: tiny.Family) -> None:
    path = tiny_family.pretrained
    assert open_checkpoint(path).digest == by_hand(path, large=False)


def test_the_bundled_models_are_small() -> None:
    from merging.base.settings import BUNDLED_FOLDER

    for path in (BUNDLED_FOLDER / "models").iterdir():
        assert open_checkpoint(path).nbytes <= content_digest.DIRECT_HASH_BYTES // 2, (
            "their digests are in links and recipes"
        )


@pytest.mark.usefixtures("all_large")
def test_each_tensor_of_a_large_checkpoint_has_a_hash(
    tiny_family: tiny.Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_digests, "PIECE_BYTES", 100)  # so that tensors have several
    path = tiny_family.pretrained
    opened = open_checkpoint(path)
    assert opened.digest == by_hand(path, large=True) == early_digests.compute_digest(path, lambda size: None)[1]


@pytest.mark.usefixtures("all_large")
def test_another_process_gives_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit is not that of this test, so it gives the digest of a small checkpoint, which shows whose it is."""
    path = tiny.write_family(tmp_path, experts=()).pretrained
    opened = open_checkpoint(path)
    with early_digests.early_digests(map(ModelRef, [str(path), "nowhere.safetensors", "hf-hub:nobody/nothing"])):
        assert digest_cache.DIGESTS.digest(opened) == by_hand(path, large=False)
    digest_cache.DIGESTS.clear()
    monkeypatch.setattr(early_digests.sys, "executable", "false")  # a process that ends at once
    with early_digests.early_digests([ModelRef(str(path))]):
        assert digest_cache.DIGESTS.digest(opened) == by_hand(path, large=True)


def test_what_is_damaged_gets_no_early_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tiny.write_family(tmp_path, experts=()).pretrained
    damaged = {"cut": good.read_bytes()[:-4], "text": b"hello", "empty": b"", "list": b"\2" + bytes(7) + b"[]"}
    for name, raw in damaged.items():
        (tmp_path / name).write_bytes(raw)
        early_digests.main([str(tmp_path / name)])
    assert capsys.readouterr().out == ""
    early_digests.main([str(good)])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["digest"] == by_hand(good, large=False)
