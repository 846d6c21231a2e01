"""A merge that learns, in a real Chromium: started, watched, paused, resumed, and its coefficients opened."""

from __future__ import annotations

import re

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE, LEARNING_PATIENCE = 120_000, 400_000  # ms; all steps take 45 s where nothing else computes
CHAIN = "lwptv;adamerging:steps=500,batch=8,shrink=0.5"


def test_a_merge_that_learns_is_watched_paused_resumed_and_opened(app: App) -> None:
    app.open(f"/merge?chain={CHAIN}")
    app.page.get_by_role("button", name="Run", exact=True).click()
    jobs = app.page.locator(".st-key-jobs")
    expect(jobs).to_contain_text(re.compile(r"step \d+ of 500 · entropy \d"), timeout=PATIENCE)
    jobs.get_by_role("button", name="Pause").click()
    expect(jobs).to_contain_text("paused", timeout=PATIENCE)
    app.settled()
    app.page.get_by_role("link", name="Learning", exact=True).click()
    app.settled()
    jobs.get_by_role("button", name="Resume").first.click()  # an earlier flow may have left a paused job
    watched = app.page.locator("[class*='st-key-learning_job_']").first
    expect(watched).to_contain_text(re.compile(r"step \d+ of 500"), timeout=PATIENCE)
    expect(watched.locator(".js-plotly-plot").first).to_be_visible(timeout=PATIENCE)
    expect(app.text("In which layers are learned coefficients large, and in which small?")).to_be_visible(
        timeout=PATIENCE
    )
    expect(watched).to_have_count(0, timeout=LEARNING_PATIENCE)
    app.settled().charted()
    slider = app.page.get_by_role("slider", name="Step of learning")
    expect(slider).to_have_attribute("aria-valuetext", "merged", timeout=PATIENCE)
    slider.focus()
    app.page.keyboard.press("ArrowLeft")
    app.wait_for_address("learning_step=500")
