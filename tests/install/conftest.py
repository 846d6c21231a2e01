"""The wheel, built once, and an environment in which it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed_package import Environment, build_wheel, make_environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel."""
    environment = make_environment(tmp_path_factory.mktemp("installed") / "env")
    environment.install(wheel)
    return environment
