"""Fixtures that several test files share: the tiny family, the tiny benchmark, an empty store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
import torch

from merging.benchmarks.benchmark import Benchmark

torch.set_num_threads(1)  # tensors are tiny here: handing pieces of them to other threads only costs time


@pytest.fixture(scope="session", autouse=True)
def no_search_for_components() -> Iterator[None]:
    """Streamlit's test harness reads the metadata of every installed package for each run; a server does so once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
        yield


@pytest.fixture(scope="session")
def tiny_family(tmp_path_factory: pytest.TempPathFactory) -> tiny.Family:
    """Float32 checkpoint files of a pretrained model and four experts; do not change them."""
    return tiny.write_family(tmp_path_factory.mktemp("family"))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark folder in the layout of sample_data/, float16 checkpoints; do not change it."""
    return tiny.write_benchmark(tmp_path_factory.mktemp("benchmark"))


@pytest.fixture(scope="session")
def tiny_benchmark(tiny_folder: Path) -> Benchmark:
    """The loaded tiny benchmark."""
    return Benchmark.load(tiny_folder)


@pytest.fixture
def other_benchmark(tiny_folder: Path, tmp_path: Path) -> Benchmark:
    """The same models and images as the tiny benchmark's, with another digest."""
    folder = tmp_path / "other"
    shutil.copytree(tiny_folder, folder)
    (folder / "tasks.json").write_text((folder / "tasks.json").read_text() + "\n")
    return Benchmark.load(folder)
