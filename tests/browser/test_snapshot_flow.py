"""A snapshot opened from disk with the network off: a lesson by keyboard alone, a slider, a check, a reload."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import snapshot_lesson
from browser_tab import ROOT
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser
SHAPES = "[...document.querySelectorAll('#{} .bars path')].map(path => path.getAttribute('d')).join()"


@pytest.fixture(scope="module")
def snapshot(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a snapshot of the small lesson, as the command writes it."""
    folder = tmp_path_factory.mktemp("snapshot")
    (folder / "links.txt").write_text("drift?drift_view=two+extreme+cases  slider=shared_directions\n", "utf-8")
    own = {
        "MERGESCOPE_BENCHMARK": str(library),
        "MERGESCOPE_STORE": str(folder / "store"),
        "MERGESCOPE_LESSONS": str(snapshot_lesson.write(folder / "lessons")),
    }
    call = ["--lessons", snapshot_lesson.KEY, "--views", str(folder / "links.txt"), "--out", str(folder / "site")]
    command = [sys.executable, "-m", "app.snapshot", *call, "--date", "2026-11-23"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def offline(chromium: Browser, snapshot: Path) -> Iterator[Page]:
    """A page without a network; nothing may go wrong in it, and nothing outside the folder may be asked for."""
    context = chromium.new_context(viewport={"width": 1300, "height": 900}, offline=True)
    page = context.new_page()
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield page
    inside = (snapshot.as_uri(), "data:", "blob:")
    assert [url for url in asked if not url.startswith(inside)] == [] and problems == []
    context.close()


def bars(page: Page, figure: str) -> str:
    """The shapes of the bars of a figure."""
    page.wait_for_function(f"document.querySelectorAll('#{figure} .bars path').length > 3")
    return str(
        page.evaluate(f"[...document.querySelectorAll('#{figure} .bars path')].map(p => p.getAttribute('d')).join()")
    )


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element is focused."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    pytest.fail(f"Tab does not reach {selector}")


@pytest.mark.full
def test_a_lesson_by_keyboard_with_the_network_off(offline: Page, snapshot: Path) -> None:
    page = offline
    page.goto((snapshot / "index.html").as_uri())
    tab_to(page, ".cards a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="A & B {{ 7 * 7 }}")).to_be_visible()

    expect(page.locator("#view-1")).to_be_hidden()  # the picture waits for the guess
    expect(page.locator("#step-1 .truth")).to_be_hidden()
    expect(page.locator("#step-1 form button")).to_be_enabled()  # the page's script has come
    tab_to(page, "#step-1 input[type=range]")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#step-1 .yours")).to_have_text("Your guess: 0 %")
    expect(page.locator("#step-1 .truth .measured b")).to_contain_text("n = ")
    page.wait_for_function("document.querySelectorAll('#view-1 .plot .main-svg').length > 0")

    page.locator("body").press("PageDown")
    expect(page.locator("#step-2")).to_be_visible()
    first = bars(page, "view-2")
    tab_to(page, "#view-2 .slider input")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#step-2 [data-fulfils]")).to_contain_text("Not yet.")
    page.keyboard.press("End")
    expect(page.locator("#view-2 .slider output")).to_have_text("4")
    expect(page.locator("#step-2 [data-fulfils]")).to_have_text("That is it.")
    page.wait_for_function(
        f"{first!r} !== [...document.querySelectorAll('#view-2 .bars path')].map(p => p.getAttribute('d')).join()"
    )
    tab_to(page, "#step-2 .show")
    page.keyboard.press("Enter")
    expect(page.locator("#shown-2")).to_be_visible()
    assert page.locator("#step-2 math").count() == 1

    page.locator("body").press(".")
    tab_to(page, "#step-3 .answer[data-right=no]")
    page.keyboard.press("Enter")
    expect(page.locator("#step-3 .reply:visible")).to_have_text("No. It is the other one.")

    page.locator("body").press(".")
    page.locator("#step-4 textarea").fill("Because.")
    page.reload()  # it goes on where it was
    expect(page.locator("#step-4 textarea")).to_have_value("Because.")
    for _ in range(3):
        page.locator("body").press(",")
    expect(page.locator("#step-1 .yours")).to_have_text("Your guess: 0 %")
    page.goto((snapshot / "index.html").as_uri())
    expect(page.locator(".progress")).to_have_text("4 of 6 done.")


@pytest.mark.full
def test_cells_are_marked_on_a_map_or_by_their_names(offline: Page, snapshot: Path) -> None:
    page = offline
    page.goto((snapshot / "small.html").as_uri())
    for _ in range(4):
        page.locator("body").press(".")
    expect(page.locator("#cells-5 .plot .main-svg").first).to_be_visible()
    expect(page.locator("#view-5")).to_be_hidden()
    cell = page.locator("#cells-5 .bars path")
    assert cell.count() > 10
    field = page.locator("#step-5 textarea")
    for _ in range(20):  # Plotly takes a click for one only when it has seen the pointer before
        box = cell.nth(7).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
        page.wait_for_timeout(250)
        page.mouse.down()
        page.mouse.up()
        if field.input_value():
            break
    named = field.input_value()
    assert ", " in named and "\n" not in named
    expect(page.locator("#cells-5 .chosen")).to_have_text("1 of 2 marked.")
    first = field.get_attribute("placeholder")
    field.fill(f"{named}\n{first}")
    expect(page.locator("#cells-5 .chosen")).to_have_text("2 of 2 marked.")
    expect(page.locator("#cells-5 .plot .scatterlayer .point")).to_have_count(2)
    page.locator("#step-5 form button").click()
    expect(page.locator("#step-5 .yours")).to_have_text(f"Your guess: {named}; {first}")
    expect(page.locator("#view-5")).to_be_visible()
    expect(page.locator("#cells-5 .alt")).to_contain_text("the measured ones")
    expect(page.locator("#cells-5 .plot .scatterlayer .point")).to_have_count(2)
    page.reload()
    expect(page.locator("#step-5 .yours")).to_have_text(f"Your guess: {named}; {first}")
    expect(page.locator("#cells-5 .plot .scatterlayer .point")).to_have_count(2)


@pytest.mark.full
def test_a_view_with_a_slider_and_marks_to_choose(offline: Page, snapshot: Path) -> None:
    offline.goto((snapshot / "views.html").as_uri())
    offline.wait_for_function("document.querySelectorAll('#view-1 .plot .main-svg').length > 0")
    before = offline.locator("#view-1 .alt").inner_text()
    offline.locator("#view-1 .slider input").fill("4")
    expect(offline.locator("#view-1 .alt")).not_to_have_text(before)
    offline.locator("#view-1 .plot").scroll_into_view_if_needed()
    for _ in range(20):  # Plotly takes a click for one only when it has seen the pointer before
        box = offline.locator("#view-1 .bars path").first.bounding_box()
        assert box is not None
        offline.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
        offline.wait_for_timeout(250)
        offline.mouse.down()
        offline.mouse.up()
        if offline.locator("#view-1 .chosen").is_visible():
            break
    expect(offline.locator("#view-1 .chosen")).to_contain_text("direction 1; task")
