"""A library with a pack of its runs, made once."""

from __future__ import annotations

from pathlib import Path

import packed_library
import pytest
from packed_library import PackedLibrary


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedLibrary:
    """Do not change it."""
    folder: Path = tmp_path_factory.mktemp("packed")
    return packed_library.write(folder)
