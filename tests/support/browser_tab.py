"""A tab of a real browser on the app, which notes every request and every error on the page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 60_000  # ms, for a machine that is busy with other things
expect.set_options(timeout=20_000)  # ms, where a test names none
# Streamlit looks for its endpoints under a page's own path first, and is told that they are not there.
HARMLESS = re.compile(r"404 \(Not Found\)")
# The first chart of the view, below the map of the network.
VIEW_CHART = "[...document.querySelectorAll('.js-plotly-plot')].find(e => e.layout?.meta?.key !== 'network_map')"
CELL = f"""([panel, row, column]) => {{
  const chart = {VIEW_CHART}, layout = chart._fullLayout;
  chart.scrollIntoView({{block: 'center'}});
  const box = chart.getBoundingClientRect(), y = layout[panel];
  return [box.left + layout.xaxis._offset + layout.xaxis.c2p(column), box.top + y._offset + y.c2p(row)];
}}"""


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
        """Wait until a chart is painted that is not the map of the network."""
        self.page.wait_for_function(f"() => ({VIEW_CHART})?.querySelector('.main-svg')", timeout=PATIENCE)
        self.page.wait_for_timeout(1000)
        return self

    def steady(self, script: str, arg: object) -> tuple[float, float]:
        """What a script that gives a point of the screen says, once the page has stopped moving under it."""
        before = None
        for _ in range(100):
            place = self.page.evaluate(script, arg)
            if place == before:
                break
            before = place
            self.page.wait_for_timeout(300)
        x, y = place
        return x, y

    def click_at(self, script: str, arg: object) -> None:
        """Come with the mouse to the point that a script gives, and click, wherever the point has moved meanwhile."""
        for _ in range(10):
            x, y = self.steady(script, arg)
            self.page.mouse.move(x - 8, y - 3)
            self.page.mouse.move(x, y, steps=3)
            self.page.wait_for_timeout(200)
            if self.page.evaluate(script, arg) == [x, y]:
                break
        self.page.mouse.click(x, y)

    def click_cell(self, row: int, column: int, panel: str = "yaxis") -> None:
        """Click a cell of the first chart."""
        self.click_at(CELL, [panel, row, column])

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


@contextmanager
def launch_chromium() -> Iterator[Browser]:
    """The browser; fails where there is none, because a skipped test proves nothing."""
    assert CHROMIUM, "The browser tests need Chromium on the PATH."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


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
