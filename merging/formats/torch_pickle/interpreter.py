"""Pickles read as data: no name that a pickle holds is imported, looked up or called.

A pickle is a program for a small stack machine, whose dangerous instructions fetch a name and call it. This machine
cannot: a fetched name becomes a ``Name``, a call becomes a ``Call`` that records its arguments and the later changes of
its result. The caller decides what a call means; nothing here builds an object of a class that a file names. Long byte
strings stay in the file as windows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from merging.errors import CheckpointError
from merging.formats.byte_range import Cursor
from merging.formats.torch_pickle.globals import is_harmless

MAX_OPCODES = 400_000  # a whole ViT-H/14 module takes a quarter of that
MAX_TEXT = 1 << 20  # bytes of one text; longer ones stay in the file
MAX_TEXTS = 1 << 25  # bytes of all texts that are held
MAX_DIGITS = 40
MAX_LINE = 4096
STOP = ord(".")


@dataclass(eq=False, slots=True)
class Name:
    """A class or function that a pickle names; it is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Call:
    """A call that was not made: its name and arguments, and the state, pairs and items set on its result."""

    name: Name
    args: Any
    state: Any = None
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class PickledDict:
    """A dictionary as it was written: keys are not hashed, and a duplicate key occurs twice."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Persistent:
    """A reference to something outside the pickle: one of torch's storages."""

    id: Any


@dataclass(slots=True)
class ReadLimits:
    """Instructions and bytes of text that all pickles of one file may still use together."""

    opcodes: int = MAX_OPCODES
    texts: int = MAX_TEXTS


class Machine:
    """Reads one pickle and returns the inert object that it describes; ``cursor`` then points after it."""

    def __init__(self, cursor: Cursor, limits: ReadLimits) -> None:
        self.cursor, self._window, self._limits = cursor, cursor.window, limits
        self.persistent: list[Persistent] = []
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """The object that the pickle describes.

        Raises:
            CheckpointError: it is damaged, asks to run code, or is larger than a checkpoint has reason to be.
        """
        try:
            while self._limits.opcodes:
                self._limits.opcodes -= 1
                opcode = self.cursor.take(1)[0]
                if opcode == STOP:
                    return self._stack.pop()
                OPCODES[opcode](self)
        except (IndexError, KeyError, struct.error, TypeError, AttributeError):
            raise self._damaged() from None
        except ValueError as error:
            if isinstance(error, CheckpointError):
                raise
            raise self._damaged() from None
        raise CheckpointError(f"{self._window.name}: its pickle has more than {MAX_OPCODES:,} instructions; refused.")

    def _damaged(self) -> CheckpointError:
        return CheckpointError(f"{self._window.name} is damaged or not a checkpoint: its pickle cannot be read.")

    # --- numbers, texts, bytes ---------------------------------------------------------------------------------------

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self.cursor.take(struct.calcsize(form)))[0]

    def _size(self, form: str) -> int:
        size = int(self._number(form))
        if size < 0:
            raise ValueError
        return size

    def _decimal(self) -> int:
        line = self.cursor.line(MAX_LINE).rstrip(b"L")
        if len(line) > MAX_DIGITS:
            raise ValueError
        return int(line)

    def _int(self) -> None:
        line = self.cursor.line(MAX_DIGITS)
        self._stack.append(line == b"01" if line in {b"00", b"01"} else int(line))

    def _long(self, form: str) -> None:
        size = self._size(form)
        if size > MAX_DIGITS:
            raise ValueError
        self._stack.append(int.from_bytes(self.cursor.take(size), "little", signed=True))

    def _float(self) -> None:
        self._stack.append(float(self.cursor.line(MAX_DIGITS)))

    def _text(self, form: str, encoding: str = "utf-8") -> None:
        size = self._size(form)
        if size > MAX_TEXT:
            self._stack.append(self.cursor.skip(size))
            return
        self._limits.texts -= size
        if self._limits.texts < 0:
            raise CheckpointError(f"{self._window.name}: its pickle holds more text than a checkpoint has; refused.")
        self._stack.append(self.cursor.take(size).decode(encoding))

    def _bytes(self, form: str) -> None:
        self._stack.append(self.cursor.skip(self._size(form)))

    def _quoted(self) -> None:
        self._stack.append(self.cursor.line(MAX_LINE).decode("latin-1").strip("'\""))

    def _unicode_line(self) -> None:
        self._stack.append(self.cursor.line(MAX_LINE).decode("raw-unicode-escape"))

    # --- the stack ---------------------------------------------------------------------------------------------------

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._stack = self._marks.pop()

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    # --- containers --------------------------------------------------------------------------------------------------

    def _tuple(self, count: int) -> None:
        if count > len(self._stack):
            raise IndexError
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(items)

    def _dict(self) -> None:
        self._stack.append(PickledDict(_paired(self._since_mark())))

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Call):
            target.items.extend(items)
        else:
            raise TypeError

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, (PickledDict, Call)):
            raise TypeError
        target.pairs.extend(_paired(items))

    def _two(self) -> list[Any]:
        value, key = self._stack.pop(), self._stack.pop()
        return [key, value]

    # --- names and calls, which are only recorded --------------------------------------------------------------------

    def _global(self) -> None:
        module, name = self.cursor.line(MAX_LINE).decode(), self.cursor.line(MAX_LINE).decode()
        self._stack.append(Name(module, name))

    def _stack_global(self) -> None:
        module, name = self._two()
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError
        self._stack.append(Name(module, name))

    def _make(self, what: Any, args: Any, *, called: bool) -> None:
        if not isinstance(what, Name):
            raise CheckpointError(f"{self._window.name}: refused: the file calls something that is not a plain name.")
        self._refuse_code(what, called=called)
        if str(what) in RECONSTRUCTORS and isinstance(args, tuple) and args and isinstance(args[0], Name):
            self._refuse_code(args[0], called=False)
            what = args[0]
        self._stack.append(Call(what, args))

    def _refuse_code(self, what: Name, *, called: bool) -> None:
        if not is_harmless(what.module, what.name, called=called):
            raise CheckpointError(
                f"{self._window.name}: refused: the file asks to run code ({str(what)[:80]!r}). Nothing was run."
            )

    def _reduce(self) -> None:
        what, args = self._two()
        self._make(what, args, called=True)

    def _new(self) -> None:
        what, args = self._two()
        self._make(what, args, called=False)

    def _new_with_keywords(self) -> None:
        self._stack.pop()
        self._new()

    def _inst(self) -> None:
        self._global()
        what = self._stack.pop()
        self._make(what, tuple(self._since_mark()), called=True)

    def _obj(self) -> None:
        what, *args = self._since_mark()
        self._make(what, tuple(args), called=True)

    def _build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, Call):
            target.state = state
        elif not isinstance(target, PickledDict):  # an OrderedDict's attributes are not needed
            raise TypeError

    def _persistent(self) -> None:
        reference = Persistent(self._stack.pop())
        self.persistent.append(reference)
        # Before torch 1.6, a class was stored with its source text.
        is_class = isinstance(reference.id, tuple) and len(reference.id) > 1 and reference.id[0] == "module"
        self._stack.append(reference.id[1] if is_class else reference)


