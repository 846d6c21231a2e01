"""A tiny benchmark for previews."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny


@pytest.fixture(scope="session")
def tiny_benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("previews") / "benchmark"
    tiny.write_benchmark(folder)
    return folder
