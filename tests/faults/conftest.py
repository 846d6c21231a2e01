"""A process that forks others, and a store to be hurt, for the tests of faults."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import fault_store
import pytest
from fault_store import FaultStore
from nursery import Nursery

from merging.benchmarks.benchmark import Benchmark


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A warm process; closed at the end."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, tiny_benchmark: Benchmark) -> FaultStore:
    """A store with something of everything; copy it, do not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
        return fault_store.write(tmp_path_factory.mktemp("faults"), tiny_benchmark)


@pytest.fixture
def environment(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The environment of processes: the tiny benchmark, and the store of this test."""
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    return {**os.environ, "MERGESCOPE_BENCHMARK": str(tiny_folder)}
