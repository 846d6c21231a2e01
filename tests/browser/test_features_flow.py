"""The Features page in a real browser: extract features in the background, draw a lasso, see the images under it."""

from __future__ import annotations

import re

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: one job a model, each a process of its own
PANEL = """() => {
  const chart = document.querySelector('.js-plotly-plot'), layout = chart._fullLayout;
  const box = chart.getBoundingClientRect(), x = layout.xaxis, y = layout.yaxis;
  return [box.left + x._offset, box.top + y._offset, x._length, y._length];
}"""


def test_a_lasso_shows_the_images_under_it(app: App) -> None:
    page = app.open("/features").page
    page.get_by_role("button", name="Measure", exact=True).click(timeout=PATIENCE)
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=PATIENCE)
    expect(page.locator(".st-key-missing_features")).to_have_count(0, timeout=PATIENCE)
    app.settled().charted()

    left, top, width, height = page.evaluate(PANEL)
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.04)]
    places = [(left + x * width, top + y * height) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=6)
    page.mouse.up()
    app.settled()
    thumbnails = page.locator(".st-key-thumbnails")
    expect(thumbnails.get_by_role("img").first).to_be_visible(timeout=60_000)
    shown = thumbnails.get_by_role("img").count()
    assert shown == 30  # of 40 images
    expect(thumbnails).to_contain_text("before:")
    expect(page.locator(".st-key-circled")).to_contain_text(re.compile(r"(3\d|40) images chosen"))

    page.get_by_role("button", name="Clear", exact=True).click()
    app.settled()
    expect(thumbnails).to_have_count(0, timeout=60_000)
