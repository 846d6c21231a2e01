"""Finds methods by importing the modules of edits/, merges/ and adapts/, and those of others; there is no list."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from merging.base.errors import UnknownMethodError
from merging.base.text import did_you_mean, first_few
from merging.methods import own_methods
from merging.methods.method import ALIASES, FOLDERS, REGISTERED, Adapt, Edit, Merge, Method


@cache
def _list_modules(role: str) -> tuple[str, ...]:
    """The names of a role's modules, which are the keys of its methods."""
    package = importlib.import_module(f"merging.methods.{FOLDERS[role]}")
    return tuple(sorted(info.name for info in pkgutil.iter_modules(package.__path__)))


@cache
def _load_module(role: str, module: str) -> None:
    importlib.import_module(f"merging.methods.{FOLDERS[role]}.{module}")


@cache
def load_all() -> None:
    """Import every method's module, which registers the method, and the methods of others."""
    for role in FOLDERS:
        for module in _list_modules(role):
            _load_module(role, module)
    own_methods.load()


def list_methods() -> tuple[Method, ...]:
    """Every registered method: edits, then merges, then adapts, each sorted by key."""
    load_all()
    order = {"edit": 0, "merge": 1, "adapt": 2}
    return tuple(sorted(REGISTERED.values(), key=lambda method: (order[method.role], method.key)))


def reload_methods() -> None:
    """Load the methods of others that are new or changed since they were loaded; those that are gone are left out."""
    load_all()
    own_methods.reload()


def find_method(role: str, key: str) -> Method:
    """The method of a role ("edit", "merge", "adapt") with this key; raises UnknownMethodError with the nearest key."""
    current_key = ALIASES.get(key, key)
    if current_key in _list_modules(role):  # importing all modules takes a fifth of a second
        _load_module(role, current_key)
    else:
        own_methods.load()
    if method := REGISTERED.get((role, current_key)):
        return method
    load_all()
    registered = tuple(REGISTERED)
    keys = [k for r, k in registered if r == role]
    other_role = next((r for r, k in registered if r != role and k == key.casefold()), None)
    article = "a" if other_role == "merge" else "an"
    hint = f" {key.casefold()!r} is {article} {other_role}." if other_role else did_you_mean(key, keys)
    problems = own_methods.list_problems()
    broken = f" Not loaded: {first_few(problems)}" if problems else ""
    raise UnknownMethodError(f"There is no {role} called {key!r}.{hint} Known: {', '.join(sorted(keys))}.{broken}")


def find_edit(key: str) -> Edit:
    """The edit with this key; raises UnknownMethodError with the nearest key."""
    method = find_method("edit", key)
    assert isinstance(method, Edit)
    return method


def find_merge(key: str) -> Merge:
    """The merge with this key; raises UnknownMethodError with the nearest key."""
    method = find_method("merge", key)
    assert isinstance(method, Merge)
    return method


def find_adapt(key: str) -> Adapt:
    """The adapt with this key; raises UnknownMethodError with the nearest key."""
    method = find_method("adapt", key)
    assert isinstance(method, Adapt)
    return method
