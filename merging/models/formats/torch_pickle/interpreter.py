"""Reads pickles as data: no name in a pickle is imported, looked up or called.

A pickle is a program for a small stack machine. The standard library's Python implementation runs the instructions
that make numbers, tuples and lists (``HARMLESS_OPCODES``). The instructions that fetch a name, call it or change an
object are replaced (``RECORDING_HANDLERS``) and only record: a fetched name becomes a ``Name``, and a call becomes a
``PickledCall`` with its arguments and the later changes of its result. The caller interprets the calls. No object of a
class that a file names is ever built. Long texts and all byte strings stay in the file as byte ranges.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from merging.base.errors import CheckpointError
from merging.models.formats.byte_range import Cursor
from merging.models.formats.torch_pickle.harmless_names import is_harmless

MAX_OPCODES = 400_000  # a pickled ViT-H/14 module has a quarter of that
MAX_TEXT_BYTES = 1 << 20  # bytes of one text; longer ones stay in the file
MAX_TOTAL_TEXT_BYTES = 1 << 25  # bytes of all texts in memory
MAX_NAME_LENGTH = 1000  # letters of a class or function and its module
MAX_MEMO_INDEX = 1 << 32
STOP_OPCODE = pickle.STOP[0]


@dataclass(eq=False, slots=True)
class Name:
    """A class or function that a pickle names; it is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class PickledDict:
    """The pairs of a pickled dictionary: keys are not hashed, and a duplicate key occurs twice."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs.append((key, value))


@dataclass(eq=False, slots=True)
class PickledCall:
    """A recorded call, never executed: its name and arguments, and the state, pairs and items set on its result."""

    name: Name
    args: Any
    state: Any = None
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs.append((key, value))

    def append(self, item: Any) -> None:
        """Record an item added to the result."""
        self.items.append(item)

    def extend(self, items: list[Any]) -> None:
        """Record items added to the result."""
        self.items.extend(items)


@dataclass(eq=False, slots=True)
class Persistent:
    """A reference to something outside the pickle: one of torch's storages."""

    id: Any


@dataclass(slots=True)
class ReadLimits:
    """The instructions and bytes of text that the pickles of one file may still use in total."""

    opcodes: int = MAX_OPCODES
    texts: int = MAX_TOTAL_TEXT_BYTES


class PickleMachine(pickle._Unpickler):
    """Reads one pickle and returns the inert object that it describes; the cursor then points after it."""

    dispatch: ClassVar[dict[int, Callable[[Any], Any]]]  # other instructions are refused
    memo: dict[int, Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, cursor: Cursor, limits: ReadLimits) -> None:
        super().__init__(cursor)
        self.read, self.readline, self.skip = cursor.read, cursor.readline, cursor.skip
        self._file, self._limits = cursor.window.name, limits
        self.persistent: list[Persistent] = []
        self.stack: list[Any] = []
        self.metastack: list[list[Any]] = []
        self.append = self.stack.append

    def load(self) -> Any:
        """The object that the pickle describes.

        Raises:
            CheckpointError: the pickle is damaged, asks to run code, or is larger than a checkpoint needs.
        """
        try:
            while self._limits.opcodes:
                self._limits.opcodes -= 1
                opcode = self.read(1)[0]
                if opcode == STOP_OPCODE:
                    return self.stack.pop()
                self.dispatch[opcode](self)
        except CheckpointError:
            raise
        except (pickle.UnpicklingError, LookupError, ValueError, TypeError, AttributeError):
            damaged = f"{self._file} is damaged or not a checkpoint: its pickle cannot be read."
            raise CheckpointError(damaged) from None
        raise CheckpointError(f"{self._file}: its pickle has more than {MAX_OPCODES:,} instructions; refused.")

    def find_class(self, module: str, name: str) -> Name:
        """The name as an inert ``Name``."""
        if len(module) + len(name) > MAX_NAME_LENGTH:
            raise ValueError
        return Name(module, name)

    def persistent_load(self, pid: Any) -> Any:
        """The reference as an inert ``Persistent``; before torch 1.6, a class was stored with its source text."""
        if isinstance(pid, tuple) and len(pid) > 1 and pid[0] == "module":
            return pid[1]
        self.persistent.append(Persistent(pid))
        return self.persistent[-1]

    def _size(self, width: int) -> int:
        return int.from_bytes(self.read(width), "little")

    def _text(self, width: int, encoding: str = "utf-8") -> None:
        size = self._size(width)
        if size > MAX_TEXT_BYTES:
            self.append(self.skip(size))
            return
        self._limits.texts -= size
        if self._limits.texts < 0:
            raise CheckpointError(f"{self._file}: its pickle holds more text than a checkpoint has; refused.")
        self.append(self.read(size).decode(encoding))

    def _bytes(self, width: int) -> None:
        self.append(self.skip(self._size(width)))

    def _put(self) -> None:
        index = int(self.readline())
        if not 0 <= index < MAX_MEMO_INDEX:  # a file can choose larger keys that make a dictionary slow
            raise ValueError
        self.memo[index] = self.stack[-1]

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append(PickledDict(list(zip(items[::2], items[1::2], strict=True))))

    def _instantiate(self, klass: Any, args: list[Any]) -> None:
        """Record a call; the library's INST and OBJ use this method."""
        self._call(klass, tuple(args), called=True)

    def _make(self, *, called: bool) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self._call(function, args, called=called)

    def _make_with_keywords(self) -> None:
        self.stack.pop()
        self._make(called=False)

    def _call(self, function: Any, args: Any, *, called: bool) -> None:
        if not isinstance(function, Name):
            raise CheckpointError(f"{self._file}: refused: the file calls something that is not a plain name.")
        self._refuse_code(function, called=called)
        if str(function) in RECONSTRUCTORS and isinstance(args, tuple) and args and isinstance(args[0], Name):
            self._refuse_code(args[0], called=False)
            function = args[0]
        self.append(PickledCall(function, args))

    def _refuse_code(self, function: Name, *, called: bool) -> None:
        if not is_harmless(function.module, function.name, called=called):
            raise CheckpointError(
                f"{self._file}: refused: the file asks to run code ({str(function)[:80]!r}). Nothing was run."
            )

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PickledCall):
            target.state = state
        elif not isinstance(target, PickledDict):  # an OrderedDict's attributes are not needed
            raise TypeError


