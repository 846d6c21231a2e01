"""Where own methods come from, with the digests of their sources, which are in the ids of their runs."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import CodeType, FrameType, FunctionType
from typing import Any


class OriginKind(StrEnum):
    """The ways in which an own method comes in."""

    FILE = "file"  # of $MERGESCOPE_METHODS
    PACKAGE = "package"  # with an entry point
    SESSION = "session"  # registered by a notebook or a script, in this process only


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a method comes from: the path of its file, its package, or the module that registered it."""

    kind: OriginKind
    place: str
    digest: str  # of the source, 64 hexadecimal digits
    module: str = ""  # that called ``register``

    def __str__(self) -> str:
        return f"registered by {self.place}" if self.kind is OriginKind.SESSION else self.place


ORIGINS: dict[tuple[str, str], Origin] = {}  # by role and key; methods of this program have none


def describe_session(method: Any, caller: FrameType) -> Origin:
    """The origin of a method that a notebook or a script registers; ``caller`` is the frame that calls ``register``."""
    digest = hashlib.sha256("".join(linecache.getlines(caller.f_code.co_filename)).encode())
    for function in _list_functions(method):
        digest.update(_function_source(function))
    for name, bound in method.params.bounds().items():
        digest.update(f"{name} {bound!r}\0".encode())
    module = str(caller.f_globals.get("__name__", ""))
    return Origin(OriginKind.SESSION, "this session" if module == "__main__" else module, digest.hexdigest(), module)


def _list_functions(method: Any) -> Iterator[FunctionType]:
    """The functions of a method, and those of the same module that these name."""
    fields = [getattr(method, field.name) for field in dataclasses.fields(method)]
    waiting = [value for value in fields if isinstance(value, FunctionType) and not _is_ours(value)]
    found: list[FunctionType] = []
    while waiting:
        if (function := waiting.pop(0)) in found:
            continue
        found.append(function)
        named = (function.__globals__.get(name) for name in _list_names(function.__code__))
        waiting += [one for one in named if isinstance(one, FunctionType) and one.__globals__ is function.__globals__]
    yield from found


def _is_ours(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith("merging.")


def _list_names(code: CodeType) -> list[str]:
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _list_names(one)]
    return [*code.co_names, *inner]


def _function_source(function: FunctionType) -> bytes:
    try:
        return inspect.getsource(function).encode()
    except (OSError, TypeError):  # typed into a plain prompt, or made by ``exec``
        return _code_bytes(function.__code__)


def _code_bytes(code: CodeType) -> bytes:
    constants = [_code_bytes(one) if isinstance(one, CodeType) else repr(one).encode() for one in code.co_consts]
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *constants])
