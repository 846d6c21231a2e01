"""Altered, unsafe and foreign packs: each is refused in a sentence, and nothing of it is unpacked."""

from __future__ import annotations

import gzip
import io
import json
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_library import PackedLibrary, read_members, write_members

from merging.base.errors import StoreError
from merging.sharing.packs import pack_file
from merging.sharing.packs.open_packs import open_pack_file
from merging.sharing.packs.pack_file import read_pack

Members = dict[Any, bytes]
RUN = "runs/0123456789ab"


def _alter(members: Members) -> Members:
    name = next(name for name in members if name.endswith("scores.csv"))
    return members | {name: members[name].replace(b"0.", b"1.", 1)}


def _resize(members: Members) -> Members:
    name = next(name for name in members if name.endswith("scores.csv"))
    return members | {name: members[name] + b"\n"}


def _leave_out(members: Members) -> Members:
    name = next(name for name in members if name.endswith("recipe.yaml"))
    return {key: value for key, value in members.items() if key != name}


def _add(name: str, content: bytes = b"{}") -> Callable[[Members], Members]:
    return lambda members: members | {name: content}


def _list_and_add(name: str, content: bytes) -> Callable[[Members], Members]:
    """A member that the manifest lists, too."""

    def change(members: Members) -> Members:
        facts = json.loads(members["pack.json"])
        entry = {"sha256": pack_file.hashlib.sha256(content).hexdigest(), "size": len(content)}
        raw = json.dumps(facts | {"files": facts["files"] | {name: entry}}).encode()
        return members | {"pack.json": raw, name: content}

    return change


def _facts(**changed: Any) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        return members | {"pack.json": json.dumps(json.loads(members["pack.json"]) | changed).encode()}

    return change


def _link(members: Members) -> Members:
    info = zipfile.ZipInfo(f"{RUN}/run.json")
    info.external_attr, info.create_system = (stat.S_IFLNK | 0o777) << 16, 3
    return members | {info: b"/etc/passwd"}


def _npy(array: Any, *, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def _wide_npy() -> bytes:
    raw = _npy(np.zeros(4))
    return raw.replace(b"(4,)", b"(9,)")


def _describe(**changed: Any) -> Callable[[Members], Members]:
    """The pack's description of its benchmark, changed; ``task`` are changed fields of the first task."""

    def change(members: Members) -> Members:
        name = next(name for name in members if name.endswith("tasks.json"))
        data = json.loads(members[name])
        data["tasks"][0] |= changed.pop("task", {})
        return _list_and_add(name, json.dumps(data | changed).encode())(members)

    return change


DEEP = b"[" * 100_000
BAD = {
    "altered": (_alter, "does not have the sha-256"),
    "resized": (_resize, "another size"),
    "missing": (_leave_out, "it lacks"),
    "extra": (_add(f"{RUN}/run.json"), "its manifest does not list"),
    "up": (_add("../evil.json"), "a name that no result has"),
    "up inside": (_add(f"{RUN}/../../../evil.json"), "a name that no result has"),
    "absolute": (_add("/etc/evil.json"), "a name that no result has"),
    "windows": (_add("C:\\evil.json"), "a name that no result has"),
    "backslash": (_add("runs\\0123456789ab\\run.json"), "a name that no result has"),
    "program": (_add(f"{RUN}/run.py", b"import os"), "a name that no result has"),
    "pickle": (_add(f"{RUN}/x.pkl", b"\x80\x04."), "a name that no result has"),
    "weights": (_add(f"{RUN}/merged.safetensors"), "a name that no result has"),
    "folder": (_add("runs/", b""), "a name that no result has"),
    "link": (_link, "is a link"),
    "no manifest": (lambda members: {k: v for k, v in members.items() if k != "pack.json"}, "not a pack"),
    "manifest is text": (_add("pack.json", b"hello"), "not valid JSON"),
    "deep manifest": (_add("pack.json", DEEP), "not valid JSON"),
    "kind": (_facts(kind="something"), "not that of a pack"),
    "format": (_facts(format=2, mergescope="9.0"), r"format 2, written by Mergescope 9\.0"),
    "no files": (_facts(files=None), "lists no files"),
    "odd files": (_facts(files={"runs": 1}), "lists no files"),
    "deep facts": (_list_and_add(f"{RUN}/run.json", DEEP), "cannot be read"),
    "bad yaml": (_list_and_add(f"{RUN}/recipe.yaml", b"a: !!python/object:os.system x"), "cannot be read"),
    "objects": (_list_and_add("measured/0123456789ab/a.npy", _npy(np.array([{}], object), pickled=True)), "objects"),
    "short array": (_list_and_add("measured/0123456789ab/a.npy", _wide_npy()), "as long as it states"),
    "not gzip": (_list_and_add(f"{RUN}/tables/x.csv.gz", b"hello"), "cannot be read"),
    "gzip bomb": (_list_and_add(f"{RUN}/tables/x.csv.gz", gzip.compress(bytes(1 << 27))), "unpacks to more than"),
    "a run that is none": (_list_and_add(f"{RUN}/run.json", b"{}"), "run 0123456789ab is damaged"),
    "labels": (_list_and_add("benchmarks/0123456789ab/data/x.npz", b"PK"), "damaged or not an npz"),
    "benchmark": (_list_and_add("benchmarks/0123456789ab/tasks.json", b"{}"), "malformed"),
    "a benchmark that is none of a pack": (_describe(packed_digest=""), "is not a description"),
    "images of another benchmark": (_describe(images="bundled"), "is not a description"),
    "images in files": (_describe(task={"referenced": True}), "is not a description"),
    "a task outside the pack": (_describe(task={"key": "../../../x"}), "is not a description"),
}


def _refused(content: bytes, folder: Path, says: str) -> None:
    path = folder / "bad.msc"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=says) as caught:
        open_pack_file(path, folder / "store")
    assert "bad.msc" in str(caught.value)
    assert str(folder) not in str(caught.value)
    assert not [one for one in (folder / "store").rglob("*") if one.is_file()]