RECONSTRUCTORS = {
    "copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__",
}  # fmt: skip
# Instructions that the library runs: with the inert types above they call only list methods and the methods above.
HARMLESS_OPCODES = (
    pickle.PROTO, pickle.MARK, pickle.POP, pickle.POP_MARK, pickle.DUP, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.FLOAT, pickle.BINFLOAT,
    pickle.UNICODE, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.EMPTY_LIST,
    pickle.LIST, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.GET, pickle.BINGET,
    pickle.LONG_BINGET, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.GLOBAL, pickle.STACK_GLOBAL,
    pickle.INST, pickle.OBJ, pickle.BINPERSID,
)  # fmt: skip
LIBRARY_HANDLERS: dict[int, Callable[[Any], Any]] = pickle._Unpickler.dispatch
RECORDING_HANDLERS: dict[bytes, Callable[[PickleMachine], Any]] = {
    pickle.FRAME: lambda m: m.read(8),
    pickle.STRING: lambda m: m.append(m.readline().decode("latin-1").strip("'\"\n")),
    pickle.SHORT_BINSTRING: lambda m: m._text(1, "latin-1"),
    pickle.BINSTRING: lambda m: m._text(4, "latin-1"),
    pickle.SHORT_BINUNICODE: lambda m: m._text(1),
    pickle.BINUNICODE: lambda m: m._text(4),
    pickle.BINUNICODE8: lambda m: m._text(8),
    pickle.SHORT_BINBYTES: lambda m: m._bytes(1),
    pickle.BINBYTES: lambda m: m._bytes(4),
    pickle.BINBYTES8: lambda m: m._bytes(8),
    pickle.PUT: PickleMachine._put,
    pickle.EMPTY_DICT: lambda m: m.append(PickledDict()),
    pickle.DICT: PickleMachine._dict,
    pickle.EMPTY_SET: LIBRARY_HANDLERS[pickle.EMPTY_LIST[0]],
    pickle.ADDITEMS: LIBRARY_HANDLERS[pickle.APPENDS[0]],
    pickle.FROZENSET: LIBRARY_HANDLERS[pickle.LIST[0]],
    pickle.REDUCE: lambda m: m._make(called=True),
    pickle.NEWOBJ: lambda m: m._make(called=False),
    pickle.NEWOBJ_EX: PickleMachine._make_with_keywords,
    pickle.BUILD: PickleMachine._build,
}
PickleMachine.dispatch = {code[0]: LIBRARY_HANDLERS[code[0]] for code in HARMLESS_OPCODES} | {
    code[0]: run for code, run in RECORDING_HANDLERS.items()
}
