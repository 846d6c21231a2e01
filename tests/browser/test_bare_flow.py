"""Bare views in frames on a page that lies in a file: one chart each, legible, without scroll bars, independent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser_tab import PATIENCE, App
from playwright.sync_api import Frame, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PAGE = """<!doctype html><title>Course</title><style>iframe {{ border: 0; display: block }}</style>
<script>heights = []; addEventListener("message", event => event.data.source &&
heights.push([event.data.source, event.data.height,
[...document.querySelectorAll("iframe")].findIndex(frame => frame.contentWindow === event.source)]))</script>
<iframe width="960" height="540" src="{url}/masks?frame=1&single_chart=saliency_matrix&controls=ratio"></iframe>
<iframe width="960" height="540"
  src="{url}/masks?frame=1&single_chart=saliency_matrix&controls=ratio&background=clear"></iframe>
"""
SMALL = """() => [...document.querySelectorAll('[data-testid=stApp] *')].filter(e => [...e.childNodes].some(
    n => n.nodeType === 3 && n.textContent.trim()) && e.checkVisibility({visibilityProperty: true}))
  .map(e => [parseFloat(getComputedStyle(e).fontSize), e.textContent])
  .filter(([size, text]) => size < 14 && !/^\\s*$/.test(text))"""
SCROLLING = """() => [...document.querySelectorAll('*')].filter(e => e.checkVisibility({visibilityProperty: true})
  && ['auto', 'scroll'].includes(getComputedStyle(e).overflowY) && e.scrollHeight > e.clientHeight + 1)
  .map(e => e.className)"""
GROUND = "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector("
GROUND += "'[data-testid=stApp]')).backgroundColor, document.querySelector('.js-plotly-plot').layout.paper_bgcolor]"
CLEAR = "rgba(0, 0, 0, 0)"


def drawn(frame: Frame) -> Frame:
    frame.wait_for_selector(".js-plotly-plot .main-svg", timeout=PATIENCE)
    frame.wait_for_function(  # the height of the frame is known to the server
        "(h => Math.abs(h - 418 * 540 / 463) < 90)(document.querySelector('.js-plotly-plot').clientHeight)",
        timeout=PATIENCE,
    )
    frame.page.wait_for_timeout(1500)
    return frame


def test_two_bare_views_on_one_page(app: App, tmp_path: Path) -> None:
    course = tmp_path / "course.html"
    course.write_text(PAGE.format(url=app.url), "utf-8")
    app.page.set_viewport_size({"width": 960, "height": 1100})
    app.page.goto(course.as_uri())
    app.requests.clear()  # the page itself
    first, second = (drawn(frame) for frame in app.page.main_frame.child_frames)
    for frame in (first, second):
        assert frame.locator(".js-plotly-plot").count() == 1
        for outside in ("stSidebar", "stHeader", "stHeading"):
            assert frame.get_by_test_id(outside).locator("visible=true").count() == 0
        assert frame.evaluate(SMALL) == [] and frame.evaluate(SCROLLING) == []
        expect(frame.get_by_text("Mergescope 0.").locator("visible=true")).to_have_count(1)
        bottom = frame.evaluate(
            "() => document.querySelector('[data-testid=stCaptionContainer] p').getBoundingClientRect().bottom"
        )
        assert bottom <= 540
    assert first.evaluate(GROUND)[1] != CLEAR and second.evaluate(GROUND) == [CLEAR, CLEAR, "rgba(0,0,0,0)"]
    assert {tuple(told) for told in app.page.evaluate("heights")} == {("mergescope", 540, 0), ("mergescope", 540, 1)}

    sliders = [frame.locator("input[type=range]").first for frame in (first, second)]
    before = sliders[1].input_value()
    sliders[0].focus()
    for _ in range(5):
        app.page.keyboard.press("ArrowLeft")
    first.wait_for_function("location.href.includes('ratio=')", timeout=PATIENCE)
    app.page.wait_for_timeout(1500)
    assert sliders[0].input_value() != before == sliders[1].input_value()
    assert "ratio=0" not in second.url


def test_a_frame_without_a_ground_is_light_on_a_dark_machine(app: App) -> None:
    app.page.emulate_media(color_scheme="dark")
    caption = ".st-key-presented [data-testid=stCaptionContainer] p"  # the first of the page may be that of a job
    ink = "() => [document.querySelector('.js-plotly-plot')._fullLayout.font.color, getComputedStyle(document.body)"
    ink += f".colorScheme, getComputedStyle(document.querySelector('{caption}')).color]"
    app.open("/scores?frame=1&background=clear").charted()
    light = ["#1F2933", "light", "rgb(63, 74, 87)"]
    app.page.wait_for_function(f"() => JSON.stringify(({ink})()) === '{json.dumps(light, separators=(',', ':'))}'")
    app.open("/scores?frame=1").charted()
    app.page.wait_for_function(f"() => ({ink})()[0] === '#E3E8ED'")
    assert app.page.evaluate(ink)[1] != "light"


def test_a_bare_view_without_its_chart_says_so(app: App) -> None:
    app.open("/scores?frame=1&single_chart=nothing")
    expect(app.text("This view has no chart called “nothing”.")).to_be_visible()
    expect(app.page.get_by_test_id("stHeading").first).not_to_be_visible()


def test_link_offers_the_chart_alone_a_frame_with_a_still_and_a_code(app: App, tmp_path: Path) -> None:
    app.open("/scores").charted()
    app.page.get_by_test_id("stPopoverButton").filter(has_text="Link").first.click()
    offered = app.page.locator("[data-testid=stPopoverBody]")
    expect(offered.locator("img")).to_be_visible(timeout=PATIENCE)  # the QR code comes last
    expect(offered.get_by_test_id("stCode")).to_have_count(4)
    address, alone, frame, _ = offered.get_by_test_id("stCode").all_inner_texts()
    assert address.startswith(f"{app.page.url}?runs="), "a link names the runs that the page opened on"
    assert "frame=1&single_chart=id_ood_scatter" in alone
    assert f'src="{alone.strip()}"' in frame.replace("&amp;", "&")
    app.page.get_by_role("button", name="Copy with a still").click()
    expect(app.text("Copied.")).to_be_visible(timeout=PATIENCE)
    course = tmp_path / "course.html"
    course.write_text("<!doctype html>" + app.page.evaluate("navigator.clipboard.readText()"), "utf-8")
    page = app.page
    page.goto(course.as_uri())
    assert page.locator("img").is_visible() and page.locator("img").evaluate("e => e.naturalWidth") > 300
    expect(page.locator("img")).to_be_hidden(timeout=PATIENCE)  # the view has said that it is there
    assert page.locator("iframe").evaluate("e => getComputedStyle(e).opacity") == "1"
    app.requests.clear()
