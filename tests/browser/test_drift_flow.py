"""The Drift page in a real browser: a click on a cell moves the focus of every picture, and the link restores it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser_tab import App, new_tab
from page_harness import runs
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 60_000  # ms
ONE_LAYER = "How far does this layer drift on each task"


def test_a_cell_becomes_the_focus(app: App, context: BrowserContext, server: str) -> None:
    app.open("/drift").charted()
    app.page.get_by_role("radio", name="layer by layer").click()
    app.wait_for_address("drift_view=layer")
    app.settled().charted()
    app.page.wait_for_selector(".heatmaplayer image")
    expect(app.text(ONE_LAYER)).to_have_count(0)
    app.click_cell(2, 5)
    app.wait_for_address("expert=flags")
    app.wait_for_address("tensor=visual.")
    expect(app.text(ONE_LAYER)).to_be_visible(timeout=PATIENCE)
    app.settled()
    first = app.page.url
    app.click_cell(0, 7)  # another cell: the focus moves
    app.wait_for_address("expert=circles")
    app.settled()
    assert app.page.url.split("tensor=")[1] != first.split("tensor=")[1]

    other = new_tab(context, server).open(first.removeprefix(server)).charted()
    expect(other.text(ONE_LAYER)).to_be_visible(timeout=PATIENCE)
    expect(other.page.get_by_role("combobox", name="Task")).to_have_value(re.compile("flags", re.IGNORECASE))
    assert not other.problems
    assert not other.outside()


def test_the_sidebar_keeps_the_run_that_another_page_shows(app: App, library: Path) -> None:
    run = runs(library)["Ties"].id  # none that Masks or Drift opens on
    app.open(f"/masks?run={run}").charted()
    app.page.wait_for_selector(".heatmaplayer image")
    app.click_cell(2, 5)
    app.wait_for_address("tensor=visual.")
    menu = app.page.get_by_test_id("stSidebarNav")
    menu.get_by_role("link", name="Scores").click()
    app.wait_for_address(f"run={run}")
    app.settled()
    app.page.locator(".st-key-selection").get_by_role("link", name="Drift").click()
    app.wait_for_address("drift_view=layer")
    app.settled().charted()
    app.wait_for_address(f"run={run}")
    menu.get_by_role("link", name="Masks").click()
    app.wait_for_address("/masks")
    app.settled().charted()
    app.wait_for_address(f"run={run}")
    assert not app.problems
