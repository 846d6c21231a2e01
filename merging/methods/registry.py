"""Finds methods by walking edits/, merges/ and adapts/; nobody keeps a list."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from merging.errors import UnknownMethodError
from merging.methods.method import REGISTERED, Edit, Merge, Method
from merging.text import did_you_mean

# Other names under which a released method can still be found.
ALIASES = {"weight_average": "weight_averaging"}


@cache
def _load() -> None:
    for room in ("edits", "merges", "adapts"):
        package = importlib.import_module(f"merging.methods.{room}")
        for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
            importlib.import_module(f"merging.methods.{room}.{module}")


def methods() -> tuple[Method, ...]:
    """Every registered method: edits, then merges, then adapts, each by key."""
    _load()
    order = {"edit": 0, "merge": 1, "adapt": 2}
    return tuple(sorted(REGISTERED.values(), key=lambda method: (order[method.role], method.key)))


def _find(role: str, key: str) -> Method:
    _load()
    if found := REGISTERED.get((role, ALIASES.get(key, key))):
        return found
    known = [k for r, k in REGISTERED if r == role]
    other = next((r for r, k in REGISTERED if k == key), None)
    hint = f" {key!r} is an {other}." if other == "edit" else f" {key!r} is a {other}." if other else ""
    raise UnknownMethodError(
        f"There is no {role} called {key!r}.{hint or did_you_mean(key, known)} Known: {', '.join(sorted(known))}."
    )


def edit(key: str) -> Edit:
    """The edit of that key; raises UnknownMethodError with the nearest one."""
    found = _find("edit", key)
    assert isinstance(found, Edit)
    return found


def merge(key: str) -> Merge:
    """The merge of that key; raises UnknownMethodError with the nearest one."""
    found = _find("merge", key)
    assert isinstance(found, Merge)
    return found
