"""torch's zip archives: the directory is parsed, members stay in the file and are read by offset.

torch stores members uncompressed, so a tensor is a span of the file. Archives with compressed or encrypted members,
with two members of one name or with contradictory sizes are refused: zip bombs have these, checkpoints do not.

The standard library's reader silently accepts archives that this reader refuses: DECISIONS.md, "Pickles and
torch archives are data", lists them.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from merging.base.errors import CheckpointError
from merging.models.formats.byte_range import ByteRange

ZIP_MAGIC = b"PK\x03\x04"
MAX_MEMBERS = 100_000
MAX_DIRECTORY_BYTES = 1 << 25  # bytes
MAX_PICKLE_BYTES = 1 << 26
END_RECORD, ZIP64_END_RECORD, ZIP64_LOCATOR = (
    struct.Struct("<4s4H2LH"),
    struct.Struct("<4sQ2H2L4Q"),
    struct.Struct("<4sLQL"),
)
DIRECTORY_ENTRY, LOCAL_HEADER = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
ALL_ONES = 0xFFFFFFFF  # a 32-bit value that stands for a 64-bit value in an extra field


@dataclass(frozen=True, slots=True)
class Member:
    """The directory's entry of one file in the archive."""

    name: str
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int


@dataclass(frozen=True)
class Archive:
    """The pickle of a torch archive and the byte ranges of its storages."""

    pickle: ByteRange
    storages: dict[str, ByteRange]  # by key


def open_archive(window: ByteRange) -> Archive:
    """The checked contents of a torch zip archive.

    Raises:
        CheckpointError: the archive is damaged, compressed, encrypted, ambiguous, TorchScript or not torch's.
    """
    members = _read_directory(window)
    root = _find_root(window, members)
    scripted = (f"{root}/code/", f"{root}/constants.pkl")
    if any(name.startswith(scripted) for name in members):
        raise CheckpointError(
            f"{window.name} is a TorchScript archive: it holds a program beside its weights and is not read. "
            "Load it with torch.jit.load and save its state_dict()."
        )
    data = {name: _find_data(window, member) for name, member in members.items()}
    if sum(part.size for part in data.values()) > window.size:
        raise CheckpointError(f"{window.name}: its members overlap; the file is damaged or malicious.")
    order = data.get(f"{root}/byteorder")
    if order is not None and order.read(0, min(order.size, 16)) != b"little":
        raise CheckpointError(f"{window.name} was written on a big-endian machine; save it again as safetensors.")
    pickle = data[f"{root}/data.pkl"]
    if pickle.size > MAX_PICKLE_BYTES:
        raise CheckpointError(f"{window.name}: its pickle takes {pickle.size:,} bytes; refused.")
    if zlib.crc32(pickle.read(0, pickle.size)) != members[f"{root}/data.pkl"].crc:
        raise CheckpointError(f"{window.name} is damaged: the checksum of its data.pkl is wrong; download it again.")
    folder = f"{root}/data/"
    storages = {name.removeprefix(folder): part for name, part in data.items() if name.startswith(folder)}
    return Archive(pickle, storages)


def _find_root(window: ByteRange, members: dict[str, Member]) -> str:
    """The folder of the archive that holds data.pkl."""
    roots = [name.removesuffix("/data.pkl") for name in members if name.endswith("/data.pkl")]
    if not roots:
        raise CheckpointError(f"{window.name} is a zip archive, but not of torch: it has no data.pkl.")
    if len(roots) > 1:
        raise CheckpointError(
            f"{window.name} holds {len(roots)} members called data.pkl, and it is unclear which one counts; refused."
        )
    return roots[0]


def _read_directory(window: ByteRange) -> dict[str, Member]:
    """{name: member} from the archive's directory."""
    offset, size = _find_directory(window)
    if size > MAX_DIRECTORY_BYTES:
        raise CheckpointError(f"{window.name}: its zip directory takes {size:,} bytes; refused.")
    raw = window.read(offset, size)
    members: dict[str, Member] = {}
    position = 0
    while position < size:
        if len(members) >= MAX_MEMBERS:
            raise CheckpointError(f"{window.name} has more than {MAX_MEMBERS:,} members; refused.")
        member, position = _parse_entry(window, raw, position)
        if member.name in members:
            raise CheckpointError(f"{window.name} holds two members called {member.name[:80]!r}; refused.")
        members[member.name] = member
    return members


def _find_directory(window: ByteRange) -> tuple[int, int]:
    """Offset and size of the directory, from the records at the archive's end."""
    tail_size = min(window.size, END_RECORD.size + 65535)
    tail = window.read(window.size - tail_size, tail_size)
    end_position = tail.rfind(b"PK\x05\x06")
    if end_position < 0 or end_position + END_RECORD.size > len(tail):
        raise CheckpointError(f"{window.name} is a zip archive without its end: truncated; download it again.")
    *_, size, offset, _ = END_RECORD.unpack_from(tail, end_position)
    locator_offset = window.size - tail_size + end_position - ZIP64_LOCATOR.size
    if locator_offset >= 0 and window.read(locator_offset, 4) == b"PK\x06\x07":
        end64 = window.read(
            ZIP64_LOCATOR.unpack(window.read(locator_offset, ZIP64_LOCATOR.size))[2], ZIP64_END_RECORD.size
        )
        if end64[:4] != b"PK\x06\x06":
            raise window.truncation_error()
        *_, size, offset = ZIP64_END_RECORD.unpack(end64)
    return offset, size


def _parse_entry(window: ByteRange, raw: bytes, position: int) -> tuple[Member, int]:
    """The member whose entry is at a position of the directory ``raw``, and the position of the next entry."""
    if raw[position : position + 4] != b"PK\x01\x02" or position + DIRECTORY_ENTRY.size > len(raw):
        raise window.truncation_error()
    (_, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment_size, *_, offset) = (
        DIRECTORY_ENTRY.unpack_from(raw, position)
    )
    start = position + DIRECTORY_ENTRY.size
    name = raw[start : start + name_size].decode("utf-8", "replace")
    extra = raw[start + name_size : start + name_size + extra_size]
    if ALL_ONES in {packed, size, offset}:
        size, packed, offset = _read_long_values(window, extra, size, packed, offset)
    return Member(name, flags, method, crc, packed, size, offset), start + name_size + extra_size + comment_size


def _read_long_values(window: ByteRange, extra: bytes, *values: int) -> list[int]:
    """``values``, each replaced by its 64-bit field in ``extra`` if it does not fit into 32 bits."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            long_values = iter(
                struct.unpack_from(f"<{min(length, len(extra) - position - 4) // 8}Q", extra, position + 4)
            )
            return [next(long_values, 0) if value == ALL_ONES else value for value in values]
        position += 4 + length
    raise window.truncation_error()


def _find_data(window: ByteRange, member: Member) -> ByteRange:
    """The byte range of a member's data."""
    header = LOCAL_HEADER.unpack(window.read(member.offset, LOCAL_HEADER.size))
    if header[0] != ZIP_MAGIC:
        raise window.truncation_error()
    if (member.flags | header[2]) & 0x1:
        raise CheckpointError(f"{window.name} holds an encrypted member ({member.name[:80]!r}); refused.")
    if member.method or header[3] or member.packed_size != member.size:
        raise CheckpointError(
            f"{window.name} holds a compressed member ({member.name[:80]!r}); torch never compresses, a zip bomb does."
        )
    return window.sub_range(member.offset + LOCAL_HEADER.size + header[-2] + header[-1], member.size)
