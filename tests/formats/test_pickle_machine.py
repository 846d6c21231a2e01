"""Pickles of every protocol are read as data, and the standard library's machine does no more than was read of it."""

from __future__ import annotations

import copyreg
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from merging.base.errors import CheckpointError
from merging.models.formats.byte_range import ByteRange, Cursor
from merging.models.formats.torch_pickle.interpreter import (
    HARMLESS_OPCODES,
    LIBRARY_HANDLERS,
    PickledCall,
    PickledDict,
    PickleMachine,
    ReadLimits,
)

NAMES = {code.code.encode("latin-1")[0]: code.name for code in pickletools.opcodes}
# All that the library's instructions refer to: our machine's attributes, methods of lists and bytes, and harmless
# functions.
KNOWN = set("""
    read readline stack metastack memo append pop pop_mark proto find_class persistent_load _instantiate extend decode
    int float str len range tuple type unpack decode_long maxsize
    TRUE FALSE HIGHEST_PROTOCOL AttributeError KeyError ValueError UnpicklingError
""".split())  # fmt: skip  # noqa: SIM905
DATA = {
    "numbers": [0, -1, 255, 65_535, 1 << 20, -(1 << 31), 1 << 40, 1 << 200, 0.5, True, False, None],
    "texts": ["", "é", "a" * 300, "two\nlines"],
    "nested": {"a": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], 7: {}},
    "shared": [[1, 2]] * 3,
    "many": [[i] for i in range(300)],
}

REFUSED = {  # all well formed
    "PERSID": b"Pa\n.",
    "LONG4": b"\x8b\1\0\0\0\1.",
    "EXT1": b"\x82\1.",
    "EXT2": b"\x83\1\0.",
    "EXT4": b"\x84\1\0\0\0.",
    "BYTEARRAY8": b"\x96\1\0\0\0\0\0\0\0a.",
    "NEXT_BUFFER": b"\x97.",
    "READONLY_BUFFER": b"C\1a\x98.",
}


def loaded(content: bytes, folder: Path) -> Any:
    path = folder / "a.pkl"
    path.write_bytes(content)
    with path.open("rb") as file:
        return PickleMachine(Cursor(ByteRange.from_descriptor(file.fileno(), path.name)), ReadLimits()).load()


def plain(thing: Any) -> Any:
    if isinstance(thing, PickledDict):
        return {plain(key): plain(value) for key, value in thing.pairs}
    return type(thing)(plain(item) for item in thing) if isinstance(thing, (list, tuple)) else thing


@pytest.mark.parametrize("code", HARMLESS_OPCODES, ids=lambda code: NAMES[code[0]])
def test_the_library_runs_an_instruction_as_it_did(code: bytes) -> None:
    used = set(LIBRARY_HANDLERS[code[0]].__code__.co_names)
    assert used <= KNOWN, (
        f"Python's {NAMES[code[0]]} now uses {used - KNOWN}: read Lib/pickle.py; if that is harmless, add it to KNOWN, "
        "else write the instruction in torch_pickle/interpreter.py"
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_data_of_every_protocol_is_read(protocol: int, tmp_path: Path) -> None:
    assert plain(loaded(pickle.dumps(DATA, protocol), tmp_path)) == DATA


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_objects_of_every_protocol_stay_records(protocol: int, tmp_path: Path) -> None:
    path = loaded(pickle.dumps([Path("a"), {1, 2}], protocol), tmp_path)[0]
    assert isinstance(path, PickledCall) and path.name.name == "PosixPath"


@pytest.mark.parametrize("name", REFUSED)
def test_instructions_that_no_checkpoint_needs_are_refused(name: str, tmp_path: Path) -> None:
    copyreg.add_extension("collections", "OrderedDict", 1)  # type: ignore[no-untyped-call]
    try:
        with pytest.raises(CheckpointError, match=r"a\.pkl is damaged or not a checkpoint: its pickle cannot be read"):
            loaded(REFUSED[name], tmp_path)
    finally:
        copyreg.remove_extension("collections", "OrderedDict", 1)


def test_the_memo_is_no_list(tmp_path: Path) -> None:
    """The library's machine in C would reserve 16 GB here."""
    assert loaded(b"\x80\x02]r\xff\xff\xff\x7f0j\xff\xff\xff\x7f.", tmp_path) == []
