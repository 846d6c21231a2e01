"""The Conflicts page in a real browser: a click on a layer, everything follows, and the link restores it."""

from __future__ import annotations

import pytest
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 60_000  # ms
RANKS = "directions at rank cut"


def test_a_layer_becomes_the_focus(app: App, context: BrowserContext, server: str) -> None:
    page = app.open("/conflicts").charted().page
    page.wait_for_selector(".heatmaplayer image", timeout=PATIENCE)
    app.settled()
    expect(app.text(RANKS)).to_have_count(0)
    app.click_cell(1, 2)
    app.wait_for_address("tensor=visual.")
    expect(app.text(RANKS)).to_be_visible(timeout=PATIENCE)
    app.settled()
    first = page.url
    slider = page.locator("input[type=range]").first
    slider.focus()
    slider.press("ArrowRight")
    app.wait_for_address("density=0.1")
    app.settled()
    expect(app.text("pruned to 10%")).to_be_visible(timeout=PATIENCE)

    other = new_tab(context, server).open(first.removeprefix(server)).charted()
    expect(other.text(RANKS)).to_be_visible(timeout=PATIENCE)
    assert not other.problems
    assert not other.outside()
