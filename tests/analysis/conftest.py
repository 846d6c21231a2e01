"""A tiny library with runs, and a store of one's own beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_library

from merging.study.runs.run_store import Store


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny benchmark with precomputed runs; nothing is measured."""
    return tiny_library.write(tmp_path_factory.mktemp("library"), ("task_arithmetic_lwptv", "emr"))


@pytest.fixture
def store(tmp_path: Path, library: Path) -> Store:
    """An empty store beside the library."""
    return Store(tmp_path / "store", libraries=(library / "runs",))
