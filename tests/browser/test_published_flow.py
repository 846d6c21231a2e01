"""A way through the app: a published experiment in miniature, fetched from a Hub on this machine, computed, opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import published_models
import pytest
from app_server import serve
from browser_tab import App, new_tab
from loopback_hub import LoopbackHub
from playwright.sync_api import BrowserContext, expect

from merging.sharing.published.experiment_catalogue import read_experiment

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: the job is a process of its own
PLACE = "/models?models_view=data&benchmark_source=published+experiments&experiment=smoke"


@pytest.fixture
def app(context: BrowserContext, library: Path, tmp_path: Path) -> Iterator[App]:
    """A tab on a server that may download, from a Hub that lasts as long as the test."""
    with LoopbackHub() as hub:
        published_models.fill(
            hub, read_experiment("smoke"), published_models.data_sets(tmp_path, iter(("mnist", "eurosat")))
        )
        hub.fail(port="storage", times=99, rate=4_000_000.0)  # slow enough for its progress to be seen
        with serve(library, tmp_path, hub.environment(tmp_path / "home")) as url:
            tab = new_tab(context, url)
            yield tab
            assert not tab.problems
            assert not tab.outside()


def test_from_the_plan_to_its_scores(app: App) -> None:
    page = app.open(PLACE).page
    page.get_by_role("button", name="Read licenses and sizes").click()
    app.settled()
    page.get_by_role("button", name="Fetch and compute").click()
    tray = page.locator(".st-key-jobs")
    expect(tray).to_contain_text("Fetching from 127.0.0.1", timeout=PATIENCE)
    expect(tray).to_contain_text("/s: openai/clip-vit-base-patch32", timeout=PATIENCE)
    page.get_by_role("link", name="Methods", exact=True).click()  # the job goes on, and the tray follows it there
    app.settled()
    expect(tray).to_contain_text("done", timeout=PATIENCE)
    tray.get_by_role("link", name="Published").click()
    app.settled()
    expect(app.text("Ours beside the papers")).to_be_visible(timeout=PATIENCE)
    expect(app.text("All of this is computed")).to_be_visible()
    page.get_by_role("button", name="Open its benchmark").click()
    app.wait_for_address("benchmark=own%3Apublished-smoke")
    app.settled()
    expect(app.text("With an expert: MNIST, EuroSAT.")).to_be_visible()
    page.get_by_test_id("stMain").get_by_role("link", name="Scores").click()
    app.settled().charted()
    expect(app.text("This is the published experiment")).to_be_visible()
    expect(app.text("and the reference models")).to_be_visible()
