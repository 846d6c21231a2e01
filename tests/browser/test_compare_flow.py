"""The Compare page in a real browser: choose B, swap, choose a cell, see images."""

from __future__ import annotations

import re

import contrast
import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


@pytest.mark.full
def test_two_runs_down_to_single_images(app: App, lwptv_run: str) -> None:
    page = app.open(f"/compare?run={lwptv_run}").page
    page.get_by_role("button", name="Runs nearest to A").click()
    page.get_by_test_id("stPopoverBody").get_by_role("button", name="Compare", exact=True).first.click()
    app.settled().charted()
    query = dict(re.findall(r"(run_b|run)=([0-9a-f]{12})", page.url))
    assert set(query) == {"run", "run_b"}

    page.get_by_role("button", name="Swap A and B").click()
    app.wait_for_address(f"run_b={query['run']}")
    app.settled()
    assert f"run={query['run_b']}" in page.url

    images = page.get_by_role("radio", name="images", exact=True)
    images.click()
    app.settled().charted()

    app.click_cell(1, 1)  # both wrong
    app.wait_for_address("right_runs=both+wrong")
    app.settled()
    thumbnails = page.locator(".st-key-thumbnails")
    expect(thumbnails.get_by_role("img").first).to_be_visible(timeout=60_000)
    expect(thumbnails).to_contain_text("A: ")
    expect(page.locator(".st-key-chosen_images")).to_contain_text(re.compile(r"\d+ images?, both wrong"))
    assert not contrast.faint_texts(page)  # names under small pictures, too
