"""Fixtures that several test files share: the tiny family, the tiny benchmark, a merge of many models, a page."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peers
import pytest
import tiny
import torch
from loopback_hub import LoopbackHub
from per_task_merge import KEY

from app import startup
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import method as method_module
from merging.methods import registry
from merging.methods.method import Merge
from merging.models.hub import download_threads

DEADLINE = float(
    os.environ.get("MERGESCOPE_TEST_DEADLINE", "inf")
)  # seconds since 1970; continuous integration sets it

torch.set_num_threads(1)  # tensors are tiny here: handing pieces of them to other threads only costs time


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out once continuous integration has no time for it, which is short on a slow machine."""
    if time.time() > DEADLINE:
        pytest.skip("The time of continuous integration is over. `make test-all` runs this test.")


def pytest_configure() -> None:
    """Make a warning an error in every thread, also between tests, and in the processes that tests start.

    What is left open is told where Python finds it, often as it ends, and is no error outside a test.
    """
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ResourceWarning)
    os.environ["PYTHONWARNINGS"] = "error,ignore::ResourceWarning"
    # Tests of the ranges of packages use what pandas uses by itself: pages leave it where there is no warm-up.
    if "MERGESCOPE_ARROW_TEXTS" in os.environ:
        startup.skip_warm_up()
    else:
        startup.use_plain_texts()


@pytest.fixture(scope="session", autouse=True)
def no_search_for_components() -> Iterator[None]:
    """Streamlit's test harness reads the metadata of every installed package for each run; a server does so once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_spare_process() -> Iterator[None]:
    """What a server prepares after the first page takes seconds, and a page in a test is followed by nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.startup.warm_up", lambda *_ahead: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_runs_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The default store is empty, so that no test depends on the runs of whoever starts the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MERGESCOPE_STORE", str(tmp_path_factory.mktemp("default") / "store"))
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


@pytest.fixture
def loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A Hub on this machine that this process uses, with a cache in tmp_path/"home"; delays are short."""
    monkeypatch.setattr(download_threads, "FIRST_DELAY", 0.01)
    with LoopbackHub() as hub:
        hub.connect(monkeypatch, tmp_path / "home")
        yield hub


@pytest.fixture(scope="session")
def peft() -> Any:
    """The library PEFT, imported when a test first asks for it."""
    peers.transformers()  # makes torchvision importable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft

        return peft


@pytest.fixture
def doubles() -> Iterator[None]:
    """A merge that gives one model per task: each expert's task vector, doubled."""
    registry.list_methods()
    method_module.REGISTERED["merge", KEY] = Merge(
        key=KEY, title="Doubles", summary="", formula="", cite=registry.find_merge("ties").cite, per_task=True,
        run=lambda slot, params, found: 2 * slot.task_vectors, elementwise=lambda params, parameter: True,
    )  # fmt: skip
    yield
    del method_module.REGISTERED["merge", KEY]


@pytest.fixture
def open_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that opens a page of the app on a benchmark, with an empty store."""
    from page_harness import forget, open_page

    from app.reading import page_data

    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("app.widgets.panels.preview_panel.SHORT_SECONDS", 0.0)  # no page previews without being asked

    def opened(page: str, folder: Path, /, **query: str) -> Any:
        monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(folder))
        forget()
        return open_page(page, query)

    yield opened
    page_data.job_queue().close()
    forget()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of this process, which may have only one."""
    from browser_tab import launch_chromium

    with launch_chromium() as browser:
        yield browser
