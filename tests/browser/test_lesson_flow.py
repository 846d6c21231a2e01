"""A bundled lesson by keyboard alone, on the bundled benchmark: a reload in the middle, *Show me*, and the sheet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from app_server import serve
from browser_tab import App, new_tab
from playwright.sync_api import Browser, expect

from merging.base import settings

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 60_000  # ms
FOCUSED = """() => {
  const one = document.activeElement, label = one.closest('label');
  if (!one.matches('a, button, input, textarea')) return ['', false];
  const labelled = (one.getAttribute('aria-labelledby') || '').split(' ').map(id => document.getElementById(id));
  const words = [one.getAttribute('aria-label'), one.innerText, label && label.innerText,
    ...labelled.map(part => part && part.innerText), ...Array.from(one.labels || []).map(part => part.innerText)];
  const style = getComputedStyle(one), around = label ? getComputedStyle(label) : style;
  return [words.filter(Boolean).join(' '), style.outlineStyle !== 'none' || around.outlineStyle !== 'none' ||
    style.boxShadow !== 'none' || getComputedStyle(one.parentElement).boxShadow !== 'none' || one.type === 'range'];
}"""


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app on the bundled benchmark, with an empty store."""
    with serve(settings.BUNDLED_FOLDER, tmp_path_factory.mktemp("lessons")) as url:
        yield url


def tab_to(app: App, name: str) -> None:
    """Press Tab until something with that name has the focus, which can be seen."""
    for _ in range(150):
        app.page.keyboard.press("Tab")
        words, seen = app.page.evaluate(FOCUSED)
        if words and name in words:
            assert seen, f"the focus on {name!r} cannot be seen"
            return
    pytest.fail(f"no Tab reaches {name!r}")


def press(app: App, name: str) -> None:
    tab_to(app, name)
    app.page.keyboard.press("Enter")
    app.settled()


def step(app: App, number: int) -> None:
    expect(app.page.locator(".st-key-lesson_rail")).to_contain_text(f"step {number} of", timeout=PATIENCE)
    app.settled()
    heard = "number => document.documentElement.dataset.lessonStep === String(number)"
    app.page.wait_for_function(heard, arg=number, timeout=PATIENCE)


def turn(app: App, number: int, key: str = ".") -> None:
    app.page.keyboard.press(key)
    step(app, number)


def test_a_lesson_by_keyboard_alone(chromium: Browser, bundled: str, tmp_path: Path) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    app = new_tab(context, bundled).open("/lessons")
    page, rail = app.page, app.page.locator(".st-key-lesson_rail")
    assert not [request for request in app.requests if "PlotlyChart" in request]
    page.locator(".st-key-lesson_card_masks_by_hand a").first.focus()
    page.keyboard.press("Enter")
    step(app, 1)
    guesses(app)
    tasks_and_a_reload(app)
    tab_to(app, "Your answer")
    page.keyboard.type("Biases first, then , and .")  # keys of a text turn no step
    page.keyboard.press("Tab")
    app.settled()
    step(app, 7)
    for number in (8, 9, 10):
        turn(app, number)
    tab_to(app, "It counts tensors")
    page.keyboard.press("Space")
    app.settled()
    expect(rail).to_contain_text("Right.", timeout=PATIENCE)
    tab_to(app, "My sheet")
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.keyboard.press("Enter")
    sheet = tmp_path / "sheet.html"
    waiting.value.save_as(sheet)
    assert not app.problems and not app.outside()
    context.close()
    restored(chromium, bundled, sheet)


def guesses(app: App) -> None:
    """Steps 1 to 3: marked cells, a text, a number."""
    page, rail = app.page, app.page.locator(".st-key-lesson_rail")
    tab_to(app, "Click up to")
    page.keyboard.type("conv1")
    page.wait_for_timeout(500)
    page.keyboard.press("Enter")
    app.settled()
    page.keyboard.press("Escape")
    press(app, "Lock in")
    press(app, "Reveal")
    expect(rail).to_contain_text("Measured:", timeout=PATIENCE)
    turn(app, 2, "PageDown")
    turn(app, 1, "PageUp")
    turn(app, 2)
    turn(app, 3)
    tab_to(app, "Your guess")
    page.keyboard.press("ArrowRight")
    app.settled()
    press(app, "Lock in")
    press(app, "Reveal")
    expect(rail).to_contain_text("Measured:", timeout=PATIENCE)


def tasks_and_a_reload(app: App) -> None:
    """Steps 4 to 7: two tasks that *Show me* fulfils, and a reload between them."""
    rail = app.page.locator(".st-key-lesson_rail")
    turn(app, 4)
    press(app, "Show me")
    expect(rail).to_contain_text("Done", timeout=PATIENCE)
    turn(app, 5)
    app.page.reload()
    step(app, 5)
    turn(app, 6)
    press(app, "Show me")
    expect(rail).to_contain_text("Done", timeout=PATIENCE)
    turn(app, 7)


def restored(chromium: Browser, url: str, sheet: Path) -> None:
    """The sheet opens from disk without a request, and another session goes on from it."""
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    app = new_tab(context, url)
    app.page.goto(sheet.as_uri())
    expect(app.text("Biases first, then , and .")).to_be_visible()
    expect(app.text("Measured")).to_be_visible()
    assert [request for request in app.requests if not request.startswith(("data:", "blob:"))] == [sheet.as_uri()]
    app.open("/lessons")
    app.page.locator("input[type=file]").set_input_files(sheet)
    expect(app.text("Restored “Which layers may be left alone?”")).to_be_visible(timeout=PATIENCE)
    app.settled()
    app.page.locator(".st-key-lesson_card_masks_by_hand a").first.click()
    step(app, 10)  # all are done
    expect(app.page.locator(".st-key-lesson_rail")).to_contain_text("Right.", timeout=PATIENCE)
    turn(app, 9, ",")
    assert not app.problems
    context.close()


PRESENTED = """() => {
  const words = document.querySelector('.st-key-presented_words'), box = words.getBoundingClientRect();
  const last = [...words.querySelectorAll('p')].at(-1).getBoundingClientRect();
  const chart = document.querySelector('.st-key-presented .js-plotly-plot').getBoundingClientRect();
  return [words.scrollHeight - words.clientHeight, box.bottom - last.bottom, chart.top - box.bottom,
    innerHeight - chart.bottom];
}"""


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768)], ids=str)
def test_a_presented_step_cuts_no_word(chromium: Browser, bundled: str, size: tuple[int, int]) -> None:
    context = chromium.new_context(viewport={"width": size[0], "height": size[1]})
    app = new_tab(context, bundled)
    for step_of, last in (
        ("/conflicts?lesson=why_merging_hurts&step=1&progress=1", "Each expert was only mixed with the others."),
        ("/drift?lesson=drift_and_lot&step=1", "as after training."),  # the longest text of all
    ):
        app.open(f"{step_of}&presentation=true").charted()
        expect(app.page.locator(".st-key-presented_words")).to_contain_text(last, timeout=PATIENCE)
        app.page.wait_for_function(f"() => ({PRESENTED})().every(room => room >= 0)", timeout=PATIENCE)
    assert not app.problems
    context.close()
