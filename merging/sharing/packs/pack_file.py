"""The file of a pack: a zip archive whose first member, a manifest, lists the size and sha-256 of every other member.

Every member has one of the names that a store's results have. A pack is read completely, and compared with its
manifest, before anything of it is unpacked. Nothing in it is run: tables are CSV, facts JSON and YAML, arrays NumPy's
without Python objects.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from merging.base.errors import CheckpointError, MergingError, RecipeError, StoreError
from merging.base.files.npz import DAMAGE_ERRORS, DTYPE_KINDS, parse_header, read_array_infos
from merging.base.files.paths import open_regular
from merging.base.files.plain_yaml import read_plain_yaml
from merging.base.files.short_digest import SHORT_DIGEST, short_digest
from merging.base.files.strict_json import parse_json
from merging.base.files.tables import UNPACKED_LIMIT
from merging.base.text import printable, size_text
from merging.base.version import __version__

MANIFEST, KIND, FORMAT = "pack.json", "results of Mergescope", 1
MAX_MEMBERS, MAX_MANIFEST_BYTES = 50_000, 1 << 24
MAX_BYTES, MAX_MEMBER_BYTES = 1 << 30, 1 << 27  # of all members, and of one, after unpacking
MAX_RATIO, MIN_RATIO_BYTES = 300, 1 << 22  # compression factor above which a member of that size is a bomb
NAME = SHORT_DIGEST.pattern
RESULT = rf"(?:runs|measured|points|subsets|imported_scores)/{NAME}"
MEMBER_NAME = re.compile(
    rf"{RESULT}/(?:[a-z0-9_]{{1,80}}\.json|[a-z0-9_]{{1,80}}\.npy(?:\.gz)?|(?:tables/)?[a-z0-9_]{{1,80}}\.csv(?:\.gz)?)"
    rf"|runs/{NAME}/recipe\.yaml"
    rf"|sweeps/{NAME}\.(?:yaml|json)"
    rf"|benchmarks/{NAME}/(?:tasks\.json|data/(?!\.)[A-Za-z0-9_.-]{{1,80}}\.npz)"
)
# The record at the end of a zip file has the size of its list of members; a comment of up to 64 KiB can follow it.
END_SIGNATURE, END_BYTES, MAX_LIST_BYTES = b"PK\x05\x06", (1 << 16) + 22, 1 << 22
DATE = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal results are equal bytes
PLAIN_FILE = (stat.S_IFREG | 0o644) << 16
ZIP_ERRORS = (*DAMAGE_ERRORS, NotImplementedError, zlib.error)


@dataclass(frozen=True)
class PackContents:
    """The verified members of a pack, {name: bytes}, and the facts of its manifest.

    ``digest`` names the content: it is that of the manifest, hence of all members, however they are compressed.
    """

    digest: str
    facts: Mapping[str, Any]
    members: Mapping[str, bytes]


def write_pack_file(path: Path, facts: Mapping[str, Any], members: Mapping[str, bytes]) -> str:
    """Write a pack and return its digest; equal members and facts make equal bytes. ``path`` is not checked."""
    entries = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in sorted(members.items())
    }
    manifest = {"kind": KIND, "format": FORMAT, "mergescope": __version__, **facts, "files": entries}
    raw = (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {MANIFEST: raw, **dict(sorted(members.items()))}.items():
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr, info.create_system = PLAIN_FILE, 3
            info.compress_type = zipfile.ZIP_STORED if name.endswith(".gz") else zipfile.ZIP_DEFLATED
            archive.writestr(info, content, compresslevel=9)
    return short_digest(raw.decode("utf-8", "surrogateescape"))


def read_pack_file(path: Path) -> PackContents:
    """The contents of a pack at a path.

    Raises:
        StoreError: as ``read_pack``, or the file cannot be opened.
    """
    try:
        descriptor = open_regular(path)
    except CheckpointError as error:
        raise StoreError(str(error).replace("a file with weights is expected", "a pack is expected")) from None
    with os.fdopen(descriptor, "rb") as file:
        return read_pack(file, path.name)


def read_pack(file: IO[bytes], name: str) -> PackContents:
    """The contents of a pack; messages call its file ``name``.

    Raises:
        StoreError: it is no pack, of another format, damaged, altered, unsafe or too large; nothing is written.
    """
    label = printable(name, 80)
    _check_directory(file, label)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = _check_members(archive.infolist(), label)
            raw = _read_member(archive, infos.pop(MANIFEST), label)
            facts = _read_manifest(raw, label)
            _check_listed(facts["files"], infos, label)
            members = dict(_read_members(archive, infos, facts["files"], label))
    except ZIP_ERRORS as error:
        reason = printable(str(error).split("\n", maxsplit=1)[0], 100)
        raise StoreError(f"{label} is damaged or not a pack: {reason}. Get the file again.") from None
    for member, content in members.items():
        _check_content(member, content, label)
    return PackContents(short_digest(raw.decode("utf-8", "surrogateescape")), facts, members)


def _check_directory(file: IO[bytes], label: str) -> None:
    """Raise StoreError if the list of members is so long that reading it alone would take much memory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - END_BYTES, 0))
    end = file.read(END_BYTES)
    start = end.rfind(END_SIGNATURE)
    file.seek(0)
    if start >= 0 and int.from_bytes(end[start + 12 : start + 16], "little") > MAX_LIST_BYTES:
        _refuse(label, f"its list of members is longer than {MAX_LIST_BYTES:,} bytes")


