"""An empty store for sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from merging.study.runs.run_store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())
