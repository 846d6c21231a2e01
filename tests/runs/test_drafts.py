"""Drafts in the store: kept under a secret token, found again, bounded, and set aside where they are damaged."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from merging.base.errors import StoreError
from merging.study.runs import drafts as stored_drafts
from merging.study.runs.disk_usage import measure_usage
from merging.study.runs.drafts import Drafts
from merging.study.runs.run_store import Store
from merging.tasks.quarantine import FOLDER

A, B = "a" * 32, "b" * 32
PAYLOAD = {"title": "Übersicht 🙂", "views": [{"note": 'a "b"\n', "at": 0.1}], "none": None}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def drafts(store: Store) -> Drafts:
    return Drafts(store)


def never() -> bytes:
    raise AssertionError("a stored part is asked for again")


def folder(store: Store) -> Path:
    (found,) = (store.root / "drafts").iterdir()
    return found


def test_a_draft_comes_back_and_is_changed_in_its_place(drafts: Drafts, store: Store) -> None:
    token = drafts.store("report", PAYLOAD)
    assert drafts.read("report", token) == PAYLOAD
    before = drafts.state("report", token)
    assert drafts.store("report", {"title": "Other"}, token) == token
    assert drafts.read("report", token) == {"title": "Other"}
    assert drafts.state("report", token) != before
    assert len(list((store.root / "drafts").iterdir())) == 1
    drafts.remove("report", token)
    with pytest.raises(StoreError, match="no report under the token"):
        drafts.read("report", token)


def test_tokens_are_secret(drafts: Drafts, store: Store) -> None:
    tokens = {drafts.store("report", {}) for _ in range(20)}
    assert len(tokens) == 20 and all(len(token) == 22 for token in tokens)  # 128 bits in letters of 6 bits
    names = " ".join(path.name for path in store.root.rglob("*"))
    assert not any(token in names for token in tokens)
    assert stat.S_IMODE((store.root / "drafts").stat().st_mode) == 0o700


@pytest.mark.parametrize("token", ["", "x", "../../etc/passwd", "a" * 22, "a" * 21 + "/", "a" * 23, "\0" * 22])
def test_what_is_no_token_opens_nothing(drafts: Drafts, token: str) -> None:
    drafts.store("report", {})
    with pytest.raises(StoreError, match="no report under the token"):
        drafts.read("report", token)


def test_a_kind_does_not_open_another(drafts: Drafts) -> None:
    token = drafts.store("report", {})
    with pytest.raises(StoreError, match="no painting under"):
        drafts.read("painting", token)
    with pytest.raises(StoreError, match="no draft under"):
        drafts.read("../x", token)


def test_a_stored_part_is_written_once_and_leaves_with_the_draft(drafts: Drafts, store: Store) -> None:
    token = drafts.store("report", {}, parts={A: lambda: b"one", B: lambda: b"two"})
    drafts.store("report", {"title": "x"}, token, {A: never, B: never})
    assert (drafts.read_part("report", token, A), drafts.read_part("report", token, B)) == (b"one", b"two")
    drafts.store("report", {}, token, {B: never})
    assert not (folder(store) / A).exists() and drafts.read_part("report", token, B) == b"two"
    with pytest.raises(StoreError, match="no part"):
        drafts.read_part("report", token, A)
    (folder(store) / B).write_bytes(b"")
    drafts.store("report", {}, token, {B: lambda: b"two"})  # one of another size is written again
    assert drafts.read_part("report", token, B) == b"two"


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({"a": float("nan")}, "cannot be written as JSON"),
        ({"a": object()}, "cannot be written as JSON"),
        ({"a": "\ud800"}, "cannot be written as JSON"),
        ({"a": "x" * 2_000_000}, "takes 2 MB; at most 2 MB"),
    ],
)
def test_what_is_too_much_is_refused_and_changes_nothing(
    drafts: Drafts, store: Store, payload: dict[str, object], sentence: str
) -> None:
    with pytest.raises(StoreError, match=sentence):
        drafts.store("report", payload)
    assert list((store.root / "drafts").iterdir()) == []
    token = drafts.store("report", PAYLOAD, parts={A: lambda: b"one"})
    before = sorted(folder(store).iterdir())
    with pytest.raises(StoreError, match=sentence):
        drafts.store("report", payload, token, {A: never, B: lambda: b"two"})
    assert drafts.read("report", token) == PAYLOAD and sorted(folder(store).iterdir()) == before


def test_parts_are_bounded(drafts: Drafts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_drafts, "MAX_PART_BYTES", 10)
    monkeypatch.setattr(stored_drafts, "MAX_PARTS_BYTES", 15)
    with pytest.raises(StoreError, match="A part takes 11 bytes"):
        drafts.store("report", {}, parts={A: lambda: bytes(11)})
    with pytest.raises(StoreError, match="Its parts take 16 bytes"):
        drafts.store("report", {}, parts={A: lambda: bytes(8), B: lambda: bytes(8)})
    with pytest.raises(StoreError, match="at most 100 parts"):
        drafts.store("report", {}, parts={f"{number:032x}": never for number in range(101)})
    with pytest.raises(StoreError, match="32 hexadecimal digits"):
        drafts.store("report", {}, parts={"../x": never})


def test_the_oldest_make_room_and_nothing_lasts_longer_than_30_days(
    drafts: Drafts, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_drafts, "MAX_DRAFTS", 3)
    other = drafts.store("painting", {})
    tokens = []
    for age in (40, 30, 20, 10):  # seconds
        tokens.append(drafts.store("report", {"age": age}))
        newest = max((store.root / "drafts").glob("report-*/draft"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (time.time() - age,) * 2)
    assert [draft.payload["age"] for draft in drafts.list_drafts("report")] == [10, 20, 30]
    assert [draft.token for draft in drafts.list_drafts("report")] == tokens[:0:-1]
    assert drafts.read("painting", other) == {}  # each kind has room of its own
    drafts.store("report", {"age": 0}, tokens[0])  # a page that still has the token of the one that made room
    assert [draft.payload["age"] for draft in drafts.list_drafts("report")] == [0, 10, 20]
    drafts.store("report", {"age": 1}, tokens[0])  # a change needs no room
    assert [draft.payload["age"] for draft in drafts.list_drafts("report")] == [1, 10, 20]
    later = time.time() + 31 * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(StoreError, match="not been changed for 30 days"):
        drafts.read("report", tokens[-1])
    assert drafts.list_drafts("report") == []
    drafts.store("report", {})
    assert len(list((store.root / "drafts").glob("report-*"))) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + b" " * 3_000_000),
    ],
)
def test_a_damaged_draft_is_set_aside(drafts: Drafts, store: Store, damage: Callable[[Path], object]) -> None:
    token = drafts.store("report", PAYLOAD)
    damage(folder(store) / "draft")
    with pytest.raises(StoreError, match=r"draft of the report .* is damaged"):
        drafts.read("report", token)
    (noted,) = store.damaged.list_damage()
    assert (noted.kind, noted.is_moved) == ("draft", True) and noted.path.parent == store.root / FOLDER
    assert token not in noted.sentence
    with pytest.raises(StoreError, match="no report"):
        drafts.read("report", token)
    drafts.store("report", PAYLOAD, token)
    assert drafts.read("report", token) == PAYLOAD and store.damaged.list_damage()[0].is_replaced


@pytest.mark.parametrize("how", ["changed", "missing", "large"])
def test_a_damaged_part_sets_the_draft_aside(
    drafts: Drafts, store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    token = drafts.store("report", PAYLOAD, parts={A: lambda: b"one"})
    path = folder(store) / A
    path.write_bytes({"changed": b"two", "large": b"one, and more"}.get(how, b""))
    if how == "missing":
        path.unlink()
    if how == "large":
        monkeypatch.setattr(stored_drafts, "MAX_PART_BYTES", 5)
    with pytest.raises(StoreError, match="is damaged"):
        drafts.read_part("report", token, A)
    assert [noted.kind for noted in store.damaged.list_damage()] == ["draft"]


def test_a_draft_under_the_name_of_another_is_damaged(drafts: Drafts, store: Store) -> None:
    first = drafts.store("report", {})
    stolen = folder(store)
    second = drafts.store("report", PAYLOAD)
    (place,) = set((store.root / "drafts").iterdir()) - {stolen}
    (stolen / "draft").write_bytes((place / "draft").read_bytes())
    with pytest.raises(StoreError, match="is damaged"):
        drafts.read("report", first)
    assert drafts.read("report", second) == PAYLOAD


def test_the_disk_that_drafts_take_is_shown(drafts: Drafts, store: Store) -> None:
    drafts.store("report", {}, parts={A: lambda: bytes(1000)})
    assert measure_usage(store.root)["drafts of reports and paintings"] > 1000
