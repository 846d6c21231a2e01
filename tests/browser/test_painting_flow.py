"""Painting on Masks in a real Chromium: cells, blocks, rectangles, undo, Back, reload, the keyboard alone, two tabs."""

from __future__ import annotations

from urllib.parse import parse_qs, urlparse

import pytest
from browser_tab import PATIENCE, App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PLACE = """([xaxis, yaxis, column, row]) => {
  const canvas = [...document.querySelectorAll('.js-plotly-plot')].find(e => e.layout?.meta?.key === 'manual_canvas');
  canvas.scrollIntoView({block: 'center'});
  const layout = canvas._fullLayout, box = canvas.getBoundingClientRect(), x = layout[xaxis], y = layout[yaxis];
  return [box.left + x._offset + x.c2p(column), box.top + y._offset + y.c2p(row)];
}"""
FACTORS = """() => {
  const canvas = [...document.querySelectorAll('.js-plotly-plot')].find(e => e.layout?.meta?.key === 'manual_canvas');
  return canvas && JSON.stringify(Array.from(canvas._fullData[0].z, row => Array.from(row)));
}"""


def place(app: App, column: float, row: float, xaxis: str = "xaxis", yaxis: str = "yaxis") -> tuple[float, float]:
    """Where a point of the canvas is on the screen, after it was scrolled there."""
    return app.steady(PLACE, [xaxis, yaxis, column, row])


def click(app: App, column: float, row: float, xaxis: str = "xaxis", yaxis: str = "yaxis") -> None:
    app.click_at(PLACE, [xaxis, yaxis, column, row])


def drag(app: App, start: tuple[float, float], end: tuple[float, float]) -> None:
    place(app, *start)
    first, last = place(app, *start), place(app, *end)
    app.page.mouse.move(*first)
    app.page.mouse.down()
    app.page.mouse.move(*last, steps=6)
    app.page.mouse.up()


def strokes(app: App, number: int) -> None:
    """Wait until so many strokes can be undone, and the address has followed."""
    expect(app.page.get_by_role("button", name=f"Undo ({number})")).to_be_visible(timeout=PATIENCE)
    app.settled()


def painted(app: App) -> str:
    return parse_qs(urlparse(app.page.url).query).get("painted_factors", [""])[0]


def wait_for_painted(app: App, text: str) -> None:
    app.page.wait_for_function(
        "text => (new URLSearchParams(location.search).get('painted_factors') ?? '') === text",
        arg=text,
        timeout=PATIENCE,
    )
    app.settled()


def test_cells_blocks_rectangles_undo_back_and_reload(app: App, lwptv_run: str) -> None:
    app.open(f"/masks?painting=true&run={lwptv_run}").charted()
    click(app, 8, 1)
    strokes(app, 1)
    cell = "b0/t.*.attn.in_proj_bias/e.digits=0"
    wait_for_painted(app, cell)
    click(app, 20, 0.5, yaxis="yaxis3")  # the name of block 1
    strokes(app, 2)
    wait_for_painted(app, "t.*.attn.in_proj_bias/e.digits=0+b1=0")
    app.page.go_back()
    strokes(app, 1)
    wait_for_painted(app, cell)
    app.page.go_forward()
    strokes(app, 2)
    app.page.get_by_text("Rectangle", exact=True).click()
    app.settled()
    before = app.page.evaluate("location.search")
    drag(app, (0, 2), (2, 3))
    strokes(app, 3)
    app.page.wait_for_function("old => location.search !== old", arg=before, timeout=PATIENCE)
    app.settled()
    with_rectangle, address = app.page.evaluate(FACTORS), painted(app)
    app.page.keyboard.press("Control+z")
    strokes(app, 2)
    app.page.keyboard.press("Control+z")
    strokes(app, 1)
    wait_for_painted(app, cell)
    app.page.keyboard.press("Control+Shift+z")
    strokes(app, 2)
    app.page.keyboard.press("Control+Shift+z")
    strokes(app, 3)
    assert app.page.evaluate(FACTORS) == with_rectangle
    wait_for_painted(app, address)
    app.page.reload()
    app.settled().charted()
    app.page.wait_for_function(f"({FACTORS})() === {with_rectangle!r}", timeout=PATIENCE)


def test_the_keyboard_alone_in_two_tabs(app: App, context: BrowserContext, server: str, lwptv_run: str) -> None:
    address = f"/masks?painting=true&run={lwptv_run}"
    app.open(address).charted()
    other = new_tab(context, server).open(f"{address}&painted_factors=b0%3D0.5").charted()
    page = app.page
    page.get_by_role("combobox", name="Where").focus()
    page.keyboard.type("in blocks")
    page.keyboard.press("Enter")
    which = page.get_by_role("combobox", name="Which")
    expect(which).to_be_visible(timeout=PATIENCE)
    app.settled()
    which.focus()
    page.keyboard.type("block 1")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    button = page.get_by_role("button", name="Paint 0")
    expect(button).to_be_enabled(timeout=PATIENCE)
    app.settled()
    button.focus()
    page.keyboard.press("Enter")
    strokes(app, 1)
    wait_for_painted(app, "b1=0")
    assert painted(other) == "b0=0.5"
    other.page.get_by_role("button", name="Start", exact=True).click()
    strokes(other, 1)
    wait_for_painted(other, "")
    assert painted(app) == "b1=0"
    page.keyboard.press("Control+z")
    wait_for_painted(app, "")
    assert not other.problems and not other.outside()