@pytest.mark.parametrize("name", BAD)
def test_bad_pack_is_refused(packed: PackedLibrary, tmp_path: Path, name: str) -> None:
    change, says = BAD[name]
    _refused(write_members(change(dict(read_members(packed.pack)))), tmp_path, says)


def test_member_twice_is_refused(packed: PackedLibrary, tmp_path: Path) -> None:
    members = read_members(packed.pack)
    name = next(iter(name for name in members if name.endswith("run.json")))
    with pytest.warns(UserWarning, match="Duplicate name"):
        buffer = io.BytesIO(write_members(members))
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr(name, members[name])
    _refused(buffer.getvalue(), tmp_path, "twice")


def test_name_with_a_zero_character_is_refused(packed: PackedLibrary, tmp_path: Path) -> None:
    content = write_members(read_members(packed.pack) | {f"{RUN}/run.json_.py": b""})
    _refused(content.replace(b"run.json_.py", b"run.json\0.py"), tmp_path, "a name that no result has")


def test_names_that_differ_in_case_only_are_refused(packed: PackedLibrary, tmp_path: Path) -> None:
    folder = "benchmarks/0123456789ab/data"
    content = write_members(read_members(packed.pack) | {f"{folder}/a.npz": b"", f"{folder}/A.npz": b""})
    _refused(content, tmp_path, "twice")


def test_bomb_is_refused_before_it_is_unpacked(packed: PackedLibrary, tmp_path: Path) -> None:
    bomb = _list_and_add(f"{RUN}/scores.csv", bytes(1 << 24))(dict(read_members(packed.pack)))
    _refused(write_members(bomb), tmp_path, "would unpack to more than a pack has")


def test_too_much_in_all_is_refused(packed: PackedLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_file, "MAX_BYTES", 1000)
    _refused(packed.pack.read_bytes(), tmp_path, "would unpack to more than a pack has")
    monkeypatch.setattr(pack_file, "MAX_MEMBERS", 3)
    _refused(packed.pack.read_bytes(), tmp_path, "members; at most 3")
    monkeypatch.setattr(pack_file, "MAX_LIST_BYTES", 100)
    _refused(packed.pack.read_bytes(), tmp_path, "list of members is longer than 100 bytes")


def test_stated_size_that_is_not_the_real_one_is_refused(packed: PackedLibrary, tmp_path: Path) -> None:
    """The central directory states fewer bytes than a member unpacks to."""
    members = read_members(packed.pack)
    name = next(name for name in members if name.endswith("run.json"))
    content = bytearray(packed.pack.read_bytes())
    entry = content.rfind(name.encode()) - 46
    assert content[entry : entry + 4] == b"PK\x01\x02"
    size = int.from_bytes(content[entry + 24 : entry + 28], "little")
    assert size == len(members[name])
    for stated in (size - 1, size + 1, 0):
        content[entry + 24 : entry + 28] = stated.to_bytes(4, "little")
        _refused(bytes(content), tmp_path, "another size|damaged")


def test_encrypted_member_is_refused(packed: PackedLibrary, tmp_path: Path) -> None:
    content = bytearray(packed.pack.read_bytes())
    entry = content.find(b"PK\x01\x02")
    content[entry + 8] |= 1
    _refused(bytes(content), tmp_path, "encrypted")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"PK\x05\x06" + bytes(18)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    _refused(content, tmp_path, "damaged or not a pack|not a pack")


def test_a_folder_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.msc").mkdir()
    for name in ("folder.msc", "none.msc"):
        with pytest.raises(StoreError, match=name.replace(".", r"\.")):
            open_pack_file(tmp_path / name, tmp_path / "store")


def test_cut_packs_are_refused(packed: PackedLibrary, tmp_path: Path) -> None:
    whole = packed.pack.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        _refused(whole[: int(len(whole) * share)], tmp_path, "damaged or not a pack")


def test_flipped_bytes_are_refused_or_change_nothing(packed: PackedLibrary) -> None:
    whole, draw = packed.pack.read_bytes(), random.Random(0)
    expected = read_pack(io.BytesIO(whole), "good.msc")
    directory = whole.find(b"PK\x01\x02")
    positions = [draw.randrange(len(whole)) for _ in range(60)]
    positions += [draw.randrange(directory, len(whole)) for _ in range(120)] + list(range(30))
    refused = 0
    for position in positions:
        content = bytearray(whole)
        content[position] ^= 1 << draw.randrange(8)
        try:
            found = read_pack(io.BytesIO(bytes(content)), "flipped.msc")
        except StoreError as error:
            refused += 1
            assert "flipped.msc" in str(error)
        else:
            assert found.members == expected.members
            assert found.digest == expected.digest
    assert refused > len(positions) / 3
