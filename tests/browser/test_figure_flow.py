"""A click saves a chart in four formats; each file is whole, and says in words what it shows and where it is from."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 120_000  # ms
AXIS = "In-domain accuracy, mean over 4 tasks (%)"
SOURCE, CAPTION = "Mergescope 0.", "H-score is the harmonic mean"


def saved(app: App, button: str, folder: Path) -> Path:
    """The file that a button of the open menu saves."""
    with app.page.expect_download(timeout=PATIENCE) as waiting:
        app.page.get_by_role("button", name=button, exact=True).locator("visible=true").last.click()
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    assert file.name == f"scores_in_out.{button.lower()}"
    return file


def words_of_svg(file: Path) -> str:
    """All text of a picture."""
    return " ".join("".join(element.itertext()) for element in ElementTree.parse(file).iter() if "text" in element.tag)


def words_of_pdf(content: bytes) -> str:
    """All text of a page, by the letters that the file names for each glyph."""
    packed = re.findall(rb"/FlateDecode.*?>>\nstream\n(.*?)\nendstream", content, re.DOTALL)
    streams = [zlib.decompress(one) for one in packed]
    pairs = [pair for one in streams for pair in re.findall(rb"<([0-9a-f]{4})><([0-9a-f]{4})>", one)]
    letters = {code: chr(int(letter, 16)) for code, letter in pairs}
    texts = [text for one in streams for text in re.findall(rb"<([0-9a-f]+)> Tj", one)]
    return " ".join("".join(letters[code] for code in re.findall(rb"....", text)) for text in texts)


def test_a_chart_is_saved_in_four_formats(
    app: App, context: BrowserContext, server: str, lwptv_run: str, tmp_path: Path
) -> None:
    app.open(f"/scores?runs={lwptv_run}").charted()
    page = app.page
    page.get_by_role("button", name="Figure").first.click()

    words = words_of_svg(saved(app, "SVG", tmp_path))
    assert AXIS in words and SOURCE in words and CAPTION in words
    drawing = (tmp_path / "scores_in_out.svg").read_text("utf-8")
    assert "Source Sans" not in drawing  # margins are those of a font that other machines have

    assert not [request for request in app.requests if "vendor" in request]  # its program is fetched when asked for
    content = saved(app, "PDF", tmp_path).read_bytes()
    assert len([request for request in app.requests if "vendor" in request]) == 4
    assert content.startswith(b"%PDF-1.")
    words = words_of_pdf(content)
    assert AXIS in words and SOURCE in words and CAPTION in words

    assert saved(app, "PNG", tmp_path).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    page.get_by_text("Source", exact=True).locator("visible=true").click()
    app.settled()
    words = words_of_svg(saved(app, "SVG", tmp_path))
    assert SOURCE not in words and CAPTION in words

    file = saved(app, "HTML", tmp_path)
    other = new_tab(context, server)
    other.page.goto(file.as_uri())
    expect(other.page.get_by_text(CAPTION)).to_be_visible(timeout=PATIENCE)
    other.page.wait_for_selector(".plot .main-svg", timeout=PATIENCE)
    assert [request for request in other.requests if not request.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert not other.problems


def test_a_pdf_holds_text_in_any_script(app: App, tmp_path: Path) -> None:
    app.open("/scores").charted()
    app.page.get_by_role("button", name="Figure").first.click()
    pictures = saved(app, "PDF", tmp_path).read_bytes().count(b"/Subtype /Image")
    app.page.evaluate("""() => Plotly.relayout(document.querySelector(".js-plotly-plot"),
        {"xaxis.title.text": "Drift λ − <b>Сдвиг</b>", "yaxis.title.text": "精度"})""")
    content = saved(app, "PDF", tmp_path).read_bytes()
    assert "Drift λ − Сдвиг" in re.sub(r" +", " ", words_of_pdf(content))
    assert content.count(b"/Subtype /Image") > pictures  # letters that the font lacks


def test_what_is_saved_from_a_dark_page_has_a_light_ground(app: App, tmp_path: Path) -> None:
    app.page.emulate_media(color_scheme="dark")
    app.open("/scores").charted()
    grounds = "() => (l => [l.paper_bgcolor, l.font.color])(document.querySelector('.js-plotly-plot')._fullLayout)"
    assert app.page.evaluate(grounds)[0] == "#12161B"
    app.page.get_by_role("button", name="Figure").first.click()
    drawing = saved(app, "SVG", tmp_path).read_text("utf-8")
    assert "rgb(31, 41, 51)" in drawing and "rgb(18, 22, 27)" not in drawing and "#12161B" not in drawing
