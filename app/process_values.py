"""What a server makes once and keeps until it ends, whatever its sessions clear: its queue, processes and polls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.RLock()  # what is made may ask for something else that is made once
_made: dict[Callable[..., Any], Any] = {}


def make_once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that gives what ``make`` returns when it is first called in this process; errors are not kept."""

    @functools.wraps(make)
    def give() -> T:
        with _lock:
            if make not in _made:
                _made[make] = make()
            made: T = _made[make]
            return made

    return give


def forget_values() -> None:
    """Make everything anew when it is next asked for, for tests."""
    with _lock:
        _made.clear()
