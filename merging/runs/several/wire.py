"""A store as plain data, so that a worker writes into the same one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merging.runs.store import Store


def plain_store(store: Store) -> dict[str, Any]:
    """Where a store lies, and what it does."""
    libraries = [str(folder.absolute()) for folder in store.libraries]
    return {
        "root": str(store.root.absolute()), "libraries": libraries, "dated": store.dated, "benchmark": store.benchmark,
    }  # fmt: skip


def store_of(plain: Mapping[str, Any]) -> Store:
    """The store that ``plain_store`` describes."""
    libraries = tuple(map(Path, plain["libraries"]))
    return Store(Path(plain["root"]), libraries, dated=bool(plain["dated"]), benchmark=str(plain["benchmark"]))
