"""Putting a layer back in a real browser: measure the map, click a cell, preview its block, carry it to Merge."""

from __future__ import annotations

import re

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: a job and a preview, each in a process of its own


def test_a_block_is_put_back(app: App, lwptv_run: str) -> None:
    page = app.open(f"/drift?drift_view=put+back&runs={lwptv_run}").page
    app.settled()
    page.locator(".st-key-measure_put_back button").click(timeout=PATIENCE)
    expect(page.locator(".st-key-missing_put_back")).to_have_count(0, timeout=PATIENCE)
    app.settled()
    page.locator(".st-key-measure_first_order button").click()  # in a part of the page that is drawn alone
    expect(page.locator(".st-key-missing_first_order")).to_have_count(0, timeout=PATIENCE)
    app.settled().charted()
    app.click_cell(0, 7)
    app.wait_for_address("tensor=visual.transformer.resblocks.0.")
    app.settled()
    page.get_by_role("radio", name="its block").click()
    app.wait_for_address("action_scope=its")
    app.settled()
    panel = page.locator(".st-key-preview_put_back_drift")
    panel.get_by_role("button", name="Preview").click()
    expect(panel.get_by_text("Out of domain").first).to_be_visible(timeout=PATIENCE)
    expect(panel).to_contain_text(re.compile("n = "), timeout=PATIENCE)
    link = page.get_by_role("link", name="Make it a run").get_attribute("href") or ""
    assert "chain=" in link and "manual" in link and "b0" in link
    assert not app.problems
