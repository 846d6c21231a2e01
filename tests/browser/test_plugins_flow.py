"""The plug-in matrix in a real browser: from the runs to the arrows and on to the ablations; a link restores a view."""

from __future__ import annotations

import pytest
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 60_000  # ms


def test_from_runs_to_arrows_to_ablations(app: App, context: BrowserContext, server: str) -> None:
    page = app.open("/scores").charted().page
    page.get_by_role("radio", name="plug-in matrix").click()
    app.wait_for_address("scores_view=plug-in")
    app.wait_for_address("edit=lwptv")
    app.settled().charted()
    expect(app.text("Which merges does the edit help")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".js-plotly-plot .annotation").first).to_be_attached()
    expect(page.get_by_role("button", name="Compute all")).to_be_enabled()

    other = new_tab(context, server).open(page.url.removeprefix(server)).charted()
    expect(other.text("Which merges does the edit help")).to_be_visible(timeout=PATIENCE)
    assert not other.problems
    assert not other.outside()

    page.get_by_role("radio", name="ablations").click()
    app.wait_for_address("scores_view=ablations")
    app.settled().charted()
    page.get_by_role("link", name="Saliency by kind of layer").click()
    app.wait_for_address("features_view=saliency+by+layer+kind")
    app.settled().charted()
    expect(app.text("Does pruning prefer a kind of layer?")).to_be_visible(timeout=PATIENCE)
