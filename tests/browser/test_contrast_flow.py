"""Every text of every page can be read, and what the keyboard has focused can be seen."""

from __future__ import annotations

from typing import Literal

import contrast
import pytest
from browser_tab import App

pytestmark = [pytest.mark.browser, pytest.mark.full]
PAGES = (
    "", "merge", "mix", "masks", "conflicts", "drift", "features", "image", "learning", "scores", "sweeps", "compare",
    "report", "lessons", "methods", "methods?search=nothing", "models",
)  # fmt: skip
STOPS = 24  # of the Tab key: the menu, and the first links of Home


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_every_text_and_the_focus_can_be_seen(app: App, ground: Literal["light", "dark"]) -> None:
    app.page.emulate_media(color_scheme=ground)
    faint = {path: contrast.faint_texts(app.open(f"/{path}").page) for path in PAGES}
    assert not {path: texts for path, texts in faint.items() if texts}

    page = app.open("/").page
    shown = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert shown == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 27)"}[ground]
    stops = []
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        stops.append(contrast.focused(page))
    assert len({name for name, _ in stops}) > STOPS // 2
    assert not [(name, ratio) for name, ratio in stops if ratio < contrast.FOCUS]
