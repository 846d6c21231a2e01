"""Drafts on a disk that refuses each call that writes, with each byte damaged, and changed by two at a time."""

from __future__ import annotations

import errno
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from damage import faults
from faulty_disk import FULL, READ_ONLY, contents, count, faulty

from merging.errors import StoreError
from merging.runs.drafts import Drafts
from merging.runs.store import Store

A, B = "a" * 32, "b" * 32
OLD, NEW = {"title": "old"}, {"title": "new"}
SENTENCE = re.compile(r"The disk is full .*draft of the report|The draft of the report cannot be written")


def drafts_in(root: Path) -> dict[str, bytes | None]:
    return {name: data for name, data in contents(root).items() if "locks" not in name}


@pytest.mark.parametrize("error", [FULL, READ_ONLY, errno.EIO])
@pytest.mark.parametrize("new", [True, False])
def test_a_disk_that_refuses_leaves_the_draft_as_it_was(tmp_path: Path, error: int, new: bool) -> None:
    drafts = Drafts(Store(tmp_path / "store", libraries=()))
    token = "" if new else drafts.keep("report", OLD, parts={A: lambda: b"one"})
    before = drafts_in(tmp_path)

    def work() -> str:
        return drafts.keep("report", NEW, token, {A: lambda: b"one", B: lambda: b"two"})

    calls = count(tmp_path, work)
    kept = work()
    assert len(calls) > 4
    for number in range(1, len(calls) + 1):
        drafts.remove("report", kept)
        token = "" if new else drafts.keep("report", OLD, parts={A: lambda: b"one"})
        before = drafts_in(tmp_path)
        with faulty(tmp_path, error, number):
            try:
                kept = work()
            except StoreError as refusal:
                assert SENTENCE.search(str(refusal)), (calls[number - 1], str(refusal))
            else:
                assert drafts.read("report", kept) == NEW
                continue
        if error == FULL:  # on a disk that is read-only from now on, half a file cannot be removed again
            assert drafts_in(tmp_path) == before, calls[number - 1]
        if token:
            assert drafts.read("report", token) == OLD and drafts.part("report", token, A) == b"one"
        kept = work()
        assert drafts.read("report", kept) == NEW and drafts.part("report", kept, B) == b"two"


def test_every_damage_of_a_draft_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", libraries=())
    drafts = Drafts(store)
    token = drafts.keep("report", OLD, parts={A: lambda: b"one part"})
    (folder,) = (store.root / "drafts").iterdir()
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for how, _ in faults(folder):
        with pytest.raises(StoreError, match="is damaged"):
            drafts.read("report", token)
            drafts.part("report", token, A)
        (damage,) = store.damaged.listed()
        assert damage.kind == "draft" and damage.reason and not folder.exists(), how
        store.damaged.remove(damage)
        folder.mkdir()
        for name, data in whole.items():
            (folder / name).write_bytes(data)
    assert drafts.read("report", token) == OLD


def test_tabs_that_keep_one_draft_at_a_time_leave_a_whole_one(tmp_path: Path) -> None:
    """Each has parts of its own, which the other removes."""
    root = tmp_path / "store"
    token = Drafts(Store(root, libraries=())).keep("report", OLD)

    def tab(letter: str) -> None:
        drafts = Drafts(Store(root, libraries=()))
        for number in range(15):
            drafts.keep("report", {"by": letter, "at": number}, token, {letter * 32: letter.encode})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(tab, "abc"))
    drafts = Drafts(Store(root, libraries=()))
    letter = drafts.read("report", token)["by"]
    assert drafts.part("report", token, letter * 32) == letter.encode()
    assert not Store(root, libraries=()).damaged.listed()
