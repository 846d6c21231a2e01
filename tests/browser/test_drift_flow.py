"""The Drift page in a real browser: a click on a cell moves the focus of every picture, and the link restores it."""

from __future__ import annotations

import re

import pytest
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = pytest.mark.browser
PATIENCE = 60_000  # ms
ONE_LAYER = "How far does this layer drift on each task"


def test_a_cell_becomes_the_focus(app: App, context: BrowserContext, server: str) -> None:
    app.open("/drift").charted()
    app.page.get_by_role("radio", name="layer by layer").click()
    app.wait_for_address("view=layer")
    app.settled().charted()
    app.page.wait_for_selector(".heatmaplayer image")
    expect(app.text(ONE_LAYER)).to_have_count(0)
    app.click_cell(2, 5)
    app.wait_for_address("expert=flags")
    app.wait_for_address("tensor=visual.")
    expect(app.text(ONE_LAYER)).to_be_visible(timeout=PATIENCE)
    app.settled()
    first = app.page.url
    app.click_cell(0, 7)  # another cell: the focus moves
    app.wait_for_address("expert=circles")
    app.settled()
    assert app.page.url.split("tensor=")[1] != first.split("tensor=")[1]

    other = new_tab(context, server).open(first.removeprefix(server)).charted()
    expect(other.text(ONE_LAYER)).to_be_visible(timeout=PATIENCE)
    expect(other.page.get_by_role("combobox", name="Task")).to_have_value(re.compile("flags", re.IGNORECASE))
    assert not other.problems
    assert not other.outside()
