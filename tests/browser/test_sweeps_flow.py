"""A sweep from the form to a run, in a real Chromium."""

from __future__ import annotations

import re
from itertools import count

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 120_000  # ms
ATTEMPTS = count()  # a second attempt must not find the sweep of the first one computed
MARK = """(place) => {
  const chart = document.querySelector('.js-plotly-plot'), marks = chart.querySelectorAll('.scatterlayer path.point');
  const box = marks[place].getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}"""


def subject_to(app: App, score: str) -> None:
    """Choose what a point must have enough of."""
    app.page.get_by_role("combobox", name="Subject to").click()
    app.page.get_by_role("option", name=score).first.click()


def test_a_sweep_is_started_paused_resumed_and_opened_as_a_run(app: App) -> None:
    app.open("/sweeps?sweep=new")
    values = app.page.get_by_label(re.compile("^Values of")).first
    values.fill("0, 1.5")
    values.press("Enter")
    expect(app.text("must be a number in")).to_be_visible(timeout=PATIENCE)
    low = next(ATTEMPTS) / 1000
    values.fill(f"{low}:{low + 0.98:.3f}:0.02")  # too many for any machine to compute before the pause
    values.press("Enter")
    expect(app.text("100 points")).to_be_visible(timeout=PATIENCE)
    app.settled()
    app.page.get_by_role("button", name="Start the sweep").click()
    app.wait_for_address("sweep=")
    status = app.page.locator(".st-key-sweep_status")
    status.get_by_role("button", name="Pause").click()
    expect(status).to_contain_text("paused", timeout=PATIENCE)
    expect(app.page.locator(".st-key-jobs")).to_contain_text("paused", timeout=PATIENCE)
    app.settled()
    there = int(re.match(r"\s*(\d+) of 100", status.inner_text()).group(1))  # type: ignore[union-attr]
    assert there < 100  # pausing before the first point is fine, too: a fast machine is soon through
    status.get_by_role("button", name="Resume").click()
    expect(status).to_contain_text("100 of 100 points: complete", timeout=PATIENCE)
    app.settled().charted()
    subject_to(app, "out of domain")
    app.wait_for_address("constraint=")
    least = app.page.get_by_label("At least (%)")
    least.fill("100")
    least.press("Enter")
    expect(app.text("No point has at least 100% out of domain. The nearest is shown.")).to_be_visible(timeout=PATIENCE)
    app.page.reload()
    expect(app.text("No point has at least 100% out of domain. The nearest is shown.")).to_be_visible(timeout=PATIENCE)
    subject_to(app, "nothing")
    app.settled().charted()
    app.click_at(MARK, 40)
    app.wait_for_address("point=")
    chosen = app.page.locator(".st-key-chosen")
    app.settled()
    chosen.get_by_role("button", name="Open as a run").click()
    expect(chosen).to_contain_text("on the reporting half", timeout=PATIENCE)
    chosen.get_by_role("link", name="Open in Scores").click()
    app.settled().charted()
    app.wait_for_address("runs=")
    expect(app.text("this machine")).to_be_visible()
