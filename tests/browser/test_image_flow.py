"""The Image page in a real browser: from two runs to one image, its depth, restoring, the report; and own pictures."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from browser_tab import VIEW_CHART, App, new_tab
from PIL import Image
from playwright.sync_api import BrowserContext, FilePayload, Page, expect

from merging.study.runs.run_store import Store

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: jobs, and models that are merged anew, each in a process of its own
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def png(size: tuple[int, int], mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 1).save(out, "PNG")
    return out.getvalue()


def said(page: Page) -> str:
    """The sentence on the first run, once all is known."""
    expect(page.get_by_text("Reading the image.")).to_have_count(0, timeout=PATIENCE)
    return page.get_by_text(re.compile("^Task Arithmetic w/ LwPTV says “")).first.inner_text()


def alt(page: Page) -> str:
    """The alternative text of the first chart that is not the map of the network."""
    return str(page.evaluate(f"({VIEW_CHART}).layout.meta.alt"))


def test_from_two_runs_to_an_image_and_into_the_report(
    app: App, context: BrowserContext, server: str, library: Path, lwptv_run: str, tmp_path: Path
) -> None:
    ties = next(run.id for run in Store(library, libraries=(library / "runs",)).list_runs() if run.title == "Ties")
    page = app.open(f"/compare?run={lwptv_run}&run_b={ties}&compare_view=images&right_runs=only+B+right").page
    measure = page.get_by_role("button", name="Measure", exact=True)
    thumbnails = page.locator(".st-key-thumbnails")
    expect(measure.or_(thumbnails).first).to_be_visible(timeout=PATIENCE)
    if measure.count():
        measure.click()
    expect(thumbnails.get_by_role("img").first).to_be_visible(timeout=PATIENCE)
    app.settled()
    thumbnails.get_by_role("button", name="Choose").first.click()
    app.wait_for_address("image=")
    image = re.findall(r"image=([^&]+)", page.url)[0]

    app.open(f"/image?image={image}&runs={lwptv_run},{ties}").charted()
    sentence = said(page)
    assert "the right" in sentence and "It parts from the answer of" in sentence
    app.settled()
    assert alt(page).startswith(sentence[:60]) and "from depth" in alt(page)

    page.get_by_role("radio", name="restore tokens", exact=True).click()
    app.settled()
    expect(page.get_by_role("heading", name="Which tokens, put in from the reference")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Add to report").first.click()
    expect(page.get_by_role("button", name="In the report").first).to_be_visible(timeout=PATIENCE)
    page.get_by_role("radio", name="occlude patches", exact=True).click()
    app.settled()
    page.get_by_role("button", name="Add to report").first.click()  # with the picture under the cells
    expect(page.get_by_role("button", name="In the report").first).to_be_visible(timeout=PATIENCE)

    page.get_by_role("link", name="Report", exact=True).first.click()
    app.settled()
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.get_by_role("button", name="Download the report").click()
    file = tmp_path / "report.html"
    waiting.value.save_as(file)
    other = new_tab(context, server)
    other.page.goto(file.as_uri())
    other.page.wait_for_function("document.querySelectorAll('.plot .main-svg').length >= 2", timeout=PATIENCE)
    expect(other.text(sentence[:50])).to_be_visible()
    assert other.page.locator(".plot image").count() > 0
    assert not other.problems
    assert [request for request in other.requests if not request.startswith(("data:", "blob:"))] == [file.as_uri()]


def test_own_pictures_are_read_and_others_refused_in_words(app: App) -> None:
    page = app.open("/image?image=letters:reporting:1").page
    refused = {
        "drawing.svg": (SVG, "an SVG drawing; save it as PNG"),
        "large.png": (png((8000, 5000), "1"), "pixels"),
        "both.png": (png((64, 64)) + b"PK\x03\x04" + b"x" * 200, "other data after the picture"),
    }
    page.get_by_role("button", name="Your picture").click()
    place = page.locator("[data-testid=stFileUploader] input[type=file]")
    for name, (content, words) in refused.items():
        place.set_input_files(FilePayload(name=name, mimeType="image/png", buffer=content))
        alert = page.get_by_role("alert").filter(has_text=name.replace("_", " "))
        expect(alert).to_contain_text(words, timeout=PATIENCE)
        app.settled()
    place.set_input_files(FilePayload(name="mine.png", mimeType="image/png", buffer=png((64, 48))))
    expect(page.get_by_role("img", name="Your original picture")).to_be_visible(timeout=PATIENCE)
    app.settled().charted()
    expect(page.get_by_text("Reading the image.")).to_have_count(0, timeout=PATIENCE)
    assert "own" not in page.url
    page.get_by_role("button", name="Close your picture").click()
    expect(page.get_by_text("letters:reporting:1: one of")).to_be_visible(timeout=PATIENCE)
