"""The code under a chart follows what is set on the page, is copied by a click, and its button needs no second line."""

from __future__ import annotations

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
PATIENCE = 60_000  # ms
LINES = """() => [...document.querySelectorAll('[class*="st-key-code_"]')].map(code =>
  new Set([...code.parentElement.children].map(button => Math.round(button.getBoundingClientRect().top))).size)"""


def test_the_code_follows_the_slider_and_is_copied(app: App, lwptv_run: str) -> None:
    app.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    app.open(f"/masks?run={lwptv_run}&ratio=0.5").charted()
    slider = app.page.locator(".st-key-ratio input, .st-key-ratio [role=slider]").first
    slider.focus()
    app.page.keyboard.press("ArrowRight")
    app.page.wait_for_url("**ratio=0.51*", timeout=PATIENCE)
    app.settled()
    app.page.locator(".st-key-code_saliency_matrix button").first.click()
    code = app.page.locator("[data-testid=stPopoverBody] pre").first
    expect(code).to_contain_text("ratio=0.51", timeout=PATIENCE)
    code.hover()
    app.page.get_by_role("button", name="Copy to clipboard").locator("visible=true").last.click()
    first, second, last = app.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert (first, last) == ("import mergescope", 'view["saliency_matrix"]')
    assert second.startswith('view = mergescope.view("masks?') and f"run={lwptv_run}" in second and "=0.51" in second


@pytest.mark.full
def test_the_buttons_under_a_chart_stand_in_one_line_at_900_px(app: App, lwptv_run: str) -> None:
    app.page.set_viewport_size({"width": 900, "height": 1000})
    app.open(f"/masks?run={lwptv_run}").charted()
    lines = app.page.evaluate(LINES)
    assert len(lines) == 3 and set(lines) == {1}
