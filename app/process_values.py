"""Values that a server makes once for all sessions.

Some are stored until it ends, even if sessions clear caches: the queue, processes, polls. Others are the results of
functions, for the arguments that were asked for last.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

_lock = threading.RLock()  # reentrant, because making one value may need another
_values: dict[Callable[..., Any], Any] = {}
_results: list[OrderedDict[tuple[Any, ...], Any]] = []  # those of each function of ``store_results``


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


def store_results(most: int) -> Callable[[Function], Function]:
    """A decorator that stores the results of a function's last ``most`` different calls.

    Arguments are positional and hashable. Results are shared by all sessions, and a session waits for a result that
    another one is computing. Streamlit's caches do the same and take longer to look up.
    """

    def decorate(function: Function) -> Function:
        results: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        locks: dict[tuple[Any, ...], Any] = {}  # of the results that are being computed
        guard = threading.Lock()
        _results.append(results)

        def find_result(arguments: tuple[Any, ...]) -> Any:
            with guard:
                if arguments in results:
                    results.move_to_end(arguments)
                return results.get(arguments, locks)  # ``locks`` stands for no result

        @functools.wraps(function)
        def look_up(*arguments: Any) -> Any:
            if (result := find_result(arguments)) is not locks:
                return result
            with guard:
                lock = locks.setdefault(arguments, threading.RLock())
            with lock:
                if (result := find_result(arguments)) is not locks:
                    return result
                try:
                    result = function(*arguments)
                    with guard:
                        results[arguments] = result
                        while len(results) > most:
                            results.popitem(last=False)
                finally:
                    with guard:
                        locks.pop(arguments, None)
            return result

        return cast(Function, look_up)

    return decorate


def forget_values() -> None:
    """Forget all values and results, so that the next call makes them anew; for tests."""
    with _lock:
        _values.clear()
    forget_results()


def forget_results() -> None:
    """Forget the results of all functions, as after many other arguments; for tests."""
    for results in _results:
        results.clear()
