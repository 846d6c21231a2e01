"""The Features page in a real browser: extract features in the background, draw a lasso, see the images under it."""

from __future__ import annotations

import re

import pytest
from browser_tab import App
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
MEASURE = re.compile("^Measure($|, with)")  # features alone, or with one map of all
PATIENCE = 180_000  # ms: one job a model, each a process of its own
PANEL = """() => {
  const chart = document.querySelector('.js-plotly-plot'), layout = chart._fullLayout;
  const box = chart.getBoundingClientRect(), x = layout.xaxis, y = layout.yaxis;
  return [box.left + x._offset, box.top + y._offset, x._length, y._length];
}"""


FILM = ".st-key-film"
# The share, the number and the width of the visible pictures, each time that one of them changes.
PLAYED = f"""async milliseconds => {{
  const seen = [], start = performance.now();
  while (performance.now() - start < milliseconds) {{
    const visible = [...document.querySelectorAll('{FILM} > *')].filter(e => getComputedStyle(e).opacity > 0);
    const share = visible[0]?.querySelector('.annotation-text')?.textContent.match(/(\\d+%) of the merge/)?.[1] ?? '';
    const width = visible[0]?.getBoundingClientRect().width ?? 0;
    if (share !== seen.at(-1)?.[0] || visible.length !== seen.at(-1)?.[1]) seen.push([share, visible.length, width]);
    await new Promise(requestAnimationFrame);
  }}
  return seen;
}}"""


def draw_lasso(app: App) -> None:
    """Draw a lasso around nearly all of the first panel."""
    left, top, width, height = app.page.evaluate(PANEL)
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.04)]
    places = [(left + x * width, top + y * height) for x, y in corners]
    app.page.mouse.move(*places[0])
    app.page.mouse.down()
    for place in places[1:]:
        app.page.mouse.move(*place, steps=6)
    app.page.mouse.up()
    app.settled()


def test_a_lasso_shows_the_images_under_it(app: App) -> None:
    page = app.open("/features").page
    page.get_by_role("button", name=MEASURE).click(timeout=PATIENCE)
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=PATIENCE)
    expect(page.locator(".st-key-missing_features")).to_have_count(0, timeout=PATIENCE)
    app.settled().charted()

    draw_lasso(app)
    thumbnails = page.locator(".st-key-thumbnails")
    expect(thumbnails.get_by_role("img").first).to_be_visible(timeout=60_000)
    expect(thumbnails.get_by_role("img")).to_have_count(30, timeout=60_000)  # of 40 images
    expect(thumbnails).to_contain_text("before:")
    expect(page.locator(".st-key-circled")).to_contain_text(re.compile(r"(3\d|40) images chosen"))

    page.get_by_role("button", name="Clear", exact=True).click()
    app.settled()
    expect(thumbnails).to_have_count(0, timeout=60_000)


def test_the_way_of_a_merge_is_played_without_a_gap(app: App, lwptv_run: str) -> None:
    page = app.open(f"/features?runs={lwptv_run}&map=along+the+merge").page
    for key in ("features", "merge_path"):
        missing = page.locator(f".st-key-missing_{key}")
        if missing.count():
            missing.get_by_role("button", name=MEASURE).click(timeout=PATIENCE)
            expect(missing).to_have_count(0, timeout=PATIENCE)
            app.settled()
    app.charted()
    play = page.get_by_test_id("stCheckbox").get_by_text("Play")
    play.click()
    page.wait_for_function(f"document.querySelectorAll('{FILM} .main-svg .infolayer').length >= 7", timeout=PATIENCE)
    slider = page.get_by_role("slider")
    expect(slider).to_have_count(0, timeout=PATIENCE)
    page.wait_for_timeout(1500)
    seen = page.evaluate(PLAYED, 10_000)
    shares = [share for share, _, _ in seen]
    assert all(visible == 1 for _, visible, _ in seen)  # never nothing, and never two
    assert min(width for _, _, width in seen) > 300
    way = ["0%", "17%", "33%", "50%", "67%", "83%", "100%"]
    first = way.index(shares[0])
    assert shares[:7] == [*way[first:], *way[:first]] and len(shares) >= 8

    play.click()
    app.settled().charted()
    slider.focus()
    slider.press("ArrowLeft")
    app.wait_for_address("path_step=83%25")
    app.settled().charted()
    draw_lasso(app)
    expect(page.locator(".st-key-thumbnails").get_by_role("img").first).to_be_visible(timeout=60_000)
    expect(page.locator(".st-key-circled")).to_contain_text("83% of the merge")
    page.get_by_role("button", name="Clear", exact=True).click()
    app.settled()
