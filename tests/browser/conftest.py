"""A real server on a free port, and a real Chromium that notes every request and every error on the page."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tiny_library
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 60_000  # ms, for a machine that is busy with other things
# Streamlit looks for its endpoints under a page's own path first, and is told that they are not there.
HARMLESS = re.compile(r"404 \(Not Found\)")
CELL = """([panel, row, column]) => {
  const chart = document.querySelector('.js-plotly-plot'), layout = chart._fullLayout;
  const box = chart.getBoundingClientRect(), y = layout[panel];
  return [box.left + layout.xaxis._offset + layout.xaxis.c2p(column), box.top + y._offset + y.c2p(row)];
}"""


@dataclass
class App:
    """One browser tab on the app."""

    page: Page
    url: str
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> App:
        """Go to a path of the app and wait until it is drawn."""
        self.page.goto(self.url + path)
        return self.settled()

    def settled(self) -> App:
        """Wait until the script has ended; fragments and charts follow it."""
        self.page.wait_for_timeout(400)
        done = "document.querySelector('[data-testid=stApp]')?.getAttribute('data-test-script-state')==='notRunning'"
        self.page.wait_for_function(done, timeout=PATIENCE)
        self.page.wait_for_timeout(300)
        return self

    def charted(self) -> App:
        """Wait until a chart is painted."""
        self.page.wait_for_selector(".js-plotly-plot .main-svg", timeout=PATIENCE)
        self.page.wait_for_timeout(1000)
        return self

    def click_cell(self, row: int, column: int, panel: str = "yaxis") -> None:
        """Click a cell of the first chart."""
        x, y = self.page.evaluate(CELL, [panel, row, column])
        self.page.mouse.move(x - 10, y - 3)
        self.page.mouse.move(x, y, steps=3)
        self.page.wait_for_timeout(200)
        self.page.mouse.click(x, y)

    def wait_for_address(self, part: str) -> None:
        """Wait until the address contains ``part``."""
        self.page.wait_for_function("part => location.href.includes(part)", arg=part, timeout=PATIENCE)

    def text(self, words: str) -> Locator:
        """The first element that holds these words."""
        return self.page.get_by_text(words).first

    def outside(self) -> list[str]:
        """Requests that left this machine."""
        ours = (self.url, self.url.replace("http", "ws", 1), "data:", "blob:")
        return [request for request in self.requests if not request.startswith(ours)]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the app on a tiny benchmark whose merges' drift is measured, with an empty store."""
    folder = tmp_path_factory.mktemp("browser")
    library = tiny_library.write(folder / "benchmark")
    tiny_library.measure(library)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", str(port)]
    settings = {"MERGESCOPE_BENCHMARK": str(library), "MERGESCOPE_STORE": str(folder / "store")}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | settings, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, folder / "log.txt")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            pytest.fail(f"The server ended: {log.read_text()}")
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"The server did not answer: {log.read_text()}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser; the tests fail where there is none, because a skipped test proves nothing."""
    assert CHROMIUM, "The browser tests need Chromium on the PATH."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """One user's browser."""
    found = chromium.new_context(viewport={"width": 1400, "height": 1100})
    found.grant_permissions(["clipboard-read", "clipboard-write"])
    yield found
    found.close()


@pytest.fixture
def app(context: BrowserContext, server: str) -> Iterator[App]:
    """A tab; at the end of the test nothing may have gone wrong in it, and nothing may have left the machine."""
    tab = new_tab(context, server)
    yield tab
    assert not tab.problems
    assert not tab.outside()


def new_tab(context: BrowserContext, server: str) -> App:
    """Another tab of the same user."""
    tab = App(context.new_page(), server)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and not HARMLESS.search(message.text):
            tab.problems.append(message.text)

    tab.page.on("request", lambda request: tab.requests.append(request.url))
    tab.page.on("websocket", lambda socket: tab.requests.append(socket.url))
    tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.page.on("console", said)
    tab.page.on("dialog", lambda dialog: (tab.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    return tab
