"""torch's three pickled containers: zip archives, the files of before torch 1.6, and plain pickles of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from merging.errors import CheckpointError
from merging.formats.byte_range import ByteRange, Cursor
from merging.formats.torch_pickle import zip_archive
from merging.formats.torch_pickle.interpreter import Call, Machine, PickledDict, ReadLimits
from merging.formats.torch_pickle.tensors import Resolve, Storage, reference, storage_type

MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
TAR_MARK, TAR_AT = b"ustar", 257
NESTED = "torch.storage._load_from_bytes"


@dataclass(frozen=True)
class PickleContents:
    """What a pickled file holds: the inert object, and how to find the storages that it refers to."""

    content: Any
    resolve: Resolve


def read(window: ByteRange, budget: ReadLimits | None = None) -> PickleContents:
    """What a pickled file holds, whichever of the three containers it is.

    Raises:
        CheckpointError: damaged, or not one of them, or made to run code.
    """
    budget = budget or ReadLimits()
    start = window.head(len(MAGIC))
    if start.startswith(zip_archive.MAGIC):
        return _zip(window, budget)
    if start == MAGIC:
        return _legacy(window, budget)
    return _plain(window, budget)


def container(window: ByteRange) -> str:
    """Which of the three a file is, in words."""
    start = window.head(len(MAGIC))
    if start.startswith(zip_archive.MAGIC):
        return "torch file (zip archive)"
    return "torch file of the kind before 1.6" if start == MAGIC else "Python pickle"


def _zip(window: ByteRange, budget: ReadLimits) -> PickleContents:
    archive = zip_archive.open_archive(window)
    content = Machine(archive.pickle.cursor(), budget).run()

    def resolve(thing: Any) -> Storage:
        kind, key, numel, _ = reference(thing, window.name)
        dtype, found = storage_type(kind, f"{window.name}: a tensor"), archive.storages.get(key)
        if found is None or found.size != numel * dtype.itemsize:
            has = "nothing" if found is None else f"{found.size:,} bytes"
            raise CheckpointError(
                f"{window.name}: a storage promises {numel * dtype.itemsize:,} bytes, the archive has {has} of it; "
                "the file is damaged."
            )
        return Storage(found, dtype)

    return PickleContents(content, resolve)


def _legacy(window: ByteRange, budget: ReadLimits) -> PickleContents:
    cursor = window.cursor()
    _, _, system = (Machine(cursor, budget).run() for _ in range(3))
    if isinstance(system, PickledDict) and ("little_endian", False) in system.pairs:
        raise CheckpointError(f"{window.name} was written on a big-endian machine; save it again as safetensors.")
    machine = Machine(cursor, budget)
    content = machine.run()
    keys = Machine(cursor, budget).run()
    kinds: dict[str, tuple[Any, int]] = {}
    for thing in machine.persistent:
        if isinstance(thing.id, tuple) and thing.id[:1] == ("storage",):
            kind, key, numel, _ = reference(thing, window.name)
            kinds.setdefault(key, (kind, numel))
    storages = _after(window, cursor, keys, kinds)

    def resolve(thing: Any) -> Storage:
        _, key, _, view = reference(thing, window.name)
        if key not in storages:
            raise window.truncated()
        if view is not None:
            raise CheckpointError(f"{window.name} shares storages in the way of torch 0.3; save it again.")
        return storages[key]

    return PickleContents(content, resolve)


def _after(window: ByteRange, cursor: Cursor, keys: Any, kinds: dict[str, tuple[Any, int]]) -> dict[str, Storage]:
    """The storages that follow the pickles: each a count and that many numbers."""
    found: dict[str, Storage] = {}
    if not isinstance(keys, list):
        raise window.truncated()
    for key in keys:
        if not isinstance(key, str) or key not in kinds or key in found:
            raise window.truncated()
        kind, promised = kinds[key]
        dtype = storage_type(kind, f"{window.name}: a tensor")
        numel = int.from_bytes(cursor.take(8), "little", signed=True)
        if numel != promised:
            raise window.truncated()
        found[key] = Storage(cursor.skip(numel * dtype.itemsize), dtype)
    return found


def _plain(window: ByteRange, budget: ReadLimits) -> PickleContents:
    """A pickle that holds each storage as the bytes of a file of its own."""
    content = Machine(window.cursor(), budget).run()
    known: dict[int, Storage] = {}

    def resolve(thing: Any) -> Storage:
        if id(thing) not in known:
            known[id(thing)] = _nested(window, thing, budget)
        return known[id(thing)]

    return PickleContents(content, resolve)


def _nested(window: ByteRange, thing: Any, budget: ReadLimits) -> Storage:
    called = isinstance(thing, Call) and str(thing.name) == NESTED and isinstance(thing.args, tuple) and thing.args
    inside = thing.args[0] if called else None
    if isinstance(inside, Call):
        raise CheckpointError(f"{window.name} was pickled with protocol 2 or older; save it again with torch.save.")
    if not isinstance(inside, ByteRange):
        raise CheckpointError(f"{window.name}: a tensor has no storage; the file is damaged.")
    if not inside.head(len(MAGIC)).startswith((MAGIC, zip_archive.MAGIC)):
        raise window.truncated()
    opened = read(inside, budget)
    return opened.resolve(opened.content)
