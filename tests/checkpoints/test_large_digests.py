"""Digests of large checkpoints: one hash for each tensor, the same from another process, and those of old stores."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest
import tiny
import torch
from blake3 import blake3

from merging.checkpoints import content_digest, digests
from merging.cli.main import main
from merging.files.records import write_json
from merging.formats import early_digests
from merging.formats.opening import open_checkpoint
from merging.runs.store import FORMER, Store


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "DIGESTS", cache := digests.DigestCache())
    for place in ("merging.runs.store", "merging.runs.inputs", "merging.formats.early_digests"):
        monkeypatch.setattr(f"{place}.DIGESTS", cache)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (content_digest, digests, early_digests):
        monkeypatch.setattr(module, "SMALL", 100)


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
    from merging.settings import BUNDLED

    for path in (BUNDLED / "models").iterdir():
        assert open_checkpoint(path).nbytes <= content_digest.SMALL // 2, "their digests are in links and recipes"


@pytest.mark.usefixtures("all_large")
def test_each_tensor_of_a_large_checkpoint_has_a_hash(
    tiny_family: tiny.Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_digests, "PIECE", 100)  # so that tensors have several
    path = tiny_family.pretrained
    opened = open_checkpoint(path)
    assert opened.digest == by_hand(path, large=True) == early_digests.digest_of(path, lambda size: None)[1]
    assert opened.content_digest(former=True) == by_hand(path, large=False)
    for digest, is_it in ((opened.digest, True), (by_hand(path, large=False), True), ("0" * 64, False)):
        assert opened.has_digest(digest) is is_it


@pytest.mark.usefixtures("all_large")
def test_another_process_gives_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit is not that of this test, so it gives the digest of a small checkpoint, which shows whose it is."""
    path = tiny.write_family(tmp_path, experts=()).pretrained
    opened = open_checkpoint(path)
    with early_digests.early_digests([str(path), "nowhere.safetensors", "hf-hub:nobody/nothing"]):
        assert digests.DIGESTS.digest(opened) == by_hand(path, large=False)
    digests.DIGESTS.clear()
    monkeypatch.setattr(early_digests.sys, "executable", "false")  # a process that ends at once
    with early_digests.early_digests([str(path)]):
        assert digests.DIGESTS.digest(opened) == by_hand(path, large=True)


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


def merge(family: tiny.Family, store: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    experts = [word for name, path in family.experts.items() for word in ("--expert", f"{name}={path}")]
    words = ["--pretrained", str(family.pretrained), *experts, "--out", str(out), "--store", str(store)]
    assert main(["merge", *words, "--no-evaluate", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_store_knows_large_checkpoints_by_their_former_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    family = tiny.write_family(tmp_path / "family", experts=tiny.EXPERTS[:2])
    old = merge(family, tmp_path / "store", tmp_path / "old.safetensors", capsys)
    (tmp_path / "store" / FORMER).unlink()  # as the first versions left it
    digests.DIGESTS.clear()
    for module in (content_digest, digests):  # not the other process's, whose limit stays
        monkeypatch.setattr(module, "SMALL", 100)
    again = merge(family, tmp_path / "store", tmp_path / "again.safetensors", capsys)
    assert again["id"] == old["id"] and len(Store(tmp_path / "store", libraries=()).runs()) == 1
    digests.DIGESTS.clear()
    other = merge(family, tmp_path / "other", tmp_path / "other.safetensors", capsys)
    assert other["id"] != old["id"], "a new store knows nothing of former digests"
    changed = tiny.write_family(tmp_path / "changed", torch.float64, tiny.EXPERTS[:2])
    new = merge(changed, tmp_path / "store", tmp_path / "new.safetensors", capsys)
    opened = open_checkpoint(next(iter(changed.experts.values())))
    assert opened.digest != opened.content_digest(former=True)
    stored = Store(tmp_path / "store", libraries=()).run(new["id"]).inputs
    assert opened.digest in stored.values(), "what the old runs did not merge has its new digest"


def test_a_store_reads_its_runs_for_former_digests_when_one_is_asked_for(
    tiny_family: tiny.Family, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    for _ in range(2):
        Store(tmp_path, libraries=()).runs()
    assert not (tmp_path / FORMER).exists()
    digests.DIGESTS.digest(open_checkpoint(tiny_family.pretrained))
    assert json.loads((tmp_path / FORMER).read_bytes()) == {"digests": []}


@pytest.mark.parametrize("command", ["digest", "fit"])
@pytest.mark.parametrize("known_by", ["run", "record"])
def test_commands_that_keep_digests_keep_those_that_a_store_knows(
    tmp_path: Path, all_large: None, command: str, known_by: str
) -> None:
    """A store of a first version knows a checkpoint by a run, or by the record of its file alone."""
    family, store = tiny.write_family(tmp_path / "family", experts=tiny.EXPERTS[:1]), tmp_path / "store"
    path, expert = family.pretrained, next(iter(family.experts.values()))
    former = by_hand(path, large=False)
    record = {"inputs": {"pretrained": former}} if known_by == "run" else {"version": 1, "state": [0], "digest": former}
    place = store / "runs" / ("0" * 12) / "run.json" if known_by == "run" else store / "digests" / "0.json"
    place.parent.mkdir(parents=True)
    write_json(place, record)
    words = {"digest": [str(path)], "fit": ["--pretrained", str(path), "--expert", f"a={expert}", "--keep"]}
    assert main([command, *words[command], "--store", str(store)]) == 0
    digests.DIGESTS.clear()
    Store(store, libraries=())
    assert digests.DIGESTS.digest(open_checkpoint(path)) == former
