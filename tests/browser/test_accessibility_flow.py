"""Every page keeps the rules of WCAG 2.1 A and AA, Tab reaches all of its controls; three flows by keyboard alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import axe
import contrast
import keyboard
import pytest
from browser_tab import ROOT, App, new_tab
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.browser
PATIENCE = 120_000  # ms


def pages() -> list[str]:
    """The paths of the menu's pages. The entry is read and not imported, because importing it runs the app."""
    tree = ast.parse((ROOT / "app" / "main.py").read_text("utf-8"))
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    names = [entry[0] for entries in ast.literal_eval(assigned["SECTIONS"]).values() for entry in entries]
    return ["" if name == "home" else name for name in names]


DAILY = ("", "merge", "scores", "mix")  # the pages that most people see, in the tests of every day
# What a page shows only where its address says so.
VIEWS = (
    "masks?painting=true", "masks?run=0123456789ab", "merge?chain=no_such_edit;ties", "models?models_view=runs",
    "masks?lesson=masks_by_hand&step=1", "masks?lesson=masks_by_hand&step=5",
)  # fmt: skip


@pytest.fixture(scope="module")
def walker(chromium: Browser, server: str) -> Iterator[App]:
    """One tab for all pages: the browser keeps the front end in its cache."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1100}, reduced_motion="reduce")
    tab = new_tab(context, server)
    yield tab
    context.close()
    assert not tab.problems
    assert not tab.outside()


@pytest.fixture(scope="module")
def excuses() -> set[str]:
    """The listed faults of Streamlit that were met on the pages so far."""
    return set()


def drawn(walker: App, path: str) -> App:
    """A page with all of its parts."""
    walker.open(f"/{path}")
    expect(walker.page.locator("[data-testid=stSkeleton]")).to_have_count(0, timeout=PATIENCE)  # parts still loading
    charts = walker.page.locator("[class*=st-key-chart_]:not(.st-key-chart_network_map)")  # Home has the map alone
    return walker.charted() if charts.count() else walker


@pytest.mark.parametrize(
    "path", [*DAILY, *(pytest.param(path, marks=pytest.mark.full) for path in (*pages(), *VIEWS) if path not in DAILY)]
)
def test_page_breaks_no_rule(walker: App, excuses: set[str], path: str) -> None:
    ours, theirs = axe.violations(drawn(walker, path).page)
    excuses |= theirs
    assert not ours


@pytest.mark.full
@pytest.mark.parametrize("path", [*pages(), *VIEWS])
def test_page_is_walked_by_tab(walker: App, path: str) -> None:
    stops = keyboard.walk(drawn(walker, path).page)
    assert keyboard.list_missed(walker.page) == []
    assert [stop for stop in stops if not stop.name or stop.line < contrast.FOCUS] == []


@pytest.mark.full
def test_listed_faults_of_streamlit_still_occur(excuses: set[str]) -> None:
    """Fails once Streamlit mends one of them; it needs the pages above to have run."""
    listed = {f"{rule} {selector}" for rule, selectors in axe.STREAMLIT.items() for selector in selectors}
    assert excuses == listed


@pytest.mark.full
def test_choose_experts_and_merge_by_keyboard(walker: App) -> None:
    page = walker.open("/merge?chain=task_arithmetic").page
    keyboard.reach(page, page.get_by_role("combobox", name="Experts"))
    page.keyboard.press("Backspace")
    walker.wait_for_address("experts=circles%2Cdigits%2Cflags")
    walker.settled()
    keyboard.reach(page, page.get_by_role("button", name="Run", exact=True))
    page.keyboard.press("Enter")
    expect(page.locator(".st-key-result")).to_contain_text("H-score", timeout=PATIENCE)
    walker.settled()
    assert axe.violations(page)[0] == []
    keyboard.reach(page, page.get_by_role("link", name="See its scores"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/scores**", timeout=PATIENCE)
    walker.charted()


@pytest.mark.full
def test_paint_by_keyboard(walker: App, lwptv_run: str) -> None:
    page = walker.open(f"/masks?run={lwptv_run}").charted().page
    keyboard.reach(page, page.get_by_role("switch", name="Paint").or_(page.get_by_role("checkbox", name="Paint")).first)
    page.keyboard.press("Space")
    walker.wait_for_address("painting=true")
    walker.settled().charted()
    keyboard.reach(page, page.get_by_role("combobox", name="Where"))
    page.keyboard.type("in blocks")
    page.keyboard.press("Enter")
    expect(page.get_by_role("combobox", name="Which")).to_be_visible(timeout=PATIENCE)
    walker.settled()
    keyboard.reach(page, page.get_by_role("combobox", name="Which"))
    page.keyboard.type("block 1")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Paint 0")).to_be_enabled(timeout=PATIENCE)
    walker.settled()
    keyboard.reach(page, page.get_by_role("button", name="Paint 0"))
    page.keyboard.press("Enter")
    walker.wait_for_address("painted_factors=b1%3D0")


@pytest.mark.full
def test_put_a_view_into_the_report_and_download_it_by_keyboard(walker: App) -> None:
    page = walker.open("/scores").charted().page
    keyboard.reach(page, page.get_by_role("button", name="Add to report").first)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="In the report").first).to_be_visible(timeout=PATIENCE)
    walker.settled()
    keyboard.reach(page, page.get_by_role("link", name="Report", exact=True).first)
    page.keyboard.press("Enter")
    page.wait_for_url("**/report**", timeout=PATIENCE)
    walker.settled()
    assert axe.violations(page)[0] == []
    keyboard.reach(page, page.get_by_role("button", name="Download the report"))
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.keyboard.press("Enter")
    assert waiting.value.suggested_filename == "mergescope_report.html"
