"""The map of the network by keyboard in a real browser: arrow keys, and the menu that Enter opens."""

from __future__ import annotations

import pytest
from browser_tab import PATIENCE, App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
MAP = ".st-key-network_panel .js-plotly-plot"


def test_the_menu_of_a_tensor_by_keyboard(app: App, lwptv_run: str) -> None:
    page = app.open(f"/masks?run={lwptv_run}").page
    app.charted()
    page.locator(MAP).focus()
    page.keyboard.press("Enter")  # nothing is chosen yet: the first tensor
    app.wait_for_address("tensor=visual.")
    app.settled().charted()
    before = page.url
    page.keyboard.press("ArrowRight")  # the map has the focus although it was drawn again
    page.wait_for_function("before => location.href !== before", arg=before, timeout=PATIENCE)
    app.settled().charted()
    chosen = page.url
    page.keyboard.press("Enter")
    items = page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    assert {"Masks", "Conflicts", "Drift", "Put back", "Image"} < set(items.all_inner_texts())
    page.keyboard.press("ArrowUp")
    expect(items.last).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(page.locator(MAP)).to_be_focused()
    assert page.url == chosen
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="its block")).to_be_focused()
    page.keyboard.press("Enter")
    app.wait_for_address("action_scope=its")
    app.settled().charted()
    page.keyboard.press("Enter")
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Drift")).to_be_focused()
    page.keyboard.press("Enter")
    app.wait_for_address("/drift?")
    app.wait_for_address("tensor=visual.")
    app.settled()
    page.locator(MAP).focus()
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Put back").click()  # a view of the page itself
    app.wait_for_address("drift_view=put+back")
    app.settled()
    expect(page.get_by_test_id("stException")).to_have_count(0)
    assert not app.problems
