"""Zip archives of torch written byte by byte: malformed ones that must be refused, and unusual ones that are good.

The malformed ones marked "zipfile" are those in which Python's zipfile sees nothing wrong.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

ONES = 0xFFFFFFFF  # stands where a number is written elsewhere, in 64 bits
UTF8 = 0x800
END = b"PK\x05\x06"


def torch_bytes(values: torch.Tensor) -> bytes:
    file = io.BytesIO()
    torch.save({"w": values}, file)
    return file.getvalue()


VALUES = torch.arange(16.0)
BY_TORCH = torch_bytes(VALUES)
PICKLE = zipfile.ZipFile(io.BytesIO(BY_TORCH)).read("archive/data.pkl")
NUMBERS = bytes(VALUES.numpy().tobytes())


@dataclass(frozen=True)
class Member:
    """A member; ``local`` are the fields in which its own header differs from the directory."""

    name: bytes
    data: bytes
    flags: int = 0
    method: int = 0
    packed: int | None = None
    size: int | None = None
    offset: int | None = None
    extra: bytes = b""
    signature: bytes = b"PK\x01\x02"
    local: dict[str, Any] = field(default_factory=dict)

    def header(self) -> bytes:
        fields = {"signature": b"PK\x03\x04", "flags": self.flags, "method": self.method, "name": self.name}
        fields |= {"extra": b"", "size": len(self.data)} | self.local
        lengths = (fields["size"], fields["size"], len(fields["name"]), len(fields["extra"]))
        numbers = (20, fields["flags"], fields["method"], 0, 0, zlib.crc32(self.data), *lengths)
        return struct.pack("<4s5H3L2H", fields["signature"], *numbers) + fields["name"] + fields["extra"]

    def entry(self, offset: int) -> bytes:
        size = len(self.data) if self.size is None else self.size
        sizes = (size if self.packed is None else self.packed, size)
        numbers = (20, 20, self.flags, self.method, 0, 0, zlib.crc32(self.data), *sizes, len(self.name))
        at = offset if self.offset is None else self.offset
        packed = struct.pack("<4s6H3L5H2L", self.signature, *numbers, len(self.extra), 0, 0, 0, 0, at)
        return packed + self.name + self.extra


MEMBERS = (
    Member(b"archive/data.pkl", PICKLE),
    Member(b"archive/data/0", NUMBERS),
    Member(b"archive/version", b"3\n"),
)
SECOND = len(MEMBERS[0].header()) + len(PICKLE)  # offset of the second member


def archive(
    members: Sequence[Member] = MEMBERS,
    *,
    directory: bytes = b"",  # behind its entries
    comment: bytes = b"",
    shift: int = 0,  # of the directory's offset
    grow: int = 0,  # of the directory's size
    long: dict[str, int] | None = None,  # fields of a 64-bit end and its locator that differ from the right ones
) -> bytes:
    """An archive whose fields are right, but for those that are given."""
    content, entries = bytearray(), bytearray()
    for member in members:
        entries += member.entry(len(content))
        content += member.header() + member.data
    entries += directory
    start, size, count = len(content), len(entries) + grow, len(members)
    content += entries
    if long is not None:
        fields = {"size": size, "offset": start, "at": len(content)} | long
        numbers = (44, 45, 45, 0, 0, count, count, fields["size"], fields["offset"])
        content += struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", *numbers)
        content += struct.pack("<4sLQL", b"PK\x06\x07", 0, fields["at"], 1)
    counts = (min(count, 0xFFFF), min(count, 0xFFFF))
    content += struct.pack("<4s4H2LH", END, 0, 0, *counts, min(size, ONES), start + shift, len(comment)) + comment
    return bytes(content)


def change_member(number: int, **changes: Any) -> list[Member]:
    """The members, one of them changed."""
    members = list(MEMBERS)
    members[number] = replace(members[number], **changes)
    return members


def longs(*values: int) -> bytes:
    """An extra field of 64-bit numbers."""
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values)


def shift_offsets(by: int) -> bytes:
    """All offsets say ``by`` too much, so zipfile takes ``by`` bytes before the archive as missing."""
    offsets = (0, SECOND, SECOND + len(MEMBERS[1].header()) + len(NUMBERS))
    return archive([replace(m, offset=at + by) for m, at in zip(MEMBERS, offsets, strict=True)], shift=by)


def with_second_end() -> bytes:
    """A 64-bit end whose locator leads to another one, which lies in a member."""
    plain = archive(long={})
    start = plain.find(b"PK\x01\x02")
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 3, 3, plain.find(b"PK\x06\x06") - start, start)
    members = [*MEMBERS, Member(b"archive/other", end)]
    return archive(members, long={"at": archive(members).find(b"PK\x06\x06")})


def overlapping() -> bytes:
    """90 members that all lie on one of 4 kB, the last."""
    last = Member(b"archive/last", bytes(4096))
    at = archive([*MEMBERS, last]).find(last.header())
    others = [replace(last, name=b"archive/%d" % number, data=b"", size=4096, offset=at) for number in range(90)]
    return archive([*MEMBERS, last, *others])


def empty_members(count: int) -> bytes:
    return archive([*MEMBERS, *(Member(b"archive/%d" % number, b"") for number in range(count))])


GOOD = archive()
OTHER = archive([Member(b"archive/data.pkl", PICKLE), Member(b"archive/data/0", bytes(64))])
DIRECTORY = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *([0] * 16))
REFUSED: dict[str, tuple[bytes, str]] = {
    "no directory": (b"PK\x03\x04" + bytes(100), "without its end"),
    "no members": (b"PK\x03\x04" + archive([], shift=4), "no data.pkl"),
    "end cut": (GOOD[:-1], "without its end"),
    "directory elsewhere": (archive(shift=-1), "truncated"),
    "directory behind the file": (archive(shift=1 << 31), "truncated"),
    "directory longer than it is": (archive(grow=5), "truncated"),
    "directory of 4 GB": (archive(grow=ONES - 1000), "zip directory takes 4,294,"),
    "directory ends in something else": (archive(directory=b"PK\x05\x05\x04\0abcd"), "truncated"),
    "directory ends in half an entry": (archive(directory=DIRECTORY[:30]), "truncated"),
    "wrong signature of an entry": (archive(change_member(1, signature=b"PK\x01\x03")), "truncated"),
    "wrong signature of a header": (archive(change_member(1, local={"signature": b"PK\x03\x05"})), "truncated"),
    "member behind the file": (archive(change_member(1, offset=1 << 31)), "truncated"),
    "member one byte off": (archive(change_member(1, offset=SECOND + 1)), "truncated"),
    "member larger than the file": (archive(change_member(1, packed=1 << 30, size=1 << 30)), "truncated"),
    "long name in a header": (archive(change_member(1, local={"name": b"x" * 60_000, "size": 0}))[:-60_000],
        "truncated|end"),
    "overlap": (overlapping(), "overlap"),
    "encrypted in the directory": (archive(change_member(1, flags=1, local={"flags": 0})), "encrypted"),
    "encrypted in the header": (archive(change_member(1, local={"flags": 1})), "encrypted"),
    "compressed in the directory": (archive(change_member(1, method=8, local={"method": 0})), "compressed"),
    "compressed in the header": (archive(change_member(1, local={"method": 8})), "compressed"),
    "two sizes": (archive(change_member(1, packed=60)), "compressed"),
    "same name": (archive([*MEMBERS, MEMBERS[1]]), "two members"),
    "second pickle": (archive([*MEMBERS, Member(b"other/data.pkl", PICKLE)]), "2 members called data.pkl"),
    "pickle behind a NUL": (archive(change_member(0, name=b"archive/data.pkl\0")), "no data.pkl"),
    "storage behind dots": (archive(change_member(1, name=b"archive/data/../data/0")), "has nothing"),
    "64-bit size missing": (archive(change_member(1, size=ONES, packed=ONES)), "truncated"),
    "64-bit size in the wrong field": (archive(change_member(1, size=ONES, packed=ONES,
        extra=b"\x09\0\x10\0" + bytes(16))),
                                       "truncated"),
    "64-bit size of 2^63": (archive(change_member(1, size=ONES, packed=ONES, extra=longs(1 << 63, 1 << 63))),
        "truncated"),
    "64-bit offset of 2^64": (archive(change_member(1, offset=ONES, extra=longs((1 << 64) - 1))), "truncated"),
    "64-bit end of 2^64 bytes": (archive(long={"size": (1 << 64) - 1}), "zip directory takes 18,446"),
    "64-bit end leads out": (archive(long={"offset": 1 << 63}), "truncated"),
    "zipfile: something before it": (b"PK\x03\x04" + GOOD, "truncated"),
    "zipfile: behind another one": (GOOD + OTHER, "truncated"),
    "zipfile: another one in the comment": (archive(comment=OTHER), "truncated"),
    "zipfile: all offsets too large": (shift_offsets(64), "truncated"),
    "zipfile: locator leads nowhere": (archive(long={"at": 1 << 63}), "truncated"),
    "zipfile: locator leads to no end": (archive(long={"at": 0}), "truncated"),
    "zipfile: locator leads to another end": (with_second_end(), "truncated"),
    "zipfile: two extra fields": (archive(change_member(1, size=ONES, packed=ONES, extra=longs(ONES, ONES) + longs(64,
        64))),
                                  "truncated"),
    "zipfile: two extra fields with offsets": (archive(change_member(1, offset=ONES,
        extra=longs(ONES) + longs(SECOND))),
                                               "truncated"),
    "zipfile: size of 2^64": (archive(change_member(1, size=ONES, packed=ONES, extra=longs((1 << 64) - 1,
        64) + longs(64))),
                             "compressed"),
    "zipfile: same name in two encodings": (archive([*MEMBERS, Member("archive/é".encode(), b"1"),
                                                     Member("archive/é".encode(), b"2", UTF8)]), "two members"),
    "zipfile: comment behind its longest": (archive(comment=b"x" * 65535) + b"y", "without its end"),
}  # fmt: skip


def write(folder: Path, content: bytes) -> Path:
    (folder / "bad.pt").write_bytes(content)
    return folder / "bad.pt"


ARCHIVES: dict[str, tuple[Callable[[Path], Path], str]] = {
    name: (partial(write, content=content), says) for name, (content, says) in REFUSED.items()
}
ARCHIVES["too many members"] = (lambda f: write(f, empty_members(100_010)), "more than 100,000 members")
ARCHIVES["directory of 33 MB"] = (lambda f: write(f, archive(directory=DIRECTORY * 733_000)), "takes 33,7")
UNUSUAL = {
    "by torch": BY_TORCH,
    "by hand": GOOD,
    "comment": archive(comment=b"hello"),
    "64-bit end": archive(long={}),
    "64-bit sizes": archive(change_member(1, size=ONES, packed=ONES, extra=longs(64, 64))),
    "64-bit offset": archive(change_member(1, offset=ONES, extra=longs(SECOND))),
    "other extra field before": archive(
        change_member(1, size=ONES, packed=ONES, extra=b"UT\x05\0abcde" + longs(64, 64))
    ),
    "sizes behind the data": archive(change_member(1, flags=8, local={"size": 0})),
    "padded header": archive(change_member(1, local={"extra": b"FB\x10\0" + bytes(16)})),
    "odd names": archive([*MEMBERS, Member(b"", b"1"), Member(b"../\0\xff", b"2"), Member(b"C:\\x\n", b"3")]),
}
