"""An empty store, workers in this process, and a benchmark whose files a test may change."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from merging.benchmarks.benchmark import Benchmark
from merging.runs.store import Store
from merging.workers.workers import Workers


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def threads() -> Iterator[Workers]:
    """Two workers in this process, where what they do can be changed."""
    pool = ThreadPoolExecutor(2)
    yield Workers(pool, 2)
    pool.shutdown()


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Benchmark:
    """A benchmark whose files a test may change."""
    shutil.copytree(tiny_folder, tmp_path / "copied")
    return Benchmark.load(tmp_path / "copied")
