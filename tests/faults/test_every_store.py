"""Everything that is stored, as it is written: a writer that is killed, a disk that refuses, several writers, damage.

Nothing is lost but what was under way: a reader sees what was there before, or what is there afterwards.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from daily import EVERY_STAGE, sampled
from damage import damage_each_file
from fault_store import leftovers
from faulty_disk import FULL, READ_ONLY, contents, count, fail_writing
from nursery import ProcessForker
from stored_runs import ID
from stored_things import ABSENT, CASES, KINDS, NEW, OLD, THINGS, StoredThing, read_result, write_result

from merging.base.errors import StoreError
from merging.study.runs.run_store import Store
from merging.tasks import results as results_module

SIGKILLED = -9


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced is not waited for: a kill and a refusal do not lose what the system holds."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def begun(thing: StoredThing, folder: Path, before: int) -> Callable[[], None]:
    """What leaves a store with that version, or an empty one, at ``folder``/store."""
    (folder / "first").mkdir()
    if before == OLD:
        thing.write(folder / "first", OLD)
    assert thing.read(folder / "first") == before

    def renew() -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        shutil.copytree(folder / "first", folder / "store")

    return renew


def stored(root: Path) -> dict[str, bytes | None]:
    """Every file below a folder that is no lock."""
    return {name: data for name, data in contents(root).items() if data is not None and "locks/" not in name}


@pytest.mark.full
@EVERY_STAGE
@pytest.mark.parametrize(("name", "before"), CASES)
def test_a_writer_that_is_killed_at_any_change_of_the_disk(
    nursery: ProcessForker, environment: Mapping[str, str], tmp_path: Path, name: str, before: int, every: bool
) -> None:
    thing, root = THINGS[name], tmp_path / "store"
    renew = begun(thing, tmp_path, before)

    def write(kill_at: float = float("inf")) -> int:
        renew()
        how = {"name": name, "root": str(root), "calls": str(tmp_path / "log"), "kill_at": kill_at}
        return nursery.start("change", environment, tmp_path / "out", **how).wait()

    assert write() == 0 and thing.read(root) == thing.after
    calls = (tmp_path / "log").read_text().splitlines()
    seen = set()
    for number in sampled(range(1, len(calls) + 1), every, f"{name} {before}"):
        call = calls[number - 1]
        assert write(number) == SIGKILLED, call
        assert thing.read(root) in ({before, thing.after, ABSENT} if thing.folder else {before, thing.after}), call
        Store(root, libraries=()).sweep()
        seen.add(thing.read(root))
        assert seen <= {before, thing.after} and leftovers(root) == [], call
        if thing.read(root) != thing.after:
            thing.write(root, NEW)
        assert thing.read(root) == thing.after, call
        assert not (root / "corrupt").exists(), call
    assert before in seen or not every


@pytest.mark.parametrize(
    ("error", "alone"),
    [
        (FULL, True), (READ_ONLY, False),
        *(pytest.param(*one, marks=pytest.mark.full) for one in ((FULL, False), (errno.EIO, True))),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("name", "before"), CASES)
def test_a_disk_that_refuses_any_call(tmp_path: Path, name: str, before: int, error: int, alone: bool) -> None:
    thing, root = THINGS[name], tmp_path / "store"
    renew, done = begun(thing, tmp_path, before), list[str]()
    renew()
    there, calls = stored(root), count(root, lambda: thing.write(root, NEW))
    for number, call in enumerate(calls, start=1):
        renew()
        with fail_writing(root, error, number, number if alone else float("inf")):
            try:
                thing.write(root, NEW)
                done.append(call)
            except StoreError as refusal:
                words = rf"{thing.called}\b.* (was not|cannot be) (written|removed)"
                assert re.search(words, str(refusal)), (call, str(refusal))
                assert ("The disk is full (" in str(refusal)) == (error == FULL), (call, str(refusal))
                now = stored(root)
                if any("/old-" in found for found in now):  # it could not be put back
                    assert thing.folder and set(there.values()) <= set(now.values()), call
                    continue
                assert thing.read(root) == before, call
                if error == FULL:  # on a disk that is read-only from now on, half a file cannot be removed again
                    assert now == there, call
        if thing.read(root) == before:
            thing.write(root, NEW)
        assert thing.read(root) == thing.after, call
    assert len(done) < len(calls)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name, thing in THINGS.items() if thing.before == (ABSENT, OLD)])
def test_two_processes_write_it_while_another_one_reads(
    nursery: ProcessForker, environment: Mapping[str, str], tmp_path: Path, name: str
) -> None:
    thing, root = THINGS[name], tmp_path / "store"
    begun(thing, tmp_path, OLD)()
    children = [
        nursery.start("again", environment, tmp_path / f"out{number}", name=name, root=str(root), number=number)
        for number in (OLD, NEW, ABSENT)
    ]
    for number, child in zip((OLD, NEW, ABSENT), children, strict=True):
        assert child.wait() == 0, (tmp_path / f"out{number}").read_text()
    assert thing.read(root) in {OLD, NEW} and leftovers(root) == []
    assert not (root / "corrupt").exists()


@pytest.mark.parametrize("noun", KINDS)
def test_every_fault_of_a_result_is_seen_and_set_aside_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, noun: str
) -> None:
    monkeypatch.setattr(results_module, "RETRY_SECONDS", 0.0)  # nobody is replacing it meanwhile
    kind, store = KINDS[noun], Store(tmp_path / "store", libraries=())
    found = store.results(kind, lambda result: result)
    write_result(store.root, kind, OLD)
    entry, aside = store.root / kind.folder / ID, store.root / "corrupt"
    shutil.copytree(entry, tmp_path / "whole")
    for what, path in damage_each_file(entry):
        caplog.clear()
        try:
            assert read_result(found.find(ID)) == ABSENT, what
        except StoreError as error:
            assert "is damaged" in str(error) and kind.recovery_hint in str(error), what
        assert found.find(ID) is None and not entry.exists(), what
        (damage,) = store.damaged.list_damage()
        assert (damage.kind, damage.name, damage.is_moved) == (noun, ID, True) and damage.reason, what
        assert damage.path.parent == aside and [record.message for record in caplog.records] == [damage.sentence]
        shutil.copytree(tmp_path / "whole", entry)
        assert read_result(found.find(ID)) == OLD and damage.is_replaced, what
        store.damaged.remove(damage)
        assert store.damaged.list_damage() == []
        path.touch()


@pytest.mark.parametrize("noun", KINDS)
def test_damage_in_a_library_is_told_and_left_there(tmp_path: Path, noun: str) -> None:
    kind, library = KINDS[noun], tmp_path / "library"
    write_result(library, kind, OLD)
    facts = library / kind.folder / ID / kind.facts_file
    whole = facts.read_bytes()
    facts.write_bytes(whole[:-2])
    store = Store(tmp_path / "store", libraries=(library / "runs",))
    found = store.results(kind, lambda result: result)
    assert found.find(ID) is None and facts.read_bytes() == whole[:-2]
    (damage,) = store.damaged.list_damage()
    assert not damage.is_moved and "left where it is" in damage.sentence
    facts.write_bytes(whole)
    assert read_result(found.find(ID)) == OLD and store.damaged.list_damage() == []
