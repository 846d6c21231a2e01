"""A models folder that the tests of the catalog fill."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder called "clip", as $MERGESCOPE_MODELS names it."""
    folder = tmp_path / "clip"
    folder.mkdir()
    monkeypatch.setenv("MERGESCOPE_MODELS", str(folder))
    return folder
