"""Records are written whole or not at all; files that are no record of this version are ignored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import fail_writing

from merging.base.errors import StoreError
from merging.base.files import records
from merging.base.files.records import JsonRecords


@pytest.fixture
def folder(tmp_path: Path) -> JsonRecords:
    return JsonRecords(tmp_path / "records", version=2, max_records=3)


def title(record: Any) -> str:
    if not record["title"]:
        raise StoreError("A record has a title.")
    return str(record["title"])


def test_a_record_is_read_as_it_was_written(folder: JsonRecords) -> None:
    folder.write("one", {"title": "Ünïcode", "numbers": [1, 2]})
    assert folder.read("one", dict) == {"version": 2, "title": "Ünïcode", "numbers": [1, 2]}
    assert folder.folder.stat().st_mode & 0o777 == 0o700
    folder.write("one", {"title": "second"})
    assert folder.read("one", title) == "second"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '{"version": 1, "title": "old"}',
        '{"title": "of no version"}',
        '{"version": 2}',
        '{"version": 2, "title": ""}',
        "[" * 9999,
    ],
    ids=lambda text: text[:20] or "empty",
)
def test_what_is_no_record_is_ignored(folder: JsonRecords, content: str) -> None:
    folder.write("good", {"title": "good"})
    folder.path("odd").write_text(content)
    assert folder.read("odd", title) is None
    assert folder.read("none", title) is None
    assert folder.read("good", title) == "good"


def test_the_newest_records_are_listed_first(folder: JsonRecords) -> None:
    assert folder.names() == []
    for number, name in enumerate("badc"):
        folder.write(name, {"title": name})
        os.utime(folder.path(name), ns=(number, number))
    assert folder.names() == ["c", "d", "a"]
    folder.remove("d")
    folder.remove("d")
    assert folder.names() == ["c", "a", "b"]


@pytest.mark.parametrize("fails", ["sync", "json"])
def test_a_failed_write_leaves_the_record_and_nothing_else(folder: JsonRecords, monkeypatch: Any, fails: str) -> None:
    folder.write("one", {"title": "before"})

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    if fails == "sync":
        monkeypatch.setattr(records, "sync", full)
    with pytest.raises((OSError, ValueError)):
        folder.write("one", {"title": "after", "number": float("nan") if fails == "json" else 1})
    assert [path.name for path in folder.folder.iterdir()] == ["one.json"]
    assert folder.read("one", title) == "before"


def test_a_small_file_has_room_on_a_full_disk_as_often_as_was_reserved(tmp_path: Path) -> None:
    place = tmp_path / "state.json"
    place.write_text("first")
    records.write_reserve_files(tmp_path)
    assert all((tmp_path / name).stat().st_blocks for name in records.RESERVE_FILES)
    with fail_writing(tmp_path, in_place=True):
        with pytest.raises(OSError, match="No space"):
            records.write_bytes(place, b"second")
        with pytest.raises(OSError, match="No space"):
            records.write_reserved(place, b"x" * (records.RESERVE_BYTES + 1))
        assert place.read_text() == "first"
        for text in (b"second", b"third"):
            records.write_reserved(place, text)
            assert place.read_bytes() == text
        with pytest.raises(OSError, match="No space"):
            records.write_reserved(place, b"fourth")
    assert place.read_bytes() == b"third" and [path.name for path in tmp_path.iterdir()] == ["state.json"]
    records.write_reserve_files(tmp_path)
    records.write_reserved(place, b"fifth")  # which has room
    assert all((tmp_path / name).exists() for name in records.RESERVE_FILES)
    records.remove_reserve_files(tmp_path)
    assert place.read_bytes() == b"fifth" and [path.name for path in tmp_path.iterdir()] == ["state.json"]
