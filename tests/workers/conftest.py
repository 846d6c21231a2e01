"""An empty store, workers in this process, a cluster, a benchmark that a test may change, and smaller measurements."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dask_cluster import Cluster, end_process, make_certificates
from every_kind import ALL_KINDS, Bytes, stored_bytes
from torch_threads import torch_threads

from merging.base.settings import CERTIFICATES_VARIABLE
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.study.trials import drm_ablations, exemplar_sensitivity, task_counts
from merging.tasks.context import Context
from merging.tasks.workers.workers import Workers


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def threads() -> Iterator[Workers]:
    """Two workers in this process, where what they do can be changed."""
    pool = ThreadPoolExecutor(2)
    yield Workers(pool, 2)
    pool.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler of Dask and two workers, for all tests of a file."""
    pytest.importorskip("distributed", reason="Dask is not installed; pip install -r requirements-workers.txt")
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CERTIFICATES_VARIABLE, make_certificates(folder))
        made = Cluster(folder)
        try:
            made.start()
            yield made
        finally:
            for process in made.processes:
                end_process(process)


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Benchmark:
    """A benchmark whose files a test may change."""
    shutil.copytree(tiny_folder, tmp_path / "copied")
    return Benchmark.load(tmp_path / "copied")


@pytest.fixture(scope="module")
def smaller_measurements() -> Iterator[None]:
    """Measurements of trials with fewer of them, for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (exemplar_sensitivity, "COUNTS", (1, 3)), (exemplar_sensitivity, "SEEDS", (0,)),
            (exemplar_sensitivity, "CANDIDATES", exemplar_sensitivity.CANDIDATES[::6]),
            (drm_ablations, "CUTS", (0.0, 0.1)), (drm_ablations, "VARIANTS", drm_ablations.VARIANTS[:2]),
            (task_counts, "PRESETS", ("drm_h",)),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        yield


@pytest.fixture(scope="module")
def here(tiny_benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory, smaller_measurements: None) -> Bytes:
    """What the store of each kind of work holds that no worker computed, but one thread of this process."""
    found: dict[str, dict[str, Any]] = {}

    def stored(kind: str) -> dict[str, Any]:
        if kind not in found:
            store = Store(tmp_path_factory.mktemp(kind), libraries=())
            with torch_threads(1):
                ALL_KINDS[kind][1](tiny_benchmark, store, None, Context("cpu"))
            found[kind] = stored_bytes(store)
        return found[kind]

    return stored