def _refuse(label: str, problem: str) -> NoReturn:
    raise StoreError(f"{label} was not opened: {problem}.")


def _check_members(listed: list[zipfile.ZipInfo], label: str) -> dict[str, zipfile.ZipInfo]:
    """{name: member}, after checks of what the archive states about its members. Raises StoreError."""
    if len(listed) > MAX_MEMBERS:
        _refuse(label, f"it has {len(listed):,} members; at most {MAX_MEMBERS:,} are read")
    infos: dict[str, zipfile.ZipInfo] = {}
    folded, total = set[str](), 0
    for info in listed:
        name = info.orig_filename  # ``filename`` ends at a NUL and has the system's separators replaced
        shown = repr(printable(name, 80))
        if name.casefold() in folded:  # some disks do not tell capitals apart
            _refuse(label, f"it has the member {shown} twice")
        folded.add(name.casefold())
        if stat.S_ISLNK(info.external_attr >> 16):
            _refuse(label, f"its member {shown} is a link")
        if info.filename != name or not (name == MANIFEST or MEMBER_NAME.fullmatch(name)):
            _refuse(label, f"its member {shown} has a name that no result has")
        if info.flag_bits & 1:
            _refuse(label, f"its member {shown} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            _refuse(label, f"its member {shown} is compressed in a way that packs are not")
        total += info.file_size
        limit = MAX_MANIFEST_BYTES if name == MANIFEST else MAX_MEMBER_BYTES
        is_bomb = info.file_size > MIN_RATIO_BYTES and info.file_size > MAX_RATIO * info.compress_size
        if info.file_size > limit or total > MAX_BYTES or is_bomb:
            size = size_text(info.file_size)
            _refuse(label, f"with its member {shown} of {size} it would unpack to more than a pack has")
        infos[name] = info
    if MANIFEST not in infos:
        _refuse(label, f"it has no {MANIFEST}, so it is not a pack, which `mergescope pack` writes")
    return infos


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str) -> bytes:
    """The bytes of a member, as many as the archive states. Raises StoreError if there are more or fewer."""
    with archive.open(info) as stream:
        content = stream.read(info.file_size + 1)
    if len(content) != info.file_size:
        _refuse(label, f"its member {printable(info.filename, 80)!r} is not as long as it states")
    return content