RECONSTRUCTORS = {
    "copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__",
}  # fmt: skip


def _paired(items: list[Any]) -> list[tuple[Any, Any]]:
    if len(items) % 2:
        raise ValueError
    return list(zip(items[::2], items[1::2], strict=True))


# Opcodes of protocols 0 to 5. Left out, and so refused: extension registry, byte arrays, out-of-band buffers, and the
# textual persistent id.
OPCODES: dict[int, Callable[[Machine], Any]] = {
    ord(code): run
    for code, run in {
        "\x80": lambda m: m.cursor.take(1),  # PROTO
        "\x95": lambda m: m.cursor.take(8),  # FRAME
        "(": Machine._mark,
        "0": Machine._pop,
        "1": Machine._since_mark,
        "2": lambda m: m._push(m._stack[-1]),
        "N": lambda m: m._push(None),
        "\x88": lambda m: m._push(True),
        "\x89": lambda m: m._push(False),
        "I": Machine._int,
        "L": lambda m: m._push(m._decimal()),
        "J": lambda m: m._push(m._number("<i")),
        "K": lambda m: m._push(m._number("<B")),
        "M": lambda m: m._push(m._number("<H")),
        "\x8a": lambda m: m._long("<B"),
        "\x8b": lambda m: m._long("<i"),
        "F": Machine._float,
        "G": lambda m: m._push(m._number(">d")),
        "S": Machine._quoted,
        "V": Machine._unicode_line,
        "T": lambda m: m._text("<i", "latin-1"),
        "U": lambda m: m._text("<B", "latin-1"),
        "X": lambda m: m._text("<I"),
        "\x8c": lambda m: m._text("<B"),
        "\x8d": lambda m: m._text("<Q"),
        "B": lambda m: m._bytes("<I"),
        "C": lambda m: m._bytes("<B"),
        "\x8e": lambda m: m._bytes("<Q"),
        ")": lambda m: m._push(()),
        "\x85": lambda m: m._tuple(1),
        "\x86": lambda m: m._tuple(2),
        "\x87": lambda m: m._tuple(3),
        "t": lambda m: m._push(tuple(m._since_mark())),
        "]": lambda m: m._push([]),
        "l": lambda m: m._push(m._since_mark()),
        "a": lambda m: m._extend([m._stack.pop()]),
        "e": lambda m: m._extend(m._since_mark()),
        "}": lambda m: m._push(PickledDict()),
        "d": Machine._dict,
        "s": lambda m: m._set_items(m._two()),
        "u": lambda m: m._set_items(m._since_mark()),
        "\x8f": lambda m: m._push([]),  # EMPTY_SET
        "\x90": lambda m: m._extend(m._since_mark()),  # ADDITEMS
        "\x91": lambda m: m._push(m._since_mark()),  # FROZENSET
        "p": lambda m: m._put(m._decimal()),
        "q": lambda m: m._put(m._number("<B")),
        "r": lambda m: m._put(m._number("<I")),
        "\x94": lambda m: m._put(len(m._memo)),
        "g": lambda m: m._push(m._memo[m._decimal()]),
        "h": lambda m: m._push(m._memo[m._number("<B")]),
        "j": lambda m: m._push(m._memo[m._number("<I")]),
        "c": Machine._global,
        "\x93": Machine._stack_global,
        "R": Machine._reduce,
        "\x81": Machine._new,
        "\x92": Machine._new_with_keywords,
        "i": Machine._inst,
        "o": Machine._obj,
        "b": Machine._build,
        "Q": Machine._persistent,
    }.items()
}
