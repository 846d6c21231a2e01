"""torch's three pickled containers: zip archives, files from before torch 1.6, and plain pickles of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from merging.base.errors import CheckpointError
from merging.models.formats.byte_range import ByteRange, Cursor
from merging.models.formats.torch_pickle import zip_archive
from merging.models.formats.torch_pickle.interpreter import PickledCall, PickledDict, PickleMachine, ReadLimits
from merging.models.formats.torch_pickle.stored_tensors import (
    FindStorage,
    Storage,
    find_complex_dtype,
    find_storage_dtype,
    read_storage_reference,
)

LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
TAR_MARK, TAR_OFFSET = b"ustar", 257
NESTED_LOADER = "torch.storage._load_from_bytes"


@dataclass(frozen=True)
class PickleContents:
    """The content of a pickled file: the inert object, and a function that finds the storage of a pickled reference."""

    container: str
    content: Any
    find_storage: FindStorage


def read_pickle(window: ByteRange, limits: ReadLimits | None = None) -> PickleContents:
    """The content of a pickled file in any of the three containers.

    Raises:
        CheckpointError: the file is damaged, of another kind, or made to run code.
    """
    limits = limits or ReadLimits()
    start = window.read_start(len(LEGACY_MAGIC))
    if start.startswith(zip_archive.ZIP_MAGIC):
        return _read_zip(window, limits)
    if start == LEGACY_MAGIC:
        return _read_legacy(window, limits)
    return _read_plain(window, limits)


def _read_zip(window: ByteRange, limits: ReadLimits) -> PickleContents:
    archive = zip_archive.open_archive(window)
    content = PickleMachine(Cursor(archive.pickle), limits).load()

    def find_storage(pickled_reference: Any, label: str) -> Storage:
        storage_class, key, numel, _ = read_storage_reference(pickled_reference, label)
        dtype, stored = find_storage_dtype(storage_class, label), archive.storages.get(key)
        if stored is None or stored.size != numel * dtype.itemsize:
            actual = "nothing" if stored is None else f"{stored.size:,} bytes"
            raise CheckpointError(
                f"{label}: its storage promises {numel * dtype.itemsize:,} bytes, the archive has {actual}; "
                "the file is damaged."
            )
        return Storage(stored, dtype)

    return PickleContents("torch file (zip archive)", content, find_storage)


def _read_legacy(window: ByteRange, limits: ReadLimits) -> PickleContents:
    cursor = Cursor(window)
    _magic, _protocol, system = (PickleMachine(cursor, limits).load() for _ in range(3))
    if isinstance(system, PickledDict) and ("little_endian", False) in system.pairs:
        raise CheckpointError(f"{window.name} was written on a big-endian machine; save it again as safetensors.")
    machine = PickleMachine(cursor, limits)
    content = machine.load()
    keys = PickleMachine(cursor, limits).load()
    storage_classes: dict[str, tuple[Any, int]] = {}
    for pickled_reference in machine.persistent:
        if isinstance(pickled_reference.id, tuple) and pickled_reference.id[:1] == ("storage",):
            storage_class, key, numel, _ = read_storage_reference(pickled_reference, window.name)
            storage_classes.setdefault(key, (storage_class, numel))
    storages = _read_legacy_storages(window, cursor, keys, storage_classes)

    def find_storage(pickled_reference: Any, label: str) -> Storage:
        storage_class, key, _, view = read_storage_reference(pickled_reference, label)
        find_storage_dtype(storage_class, label)
        if key not in storages:
            raise window.truncation_error()
        if view is not None:
            raise CheckpointError(f"{window.name} shares storages as torch 0.3 did; save it again.")
        return storages[key]

    return PickleContents("torch file from before 1.6", content, find_storage)


def _read_legacy_storages(
    window: ByteRange, cursor: Cursor, keys: Any, storage_classes: dict[str, tuple[Any, int]]
) -> dict[str, Storage]:
    """{key: storage} of the storages after the pickles, each stored as a count and its numbers.

    Storages of complex numbers are skipped.
    """
    storages: dict[str, Storage] = {}
    if not isinstance(keys, list):
        raise window.truncation_error()
    for key in keys:
        if not isinstance(key, str) or key not in storage_classes or key in storages:
            raise window.truncation_error()
        storage_class, stated_numel = storage_classes[key]
        dtype = find_complex_dtype(storage_class) or find_storage_dtype(storage_class, f"{window.name}: a tensor")
        numel = int.from_bytes(cursor.read(8), "little", signed=True)
        if numel != stated_numel:
            raise window.truncation_error()
        numbers = cursor.skip(numel * dtype.itemsize)
        if not dtype.is_complex:
            storages[key] = Storage(numbers, dtype)
    return storages


def _read_plain(window: ByteRange, limits: ReadLimits) -> PickleContents:
    """The content of a pickle in which each storage is the bytes of another torch file."""
    content = PickleMachine(Cursor(window), limits).load()
    storages: dict[int, Storage] = {}

    def find_storage(pickled_reference: Any, label: str) -> Storage:
        if id(pickled_reference) not in storages:
            storages[id(pickled_reference)] = _read_nested(window, pickled_reference, limits, label)
        return storages[id(pickled_reference)]

    return PickleContents("Python pickle", content, find_storage)


def _read_nested(window: ByteRange, pickled_reference: Any, limits: ReadLimits, label: str) -> Storage:
    is_storage = (
        isinstance(pickled_reference, PickledCall)
        and str(pickled_reference.name) == NESTED_LOADER
        and isinstance(pickled_reference.args, tuple)
        and pickled_reference.args
    )
    nested_file = pickled_reference.args[0] if is_storage else None
    if isinstance(nested_file, PickledCall):
        raise CheckpointError(f"{window.name} was pickled with protocol 2 or older; save it again with torch.save.")
    if not isinstance(nested_file, ByteRange):
        raise CheckpointError(f"{label} has no storage; the file is damaged.")
    if not nested_file.read_start(len(LEGACY_MAGIC)).startswith((LEGACY_MAGIC, zip_archive.ZIP_MAGIC)):
        raise window.truncation_error()
    opened = read_pickle(nested_file, limits)
    return opened.find_storage(opened.content, label)
