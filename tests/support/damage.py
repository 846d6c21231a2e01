"""Files that were cut or of which one bit was flipped, at ten places each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PLACES = 10


def damage_bytes(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(what was done, the bytes) for every fault of a file."""
    for place in range(PLACES):
        if data:
            cut = place * len(data) // PLACES
            yield f"cut at {cut}", data[:cut]
            at = place * (len(data) - 1) // (PLACES - 1)
            flipped = bytearray(data)
            flipped[at] ^= 1 << place % 8
            yield f"bit {place % 8} of byte {at} flipped", bytes(flipped)


def damage_each_file(root: Path) -> Iterator[tuple[str, Path]]:
    """Damage each file below a folder in each way; the file is as before when the next fault is asked for.

    Whoever moves the file away puts it back.
    """
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for how, data in damage_bytes(whole):
            path.write_bytes(data)
            yield f"{path.relative_to(root).as_posix()} {how}", path
            path.write_bytes(whole)
