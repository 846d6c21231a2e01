"""Subsets of a team, measured from the page and seen in every view of Partners, in a real Chromium."""

from __future__ import annotations

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 120_000  # ms


def test_subsets_are_measured_and_every_view_drawn(app: App) -> None:
    app.open("/partners?partners_chain=weight_averaging&partners_images=16").settled()
    expect(app.text("Nothing of this chain is measured yet.")).to_be_visible(timeout=PATIENCE)
    app.page.get_by_role("button", name="Measure", exact=True).click()
    expect(app.text("after all experts are merged")).to_be_visible(timeout=PATIENCE)
    app.page.get_by_role("radio", name="in pairs").click()
    app.wait_for_address("company=")
    expect(app.text("merged with its own expert alone")).to_be_visible(timeout=PATIENCE)
    expect(app.page.locator(".st-key-partners_status")).to_be_hidden(timeout=PATIENCE)  # all subsets are measured
    app.page.get_by_role("radio", name="what each brings").click()
    expect(app.text("The values add up to")).to_be_visible(timeout=PATIENCE)
    app.settled().charted()
    app.page.get_by_role("radio", name="leave one out").click()
    app.page.get_by_role("button", name="Measure on the reporting half").click()
    expect(app.text(", reported ")).to_be_visible(timeout=PATIENCE)
    app.settled().charted()
    app.page.get_by_role("radio", name="what foretells it").click()
    app.wait_for_address("partners_view=what")
    expect(app.page.get_by_role("button", name="Measure").first).to_be_visible(timeout=PATIENCE)  # predictors
    assert app.outside() == []
