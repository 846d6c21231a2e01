"""Two computers on one store, as a network file system gives it: host names are pretended, and what it may answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from merging.base.files import atomic, locks, processes, records, temporary
from merging.base.files.disk import exists_on_shared_disk
from merging.base.files.processes import ProcessId
from merging.base.files.temporary import ABANDONED_SECONDS

ONE, OTHER = "11111111", "22222222"
Be = Callable[[str], None]


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch) -> Be:
    """Become a process of another computer, with the same number."""

    def become(host: str) -> None:
        me = replace(ProcessId.from_pid(os.getpid()), host=host)
        monkeypatch.setattr(processes, "this_host", lambda: host)
        for module in (temporary, locks):
            monkeypatch.setattr(module, "this_process", lambda: me)

    return become


def left(root: Path) -> list[str]:
    return [path.name for path in root.iterdir()]


def test_neither_computer_removes_what_the_other_is_writing(tmp_path: Path, be: Be) -> None:
    be(ONE)
    folder = atomic.make_temporary(tmp_path)
    be(OTHER)
    atomic.remove_leftovers(tmp_path)
    own = atomic.make_temporary(tmp_path)
    be(ONE)
    atomic.remove_leftovers(tmp_path)
    assert sorted(left(tmp_path)) == sorted([folder.name, own.name])
    assert ONE in folder.name and OTHER in own.name


def test_what_the_other_computer_left_goes_when_nothing_in_it_has_changed_for_a_day(tmp_path: Path, be: Be) -> None:
    be(ONE)
    folder = atomic.make_temporary(tmp_path)
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("half", "utf-8")
    be(OTHER)
    young, old = 0.9 * ABANDONED_SECONDS, 1.1 * ABANDONED_SECONDS
    for ages, names in (((young, old, old), [folder.name]), ((old, old, old), [])):
        for path, age in zip((folder / "inner" / "file", folder / "inner", folder), ages, strict=True):
            os.utime(path, (time.time() - age,) * 2)
        atomic.remove_leftovers(tmp_path)
        assert left(tmp_path) == names


def lost(rename: Callable[..., Any]) -> Callable[..., Any]:
    """A rename that happens, and whose answer is lost: asked again, the server finds nothing to rename."""

    def renamed(source: Path, target: Path) -> Any:
        rename(source, target)
        return rename(source, target)

    return renamed


def test_an_entry_is_published_although_the_answer_to_its_rename_was_lost(tmp_path: Path, monkeypatch: Any) -> None:
    folder = atomic.make_temporary(tmp_path)
    (folder / "file").write_text("ours", "utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lost(Path.rename))
        assert atomic.publish(folder, tmp_path / "entry")
    assert (tmp_path / "entry" / "file").read_text("utf-8") == "ours" and left(tmp_path) == ["entry"]


def test_a_folder_that_is_gone_is_not_taken_for_the_entry_of_another_writer(tmp_path: Path, monkeypatch: Any) -> None:
    folder, rename = atomic.make_temporary(tmp_path), Path.rename

    def taken(source: Path, target: Path) -> Any:
        source.rmdir()
        target.mkdir()
        return rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(FileNotFoundError):
        patch.setattr(Path, "rename", taken)
        atomic.publish(folder, tmp_path / "entry")


def test_small_files_and_deletions_survive_a_lost_answer(tmp_path: Path, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lost(Path.replace))
        records.write_text(tmp_path / "file", "ours")
    assert (tmp_path / "file").read_text("utf-8") == "ours"
    (tmp_path / "entry").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lost(Path.rename))
        atomic.remove_entry(tmp_path / "entry")
    assert left(tmp_path) == ["file"]


def test_a_name_that_was_missing_a_moment_ago_is_looked_for_again(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "entry").mkdir()
    looked: list[str] = []
    listdir, exists = os.listdir, Path.exists
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(str(path)) or listdir(path))
    monkeypatch.setattr(Path, "exists", lambda path: bool(looked) and exists(path))
    assert exists_on_shared_disk(tmp_path / "entry") and looked == [str(tmp_path)]
    assert not exists_on_shared_disk(tmp_path / "other") and not exists_on_shared_disk(tmp_path / "nowhere" / "entry")


def test_a_lock_of_another_computer_does_not_stop_anybody_for_ever(tmp_path: Path, be: Be) -> None:
    path, seen = tmp_path / "run.lock", list[ProcessId]()
    be(OTHER)
    with locks.hold_lock(path) as first:
        be(ONE)
        with locks.hold_lock(path, on_holder=seen.append, max_seconds=0.1) as second:
            assert (first, second) == (True, False)
    assert {(holder.host, holder.is_remote) for holder in seen} <= {(OTHER, True)}
    with locks.hold_lock(path, max_seconds=0.1) as free:  # a computer that is gone holds no lock
        assert free
