"""The Methods page in a real browser: find a method, open its card by key and by link, take it to the Merge page."""

from __future__ import annotations

import pytest
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 60_000  # ms


def test_find_a_method_and_open_it_in_merge(app: App, context: BrowserContext, server: str) -> None:
    page = app.open("/methods").page
    card = page.locator(".st-key-card")
    expect(card.get_by_role("heading", name="Task Arithmetic")).to_be_visible(timeout=PATIENCE)

    page.get_by_role("radio", name="Edit", exact=True).click()
    app.wait_for_address("role=")
    app.settled()
    expect(page.locator(".st-key-methods_merge")).to_have_count(0)
    page.get_by_label("Find", exact=True).fill("saliency")
    app.wait_for_address("search=saliency")
    app.settled()
    page.locator(".st-key-methods_edit").get_by_text("LwPTV").click()
    app.wait_for_address("method=lwptv")
    app.settled()
    expect(card.get_by_role("heading", name="LwPTV")).to_be_visible()
    expect(card.locator(".katex").first).to_be_visible()
    expect(card.get_by_role("table").first).to_contain_text("Prune ratio")
    link = page.url.removeprefix(server)
    assert "role=" in link

    other = new_tab(context, server).open(link)
    expect(other.page.locator(".st-key-card").get_by_role("heading", name="LwPTV")).to_be_visible(timeout=PATIENCE)
    expect(other.page.locator(".st-key-methods_merge")).to_have_count(0)
    assert not other.problems
    assert not other.outside()

    card.get_by_role("link", name="Open in Merge").click()
    app.wait_for_address("chain=lwptv")
    app.settled()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=PATIENCE)
    expect(app.text("1. LwPTV")).to_be_visible()


def test_the_keyboard_leads_from_card_to_card(app: App) -> None:
    page = app.open("/methods?method=task_arithmetic").page
    heading = page.locator(".st-key-card").get_by_role("heading").first
    expect(heading).to_have_text("Task Arithmetic", timeout=PATIENCE)
    expect(page.get_by_role("link", name="Compare our runs in Scores").first).to_be_visible(timeout=PATIENCE)
    app.settled()  # a key that is pressed while the card is being drawn counts for nothing
    page.keyboard.press("n")
    expect(heading).not_to_have_text("Task Arithmetic", timeout=PATIENCE)
    app.settled()
    page.keyboard.press("p")
    expect(heading).to_have_text("Task Arithmetic", timeout=PATIENCE)