def _read_manifest(raw: bytes, label: str) -> dict[str, Any]:
    """The facts of a manifest of this format. Raises StoreError."""
    try:
        facts = parse_json(raw, label, "its manifest")
    except CheckpointError as error:
        raise StoreError(str(error)) from None
    if facts.get("kind") != KIND:
        _refuse(label, "its manifest is not that of a pack, which `mergescope pack` writes")
    if facts.get("format") != FORMAT:
        version = printable(str(facts.get("mergescope", "unknown")), 20)
        _refuse(
            label,
            f"it has format {printable(str(facts.get('format')), 20)}, written by Mergescope {version}, and this "
            f"version ({__version__}) reads format {FORMAT}; install the version that wrote it, or pack the runs again",
        )
    if not isinstance(facts.get("files"), dict) or not all(isinstance(one, dict) for one in facts["files"].values()):
        _refuse(label, "its manifest lists no files")
    return facts


def _check_listed(entries: Mapping[str, Any], infos: Mapping[str, zipfile.ZipInfo], label: str) -> None:
    """Raise StoreError unless the archive has exactly the members that the manifest lists, with their sizes."""
    if missing := sorted(set(entries) - set(infos)):
        _refuse(label, f"it lacks {printable(missing[0], 80)!r}, which its manifest lists")
    if extra := sorted(set(infos) - set(entries)):
        _refuse(label, f"it has {printable(extra[0], 80)!r}, which its manifest does not list")
    for name, info in infos.items():
        if entries[name].get("size") != info.file_size:
            _refuse(label, f"its member {name!r} has another size than its manifest states")


def _read_members(
    archive: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo], entries: Mapping[str, Any], label: str
) -> Iterator[tuple[str, bytes]]:
    """Every member with its bytes, after comparing them with the manifest. Raises StoreError."""
    for name, info in infos.items():
        content = _read_member(archive, info, label)
        if hashlib.sha256(content).hexdigest() != entries[name].get("sha256"):
            _refuse(label, f"its member {name!r} does not have the sha-256 that its manifest states")
        yield name, content


def _check_content(name: str, content: bytes, label: str) -> None:
    """Raise StoreError if a member is not of the form that its name states, or would unpack to too much."""
    try:
        if name.endswith(".gz"):
            content = _unpack(content)
        if name.endswith(".json"):
            parse_json(content, name)
        elif name.endswith(".yaml"):
            read_plain_yaml(content.decode(), "file")
        elif ".npy" in name:
            _check_array(content)
        elif ".csv" in name:
            content.decode()
    except (CheckpointError, RecipeError, StoreError) as error:
        _refuse(label, f"its member {name!r} cannot be read ({printable(str(error), 200).rstrip('.')})")
    except ZIP_ERRORS as error:
        _refuse(label, f"its member {name!r} cannot be read ({printable(str(error), 100).rstrip('.')})")


def _unpack(content: bytes) -> bytes:
    """The unpacked bytes. Raises StoreError if they are more than a table or an array may have."""
    with gzip.open(io.BytesIO(content)) as file:
        unpacked = file.read(UNPACKED_LIMIT + 1)
    if len(unpacked) > UNPACKED_LIMIT:
        raise StoreError(f"it unpacks to more than {size_text(UNPACKED_LIMIT)}")
    return unpacked


def _check_array(content: bytes) -> None:
    """Raise StoreError unless these are the bytes of one array of numbers or texts, without Python objects."""
    stream = io.BytesIO(content)
    shape, _, dtype = parse_header(stream)
    count = dtype.itemsize
    for size in shape:
        count *= size
    if dtype.hasobject or dtype.kind not in DTYPE_KINDS:
        raise StoreError("it holds Python objects, or other values than numbers and texts")
    if stream.tell() + count != len(content):
        raise StoreError("its array is not as long as it states")


def check_label_file(path: Path, label: str) -> None:
    """Raise StoreError if an unpacked file is not an npz of arrays."""
    try:
        read_array_infos(path)
    except MergingError as error:
        _refuse(label, str(error).rstrip("."))
