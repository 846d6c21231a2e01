"""Digests of checkpoints: told as they are read, stopped when asked, remembered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tiny

from merging.base.errors import Cancelled
from merging.base.progress import Meter
from merging.cli.main import main
from merging.models import digest_cache
from merging.models.formats.model_sources import open_checkpoint


def test_a_digest_tells_what_was_read_and_stops_when_asked(tmp_path, monkeypatch):
    path = tiny.write_family(tmp_path, experts=()).pretrained
    monkeypatch.setattr("merging.models.checkpoint.DIGEST_PIECE", 100)
    digest_cache.DIGESTS.clear()
    seen = []
    opened = open_checkpoint(path)
    found = digest_cache.DIGESTS.digest(opened, Meter(opened.nbytes, seen.append))
    assert found == open_checkpoint(path).digest and len(seen) > 20
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert seen[-1].fraction == 1.0
    digest_cache.DIGESTS.clear()
    with pytest.raises(Cancelled):
        digest_cache.DIGESTS.digest(opened, Meter(opened.nbytes, None, lambda: True))
    assert digest_cache.DIGESTS.find(opened.file_fingerprint()) == ""


def test_digests_are_remembered_between_processes(tmp_path: Path, tiny_family: tiny.Family) -> None:
    path = tmp_path / "p.safetensors"
    path.write_bytes(tiny_family.pretrained.read_bytes())
    assert main(["digest", str(path), "--store", str(tmp_path / "store"), "--json"]) == 0
    opened = open_checkpoint(path)
    digest_cache.DIGESTS.clear()
    assert digest_cache.DIGESTS.find(opened.file_fingerprint()) == ""
    digest_cache.DIGESTS.load(tmp_path / "store")
    assert digest_cache.DIGESTS.find(opened.file_fingerprint()) == opened.content_digest()
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    assert digest_cache.DIGESTS.find(open_checkpoint(path).file_fingerprint()) == ""


DAMAGED = ["", "[]", '{"state": "x"}', '{"state": STATE}', '{"state": STATE, "digest": 7}',
           '{"state": STATE, "digest": null}', '{"state": STATE, "digest": "5c"}']  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_digests_are_no_digests(text: str, tmp_path: Path) -> None:
    state = open_checkpoint(tiny.write_family(tmp_path / "family", experts=()).pretrained).file_fingerprint()
    (tmp_path / "digests").mkdir()
    begun = f'{{"version": {digest_cache.VERSION}, '
    (tmp_path / "digests" / "a.json").write_text(text.replace("STATE", str(list(state))).replace("{", begun))
    (tmp_path / "digests" / "b.json").write_text(f'{begun}"state": [1, 2, 3], "digest": "{"5c" * 32}"}}')
    cache = digest_cache.DigestCache()
    cache.load(tmp_path)
    cache.load(tmp_path / "nowhere")
    assert cache.find(state) == "" and cache.find((1, 2, 3)) == "5c" * 32


def test_a_digest_of_a_file_that_changed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    path = tiny.write_family(tmp_path, experts=()).pretrained
    opened = open_checkpoint(path)

    def touched(progress: object) -> None:
        os.utime(path, ns=(1, len(states)))
        states.append(opened.file_fingerprint())

    states: list[object] = []
    digest_cache.DIGESTS.clear()
    digest_cache.DIGESTS.store(tmp_path / "store", opened, Meter(opened.nbytes, touched))
    assert states and not (tmp_path / "store").exists()
    digest_cache.DIGESTS.clear()
    digest_cache.DIGESTS.store(tmp_path / "store", opened)
    assert len(list((tmp_path / "store" / "digests").iterdir())) == 1
