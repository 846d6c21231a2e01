"""The app on a Space, in a frame: the Space's own page shows it, a page that is not allowed does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_tab import PATIENCE
from playwright.sync_api import BrowserContext, Page, expect
from space import serve_space

pytestmark = [pytest.mark.browser, pytest.mark.full]


def open_page(context: BrowserContext, address: str, framed: str) -> tuple[Page, list[str]]:
    """A page at an address that shows another one in a frame, and what the browser says of it."""
    page, said = context.new_page(), []
    html = f'<!doctype html><title>A page</title><iframe src="{framed}" width="1300" height="900"></iframe>'
    page.on("console", lambda message: said.append(message.text))
    page.route(f"{address}**", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(address)
    return page, said


def test_only_pages_that_are_allowed_show_the_app_in_a_frame(context: BrowserContext, tmp_path: Path) -> None:
    context.grant_permissions(["local-network-access"])  # a page of the web may not frame this machine otherwise
    with serve_space(tmp_path) as url:
        allowed, _ = open_page(context, "https://huggingface.co/spaces/you/mergescope", url)
        title = allowed.frame_locator("iframe").get_by_role("heading", name="Mergescope")
        expect(title).to_be_visible(timeout=PATIENCE)

        other, said = open_page(context, "https://elsewhere.example/", url)
        expect(other.frame_locator("iframe").locator("body")).to_contain_text("refused to connect", timeout=PATIENCE)
        assert any("frame-ancestors" in text for text in said)
