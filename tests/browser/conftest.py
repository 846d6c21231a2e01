"""A real server on a free port, and a real Chromium."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import tiny_library
from app_server import serve
from browser_tab import App, new_tab
from playwright.sync_api import Browser, BrowserContext

from merging.study.runs.run_store import Store


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny benchmark with precomputed runs, whose drift is measured."""
    folder = tiny_library.write(tmp_path_factory.mktemp("library") / "benchmark")
    tiny_library.measure(folder)
    return folder


@pytest.fixture(scope="session")
def lwptv_run(library: Path) -> str:
    """The id of a precomputed run. Pages open with the newest run, and flows before this one leave runs of theirs."""
    runs = Store(library, libraries=(library / "runs",)).list_runs()
    return next(run.id for run in runs if run.title == "Task Arithmetic w/ LwPTV")


@pytest.fixture(scope="session")
def server(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the app on the tiny benchmark, with a store that is empty at first."""
    with serve(library, tmp_path_factory.mktemp("browser")) as url:
        yield url


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """One user's browser."""
    found = chromium.new_context(viewport={"width": 1400, "height": 1100})
    found.grant_permissions(["clipboard-read", "clipboard-write"])
    yield found
    found.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure: where the tab was, its jobs, and what it showed."""
    report = yield
    tab = getattr(item, "funcargs", {}).get("app")
    if report.when == "call" and report.failed and isinstance(tab, App):
        parts = (("jobs", ".st-key-jobs"), ("page", "[data-testid=stMain]"))
        for name, place in parts:
            texts = tab.page.locator(place).all_inner_texts()
            report.sections.append((f"{name} at {tab.page.url}", "\n".join(texts)[:3000]))
    return report


@pytest.fixture
def app(context: BrowserContext, server: str) -> Iterator[App]:
    """A tab; at the end of the test nothing may have gone wrong in it, and nothing may have left the machine."""
    tab = new_tab(context, server)
    yield tab
    assert not tab.problems
    assert not tab.outside()
