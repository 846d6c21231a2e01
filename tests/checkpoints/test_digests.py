"""Digests of checkpoints: told as they are read, stopped when asked, remembered."""

from __future__ import annotations

import pytest
import tiny

from merging.checkpoints import digests
from merging.errors import Cancelled
from merging.formats.opening import open_checkpoint
from merging.progress import Meter


def test_a_digest_tells_what_was_read_and_stops_when_asked(tmp_path, monkeypatch):
    path = tiny.write_family(tmp_path, experts=()).pretrained
    monkeypatch.setattr("merging.checkpoints.checkpoint.DIGEST_PIECE", 100)
    digests.DIGESTS.clear()
    seen = []
    opened = open_checkpoint(path)
    found = digests.DIGESTS.digest(opened, Meter(opened.nbytes, seen.append))
    assert found == open_checkpoint(path).digest and len(seen) > 20
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert seen[-1].fraction == 1.0
    digests.DIGESTS.clear()
    with pytest.raises(Cancelled):
        digests.DIGESTS.digest(opened, Meter(opened.nbytes, None, lambda: True))
    assert digests.DIGESTS.remembered(opened.state()) == ""
