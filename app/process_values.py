"""Values that a server makes once and stores until it ends, even if sessions clear caches: queue, processes, polls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.RLock()  # reentrant, because making one value may need another
_values: dict[Callable[..., Any], Any] = {}


def make_once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that returns the result of the first call of ``make`` in this process; errors are not stored."""

    @functools.wraps(make)
    def call_once() -> T:
        with _lock:
            if make not in _values:
                _values[make] = make()
            value: T = _values[make]
            return value

    return call_once


def take_value(call: Callable[[], T]) -> T | None:
    """The value that a function of ``make_once`` stores, which is forgotten; None if it stores none."""
    with _lock:
        return _values.pop(call.__wrapped__, None)  # type: ignore[attr-defined, no-any-return]


def forget_values() -> None:
    """Forget all values, so that the next call makes them anew; for tests."""
    with _lock:
        _values.clear()
