"""What a user does, in a real Chromium against a real server."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
import tiny_library
from browser_tab import App, new_tab
from playwright.sync_api import BrowserContext, expect

pytestmark = pytest.mark.browser
PATIENCE = 60_000  # ms


def test_open_merge_and_see_the_run_in_scores(app: App) -> None:
    query = "chain=task_arithmetic&experts=circles,digits"
    app.open(f"/merge?{query}").page.get_by_role("button", name="Run", exact=True).click()
    beside = app.page.locator(".st-key-result [data-testid=stTable]")
    expect(beside).to_contain_text("Pretrained", timeout=PATIENCE)
    app.open("/scores").charted()  # by default the new run, and others, which merge four experts
    expect(app.text("You see 1 merge of 2 experts: circles, digits")).to_be_visible(timeout=PATIENCE)
    expect(app.page.locator(".st-key-other_experts")).to_contain_text("merge other experts")
    app.open("/").page.get_by_role("link", name="Merge eight experts").click()
    app.settled()
    slider = app.page.get_by_role("slider", name="Prune ratio").first
    slider.focus()
    for _ in range(5):
        app.page.keyboard.press("ArrowLeft")  # typed faster than the server answers
    app.wait_for_address("prune_ratio%3D0.65")
    app.settled()
    app.page.get_by_role("button", name="Run", exact=True).click()
    expect(app.page.locator(".st-key-jobs")).to_contain_text("prune ratio 0.65", timeout=PATIENCE)
    expect(app.page.locator(".st-key-result")).to_contain_text("H-score", timeout=PATIENCE)
    app.page.get_by_role("link", name="See its scores").click()
    app.settled().charted()
    chosen = app.page.locator("[data-testid=stMultiSelect]")
    expect(chosen).to_contain_text("LwPTV (prune ratio 0.65)")
    expect(app.text("this machine")).to_be_visible()


def test_click_a_cell(app: App) -> None:
    app.open("/masks").charted()
    app.page.wait_for_selector(".heatmaplayer image")
    app.click_cell(1, 7)
    app.wait_for_address("expert=digits")
    app.wait_for_address("tensor=visual.")
    expect(app.text("For which experts is this tensor salient enough")).to_be_visible(timeout=PATIENCE)
    app.settled()
    app.click_cell(0, 3, "yaxis3")  # the final mask belongs to no expert
    app.page.wait_for_function("!location.href.includes('expert=')", timeout=PATIENCE)


def test_the_ratio_is_live(app: App) -> None:
    app.open("/masks").charted()
    slider = app.page.locator("input[type=range]").first
    slider.focus()
    jobs = app.page.locator(".st-key-jobs").all_inner_texts()
    app.page.keyboard.press("Home")
    expect(app.text("At prune ratio 0")).to_be_visible(timeout=PATIENCE)
    assert app.page.locator(".st-key-jobs").all_inner_texts() == jobs  # nothing is merged again
    expect(app.text("32 of 32 tensors")).to_be_visible()


@pytest.mark.full
def test_a_link_opens_the_same_view_in_a_second_tab(app: App, context: BrowserContext, server: str) -> None:
    app.open("/masks").charted()
    app.page.locator("input[type=range]").first.focus()
    for _ in range(7):
        app.page.keyboard.press("ArrowRight")
    app.wait_for_address("ratio=")
    app.settled()
    ratio = app.page.locator("input[type=range]").first.input_value()
    app.click_cell(2, 5)
    app.wait_for_address("expert=flags")
    app.settled()
    app.page.get_by_test_id("stPopoverButton").filter(has_text="Link").first.click()
    shown = app.page.locator("[data-testid=stPopoverBody] code").first
    expect(shown).to_contain_text("http", timeout=PATIENCE)  # it is written when the menu is opened
    link = shown.inner_text()
    assert f"ratio={ratio}" in link
    assert "run=" in link
    other = new_tab(context, server).open(link.removeprefix(server)).charted()
    expect(other.text(f"At prune ratio {float(ratio):g}")).to_be_visible()
    assert other.page.locator("input[type=range]").first.input_value() == ratio
    expect(other.text("For which experts is this tensor salient enough")).to_be_visible()
    assert not other.problems
    assert not other.outside()


@pytest.mark.full
def test_a_job_is_seen_and_cancelled_from_another_tab(app: App, context: BrowserContext, server: str) -> None:
    app.open("/merge?chain=adamerging:steps=1000,batch=8")  # it takes longer than a tab takes to open
    app.page.get_by_role("button", name="Run", exact=True).click()
    expect(app.page.locator(".st-key-jobs")).to_contain_text("AdaMerging", timeout=PATIENCE)
    other = new_tab(context, server).open("/")
    other.page.get_by_role("button", name="Cancel").first.click()
    expect(other.page.locator(".st-key-jobs")).to_contain_text("cancelled", timeout=PATIENCE)
    expect(app.page.locator(".st-key-jobs")).to_contain_text("cancelled", timeout=PATIENCE)


@pytest.mark.full
def test_downloads(app: App, tmp_path: Path) -> None:
    app.open("/scores").charted()
    with app.page.expect_download() as waiting:
        app.page.get_by_role("button", name=re.compile(r"\bData$")).first.click()
    waiting.value.save_as(tmp_path / "scores.csv")
    lines = (tmp_path / "scores.csv").read_text("utf-8").splitlines()
    assert lines[0].startswith("mark,run,")
    assert len(lines) > 3 and "Mergescope" in lines[1] and "Mergescope" not in lines[2]
    with app.page.expect_download() as waiting:
        app.page.get_by_role("button", name=re.compile(r"\bTable$")).first.click()
    waiting.value.save_as(tmp_path / "table.csv")
    table = (tmp_path / "table.csv").read_text("utf-8")
    assert table.startswith("run,label,kind,in_domain") and "'=A <img" in table  # not a formula to a spreadsheet
    app.page.locator(".js-plotly-plot").first.hover()
    with app.page.expect_download() as waiting:
        app.page.locator(".js-plotly-plot .modebar-btn[data-title*='Download']").first.click()
    assert waiting.value.suggested_filename.endswith(".svg")


@pytest.mark.parametrize(
    "path", ["/scores", *(pytest.param(path, marks=pytest.mark.full) for path in ("/", "/masks", "/merge"))]
)
def test_names_from_files_stay_text(app: App, path: str) -> None:
    app.open(path)
    if path in ("/scores", "/masks"):
        app.charted()
    if path == "/":
        app.page.locator("[data-testid=stDataFrame] canvas").first.wait_for()
    if path == "/scores":  # Home's table is a picture
        expect(app.page.get_by_test_id("stMarkdown").get_by_text(tiny_library.NASTY).first).to_be_visible()
    assert app.page.locator("img[src='x'], a[href^='javascript']").count() == 0


@pytest.mark.full
def test_a_missing_run_is_explained(app: App) -> None:
    app.open("/masks?run=0123456789ab")
    expect(app.text("which this machine does not have")).to_be_visible()
    app.page.get_by_role("button", name="Show an available run").click()
    app.settled().charted()


SMALL_TYPE = """() => [...document.querySelectorAll('.st-key-presented *')].filter(e => e.checkVisibility()
  && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
  .map(e => [parseFloat(getComputedStyle(e).fontSize), e.textContent]).filter(([size]) => size < 24)"""


@pytest.mark.full
def test_b_blanks_a_presented_screen(app: App) -> None:
    app.open("/scores?presentation=true").charted()
    dark = "() => document.documentElement.hasAttribute('data-blank')"
    assert not app.page.evaluate(dark)
    for _ in range(40):  # until the page listens to keys, a little after its chart is drawn
        app.page.keyboard.press("b")
        if app.page.evaluate(dark):
            break
        app.page.wait_for_timeout(250)
    assert app.page.evaluate(dark)
    app.page.keyboard.press("b")
    assert not app.page.evaluate(dark)


@pytest.mark.full
def test_present_mode_fills_the_window_with_one_chart(app: App) -> None:
    app.page.set_viewport_size({"width": 1920, "height": 1080})
    app.open("/scores").charted()
    app.page.get_by_role("button", name="Present").last.click()
    app.wait_for_address("presentation=true")
    stage = app.page.locator(".st-key-presented")
    expect(stage.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=PATIENCE)
    app.settled().charted()
    assert "single_chart=" in app.page.url
    expect(app.page.locator(".js-plotly-plot")).to_have_count(1)
    expect(app.page.get_by_role("link", name="Masks")).not_to_be_visible()
    box = stage.bounding_box()
    assert box is not None
    assert (box["x"], box["y"], box["width"], box["height"]) == pytest.approx((0, 0, 1920, 1080), abs=1)
    chart = stage.locator(".js-plotly-plot").bounding_box()
    assert chart is not None
    assert chart["height"] >= 0.7 * 1080
    assert chart["y"] + chart["height"] <= 1080
    assert app.page.evaluate(SMALL_TYPE) == []
    app.page.keyboard.press("Escape")
    expect(app.page.get_by_role("link", name="Masks").first).to_be_visible(timeout=PATIENCE)
    app.settled()
    assert "presentation=" not in app.page.url


@pytest.mark.full
def test_escape_leaves_a_chart_in_a_part_that_is_drawn_alone(app: App) -> None:
    app.open("/masks").charted()
    app.page.get_by_role("button", name="Present").first.click()
    expect(app.page.locator(".st-key-presented .js-plotly-plot .main-svg").first).to_be_visible(timeout=PATIENCE)
    app.settled()
    app.page.keyboard.press("Escape")
    expect(app.page.get_by_role("link", name="Masks").first).to_be_visible(timeout=PATIENCE)
    app.settled()
    assert "presentation=" not in app.page.url


def test_the_server_listens_on_this_machine_only(server: str) -> None:
    port = int(server.rsplit(":", 1)[1])
    listening = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}


def test_home_begins_with_a_picture_and_what_is_seen(app: App) -> None:
    app.open("/").page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    expect(app.text("of the scalars; gray ones stay pretrained")).to_be_visible(timeout=PATIENCE)
    slider = app.page.locator("input[type=range]").first
    slider.focus()
    app.page.keyboard.press("Home")  # nothing is pruned
    expect(app.text("32 of 32 tensors")).to_be_visible(timeout=PATIENCE)
    assert not app.problems


@pytest.mark.full
def test_the_numbers_of_a_preview_go_with_its_chain(app: App) -> None:
    app.open("/merge")
    live = app.page.get_by_role("switch", name="live")
    expect(live).to_be_checked(timeout=PATIENCE)  # without a click: a preview takes less than five seconds
    numbers = app.page.locator(".st-key-preview_result_merge [data-testid=stMetricValue]")
    expect(numbers).to_have_count(3, timeout=PATIENCE)
    expect(app.page.get_by_role("button", name="Stop", exact=True)).to_have_count(0, timeout=PATIENCE)
    app.settled()
    kept = app.page.locator(".st-key-preview_result_merge [data-testid=stElementContainer]")
    marked = "all => all.forEach(one => { one.dataset.stale = '%s' })"
    kept.evaluate_all(marked % "true")  # Streamlit does so while it draws the page for another chain
    expect(kept.first).to_have_css("opacity", "0.45")
    kept.evaluate_all(marked % "false")
    expect(kept.first).to_have_css("opacity", "1")
    app.page.get_by_role("slider", name="Prune ratio").first.focus()
    for _ in range(8):
        app.page.keyboard.press("ArrowLeft")  # faster than the server answers
    app.wait_for_address("prune_ratio%3D0.6")
    expect(app.text("against the last setting")).to_be_visible(timeout=PATIENCE)
    app.settled()
    expect(numbers).to_have_count(3, timeout=PATIENCE)
    live.uncheck(force=True)
    app.settled()
    app.page.get_by_role("slider", name="Prune ratio").first.focus()
    app.page.keyboard.press("ArrowLeft")
    expect(numbers).to_have_count(0, timeout=PATIENCE)  # none are on their way


@pytest.mark.full
def test_a_run_fits_on_one_screen(app: App, lwptv_run: str) -> None:
    app.page.set_viewport_size({"width": 1440, "height": 900})
    app.open(f"/run?run={lwptv_run}").charted()
    main = app.page.get_by_test_id("stMain")
    assert main.evaluate("e => e.scrollHeight - e.clientHeight") == 0
    app.page.set_viewport_size({"width": 900, "height": 900})
    app.settled()
    assert main.evaluate("e => e.scrollWidth - e.clientWidth") == 0  # it may scroll, but not sideways
