"""What a server makes once and keeps until it ends, whatever its sessions clear: its queue, processes and polls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P, T = ParamSpec("P"), TypeVar("T")

_lock = threading.RLock()  # what is made may ask for something else that lasts
_made: dict[Callable[..., Any], Any] = {}


def once(make: Callable[P, T]) -> Callable[P, T]:
    """A function that gives what ``make`` returns when it is first called in this process; errors are not kept."""

    @functools.wraps(make)
    def give(*args: P.args, **options: P.kwargs) -> T:
        with _lock:
            if make not in _made:
                _made[make] = make(*args, **options)
            made: T = _made[make]
            return made

    return give


def forget() -> None:
    """Make everything anew when it is next asked for, for tests."""
    with _lock:
        _made.clear()
