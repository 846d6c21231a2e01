"""A class on a lesson, in two browsers: a lecturer begins it, a student guesses, and the presented step counts that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import snapshot_lesson
from app_server import serve
from browser_tab import PATIENCE, App, new_tab
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.browser


@pytest.fixture
def url(library: Path, tmp_path: Path) -> Iterator[str]:
    """A server with one small lesson."""
    with serve(library, tmp_path, {"MERGESCOPE_LESSONS": str(snapshot_lesson.write(tmp_path / "lessons"))}) as url:
        yield url


def test_a_class_goes_through_a_lesson(chromium: Browser, url: str) -> None:
    contexts = [chromium.new_context(viewport={"width": 1400, "height": 1000}) for _ in range(2)]
    lecturer, student = (new_tab(context, url) for context in contexts)
    lecturer.open("/lessons").page.get_by_test_id("stPopoverButton").filter(has_text="Teach a class").click()
    lecturer.page.get_by_role("button", name="Begin a class").click()
    lecturer.wait_for_address("class=")
    code = re.findall(r"class=(\w+)", lecturer.page.url)[0]

    page, rail = student.open(f"/lessons?class={code}").page, student.page.locator(".st-key-lesson_rail")
    expect(student.text(code)).to_be_visible()
    page.locator(f".st-key-lesson_card_{snapshot_lesson.KEY} a").first.click()
    expect(rail).to_contain_text("step 1 of", timeout=PATIENCE)
    student.settled()
    rail.get_by_role("slider").first.press("ArrowRight")
    student.settled()
    rail.get_by_role("button", name="Lock in").click()
    expect(rail).to_contain_text("Your guess:", timeout=PATIENCE)
    student.settled()
    assert "Measured:" not in rail.inner_text()

    lecturer.open(f"/scores?lesson={snapshot_lesson.KEY}&step=1&class={code}&presentation=true").charted()
    expect(lecturer.text("n = 1")).to_be_visible()

    rail.get_by_role("button", name="Reveal").click()
    expect(rail).to_contain_text("Measured:", timeout=PATIENCE)
    student.settled()
    turn(student, 2, "PageDown")
    rail.get_by_role("button", name="Show me").click()
    expect(rail).to_contain_text("Done", timeout=PATIENCE)
    page.reload()
    student.settled()
    turn(student, 3)
    page.get_by_text("The right one.").click()
    expect(rail).to_contain_text("Yes, that one.", timeout=PATIENCE)
    assert not lecturer.problems + student.problems + student.outside()
    for context in contexts:
        context.close()


def turn(app: App, number: int, key: str = ".") -> None:
    """Turn to the next step by a key, once the page hears keys."""
    heard = "number => document.documentElement.dataset.lessonStep === String(number)"
    app.page.wait_for_function(heard, arg=number - 1, timeout=PATIENCE)
    app.page.keyboard.press(key)
    expect(app.page.locator(".st-key-lesson_rail")).to_contain_text(f"step {number} of", timeout=PATIENCE)
    app.settled()
