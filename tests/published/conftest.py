"""Published models and data sets in miniature on a Hub of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import published_models
import pytest
from loopback_hub import LoopbackHub

from merging.sharing.published.experiment_catalogue import read_experiment


@pytest.fixture(scope="session")
def miniatures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The folders of all data sets, by the keys of their prompts."""
    eight = read_experiment("clip-b32-8")
    keys = [str(one.prompts) for one in (*eight.tasks, *eight.outside)]
    return published_models.data_sets(tmp_path_factory.mktemp("sets"), iter(keys))


@pytest.fixture
def hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, miniatures: dict[str, object], request: pytest.FixtureRequest
) -> Iterator[LoopbackHub]:
    """A Hub with all that an experiment needs, by default the smoke experiment."""
    one = read_experiment(getattr(request, "param", "smoke"))
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    published_models.listed(monkeypatch, one)
    with LoopbackHub() as server:
        published_models.fill(server, one, miniatures)
        server.connect(monkeypatch, tmp_path / "home")
        yield server
