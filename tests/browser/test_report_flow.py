"""Two charts from two pages, a note, the file: opened from disk in a real browser it draws, and asks for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 120_000  # ms
DRAWN = (
    "document.querySelectorAll('.plot .main-svg').length >= 2 && document.querySelectorAll('.plot path').length > 20"
)


def add(app: App, path: str) -> None:
    """Put the first chart of a page into the report, and see that the button says so."""
    app.page.get_by_role("link", name=path, exact=True).first.click()
    app.settled().charted()
    app.page.get_by_role("button", name="Add to report").first.click()
    expect(app.page.get_by_role("button", name="In the report").first).to_be_visible(timeout=PATIENCE)


def test_the_report_opens_from_disk_without_a_request(
    app: App, context: BrowserContext, server: str, tmp_path: Path
) -> None:
    app.open("/")
    add(app, "Scores")
    add(app, "Masks")
    page = app.page
    page.get_by_role("link", name="Report", exact=True).first.click()
    app.settled()
    page.get_by_label("Heading").fill("What merging did")
    page.get_by_label("Note").first.fill("TIES is <b>here</b>.")
    page.get_by_label("Note").first.press("Tab")
    app.settled()
    page.reload()  # another session, which the token in the address leads to the same report
    app.settled()
    expect(page.get_by_label("Heading")).to_have_value("What merging did", timeout=PATIENCE)
    expect(page.get_by_label("Note").first).to_have_value("TIES is <b>here</b>.")
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.get_by_role("button", name="Download the report").click()
    file = tmp_path / "report.html"
    waiting.value.save_as(file)
    assert waiting.value.suggested_filename == "mergescope_report.html"

    other = new_tab(context, server)
    other.page.goto(file.as_uri())
    other.page.wait_for_function(DRAWN, timeout=PATIENCE)
    expect(other.page.get_by_role("heading", name="What merging did")).to_be_visible()
    expect(other.text("TIES is <b>here</b>.")).to_be_visible()
    assert other.page.locator("figure").count() == 2
    assert other.page.locator("[data-title^=Share]").count() == 0  # nothing sends a figure anywhere
    widths = other.page.evaluate("[...document.querySelectorAll('.plot')].map(p => p.scrollWidth - p.clientWidth)")
    assert max(widths) <= 0
    other.page.locator(".plot .nsewdrag").first.hover()
    other.page.wait_for_timeout(500)
    assert [request for request in other.requests if not request.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert not other.problems
    blocked = "fetch('https://example.org/').then(() => 'went out', () => 'refused')"
    assert other.page.evaluate(blocked) == "refused"
