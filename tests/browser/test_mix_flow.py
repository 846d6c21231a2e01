"""The page Mix in a browser: what moves with a slider, what a link restores, and what a browser that fails gets."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_tab import ROOT, App, new_tab
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, FrameLocator, Page, Route, expect

from merging.images.benchmarks import metrics
from merging.images.own_image import read_own_image

pytestmark = pytest.mark.browser
PATIENCE = 120_000  # ms
NO_MEMORY = """window.Worker = class {
  postMessage() { setTimeout(() => this.onmessage({ data: { kind: "failed", error: "allocation failed" } })); }
  terminate() {}
};"""


@pytest.fixture
def failing(context: BrowserContext, server: str) -> Iterator[App]:
    """A tab in which something fails on purpose, so that its console may say so."""
    tab = new_tab(context, server)
    yield tab
    assert not tab.outside()


def open_desk(tab: App, desk: str = "") -> FrameLocator:
    tab.open(f"/mix{desk and '?desk='}{desk}")
    frame = tab.page.frame_locator("iframe[title*=mix]")
    expect(frame.get_by_role("button", name="Copy link")).to_be_visible(timeout=PATIENCE)
    return frame


def await_answers(desk: FrameLocator | Page) -> None:
    expect(desk.locator(".status")).to_contain_text("All 120 images", timeout=PATIENCE)


def cell(desk: FrameLocator | Page, row: str, name: str) -> str:
    return desk.locator(f"tr[data-row='{row}'] td.{name}").inner_text()


def test_meters_follow_the_sliders_and_a_link_restores_the_desk(app: App, context: BrowserContext, server: str) -> None:
    desk = open_desk(app)
    await_answers(desk)
    first = [cell(desk, row, "share") for row in ("in", "out", "h")]
    assert [cell(desk, row, "n") for row in ("in", "out", "t.circles")] == ["80", "40", "20"]
    assert [cell(desk, row, "pinned") for row in ("in", "out", "h")] == first
    slider = desk.get_by_role("slider", name="circles")
    box = slider.bounding_box()
    assert box is not None
    app.page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2)
    app.page.mouse.down()
    app.page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2, steps=12)
    app.page.mouse.up()
    assert float(slider.input_value()) == -0.5
    desk.get_by_role("slider", name="All experts").fill("1")
    await_answers(desk)
    moved = [cell(desk, row, "share") for row in ("in", "out", "h")]
    assert moved != first
    assert [cell(desk, row, "pinned") for row in ("in", "out", "h")] == first
    assert re.search(r"[1-9]\d* turned since pin A", desk.locator(".results").inner_text())
    desk.get_by_role("button", name="Mute Block 1").click()
    await_answers(desk)
    desk.get_by_role("button", name="Pin B").click()
    desk.get_by_role("button", name="Undo").click()
    await_answers(desk)
    assert [cell(desk, row, "share") for row in ("in", "out", "h")] == moved
    desk.get_by_role("button", name="Copy link").click()
    expect(desk.locator(".said")).to_contain_text("The link is copied")
    link = app.page.evaluate("navigator.clipboard.readText()")
    assert link == app.page.url and "desk=task_arithmetic%3Ascaling%3D1%3Bexperts%3Acircles%3D-0.5" in link
    desk.get_by_role("button", name="Show B").click()
    expect(desk.get_by_role("button", name="Mute Block 1")).to_have_attribute("aria-pressed", "true")

    other = new_tab(context, server)
    again = open_desk(other, link.partition("desk=")[2])
    await_answers(again)
    assert again.get_by_role("slider", name="circles").input_value() == "-0.5"
    assert [cell(again, row, "share") for row in ("in", "out", "h")] == moved
    again.get_by_role("button", name="Make it a run").click()
    other.wait_for_address("/merge?chain=manual%3Ae.circles%3D-0.5%3Btask_arithmetic%3Ascaling%3D1")
    assert not other.problems and not other.outside()


def test_a_link_out_of_bounds_is_clamped_and_says_so(app: App) -> None:
    desk = open_desk(app, "ties:density=7,scaling=abc;experts:circles=-9,nobody=1;mute:s.b1;other;%ZZ")
    said = desk.locator(".said").inner_text()
    for part in ("Density 7 is outside 0.01 to 1, so it is 1", "Scaling coefficient cannot be “abc”, so it is 0.3",
                 "Circles −9 is outside −0.5 to 1.5, so it is −0.5", "“nobody” is not on this desk"):  # fmt: skip
        assert part in said
    assert desk.get_by_role("slider", name="Density").input_value() == "1"
    app.wait_for_address("desk=ties%3Adensity%3D1%3Bexperts%3Acircles%3D-0.5%3Bmute%3As.b1")


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("delete globalThis.WebAssembly;", "does not run WebAssembly with SIMD"),
        ("WebAssembly.validate = () => false;", "does not run WebAssembly with SIMD"),
        (NO_MEMORY, "has too little memory"),
    ],
)
def test_a_browser_that_cannot_compute_keeps_the_desk(failing: App, script: str, sentence: str) -> None:
    failing.page.add_init_script(script)
    desk = open_desk(failing, "lwptv;ties")
    expect(desk.get_by_role("alert")).to_contain_text(sentence)
    desk.get_by_role("slider", name="Density").fill("0.5")
    desk.get_by_role("button", name="Preview it on Merge").click()
    failing.wait_for_address("/merge?chain=lwptv%3Bties%3Adensity%3D0.5")


@pytest.mark.full
def test_a_download_that_is_cut_off_can_be_tried_again(failing: App) -> None:
    failing.page.route("**/weights_2*", lambda route: route.abort())
    desk = open_desk(failing)
    expect(desk.get_by_role("alert")).to_contain_text("The models could not be downloaded in full", timeout=PATIENCE)
    desk.get_by_role("slider", name="circles").fill("0.5")
    failing.page.unroute("**/weights_2*")
    desk.get_by_role("button", name="Try again").click()
    await_answers(desk)
    expect(desk.get_by_role("alert")).to_be_hidden()
    assert desk.get_by_role("slider", name="circles").input_value() == "0.5"


@pytest.mark.full
def test_a_tab_in_the_background_waits(app: App) -> None:
    desk = open_desk(app)
    await_answers(desk)
    status = desk.locator(".status")
    hide = """(frame, hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    desk.locator("body").evaluate(hide, True)
    expect(status).to_contain_text("images are answered")
    desk.get_by_role("slider", name="circles").fill("0")
    expect(status).to_contain_text("pauses while this tab is in the background")
    desk.locator("body").evaluate(hide, False)
    await_answers(desk)


def test_the_keyboard_reaches_every_control(app: App) -> None:
    desk = open_desk(app)
    await_answers(desk)
    desk.get_by_role("button", name="Pin A").focus()
    look = """() => {
      const element = document.activeElement, style = getComputedStyle(element);
      const name = element.getAttribute("aria-label") || element.labels?.[0]?.textContent || element.textContent;
      return [element.tagName, name, style.outlineStyle === "solid" && parseFloat(style.outlineWidth) > 1];
    }"""
    stops: list[list[Any]] = []
    while not stops or stops[-1][0] != "BODY":  # until the focus leaves the frame
        app.page.keyboard.press("Tab")
        stops.append(desk.locator("body").evaluate(look))
    stops.pop()
    assert {"BUTTON", "SELECT", "INPUT"} <= {tag for tag, _, _ in stops}
    assert [stop for stop in stops if not stop[1] or not stop[2]] == []
    names = " ".join(name for _, name, _ in stops)
    expected = ("Reset", "Edit", "Circles", "Solo Block 1", "Mute Output", "Your own picture")
    assert [name for name in expected if name not in names] == []


@pytest.mark.full
@pytest.mark.parametrize("shape", [(40, 57), (131, 64), (16, 16), (9, 12), (16, 50)])
def test_an_own_picture_is_resized_as_the_engine_does(app: App, shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(sum(shape)).integers(0, 256, (*shape, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    desk = open_desk(app)
    read: Any = desk.locator("body").evaluate(
        """async (body, bytes) => {
          const { readPicture } = await import("./own_picture.js");
          return [...await readPicture(new Blob([new Uint8Array(bytes)]), 16)];
        }""",
        list(file.getvalue()),
    )
    expected = read_own_image(file.getvalue(), "x.png", 16).astype(int)
    assert np.abs(np.reshape(read, (16, 16, 3)) - expected).max() <= 2  # versions of PIL filter in another order


@pytest.mark.full
def test_a_picture_waits_for_the_models_and_a_bad_one_is_refused(app: App) -> None:
    file = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(file, "PNG")
    waiting: list[Route] = []
    app.page.route("**/weights_2*", lambda route: waiting.append(route))  # noqa: PLW0108
    desk = open_desk(app)
    own = desk.get_by_label("Your own picture")
    own.set_input_files({"name": "red.png", "mimeType": "image/png", "buffer": file.getvalue()})
    expect(desk.locator(".own canvas")).to_be_visible()
    own.set_input_files({"name": "bad.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(desk.locator(".own")).to_contain_text("cannot read this file")
    for route in waiting:
        route.continue_()
    app.page.unroute("**/weights_2*")
    await_answers(desk)
    own.set_input_files({"name": "red.png", "mimeType": "image/png", "buffer": file.getvalue()})
    expect(desk.locator(".own")).to_contain_text("The mix says: ")
    expect(desk.get_by_role("alert")).to_be_hidden()


@pytest.mark.full
def test_what_is_mute_does_not_play_even_alone(app: App) -> None:
    desk = open_desk(app, "task_arithmetic;mute:e.circles;solo:e.circles")
    await_answers(desk)
    rows = ("in", "out", "t.circles")
    silent = [cell(desk, row, "share") for row in rows]
    desk.get_by_role("button", name="Mute Circles").click()
    await_answers(desk)
    assert [cell(desk, row, "share") for row in rows] != silent


def test_accuracies_are_those_of_the_engine(app: App) -> None:
    counts = {"a": (20, 20), "b": (3, 16), "c": (0, 4), "d": (61, 64)}
    inside = ("a", "b")
    tasks = [{"key": key, "has_expert": key in inside, "labels": [0] * 64} for key in counts]
    record = {"tasks": [{"right": right, "n": n} for right, n in counts.values()]}
    script = """async ([tasks, record]) => {
      const { measure } = await import("/component/app.live.component.mix/accuracies.js");
      return measure(tasks, record);
    }"""
    open_desk(app)
    found = app.page.evaluate(script, [tasks, record])
    summary = metrics.summary_of([(key, right / n, n) for key, (right, n) in counts.items()], inside, {})
    expected = {
        "in": (summary.in_domain, summary.in_low, summary.in_high, summary.n_in),
        "out": (summary.out_of_domain, summary.out_low, summary.out_high, summary.n_out),
        **{f"t.{key}": (right / n, *metrics.wilson(right, n), n) for key, (right, n) in counts.items()},
    }
    for row, numbers in expected.items():
        assert [found[row][name] for name in ("mean", "low", "high", "n")] == pytest.approx(numbers, abs=1e-12)
    assert found["h"]["mean"] == pytest.approx(summary.h_score)


def write_static(library: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.snapshot", "--live", *options, "--out", str(folder / "site")]
    own = {"MERGESCOPE_BENCHMARK": str(library), "MERGESCOPE_STORE": str(folder / "store")}
    return subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_a_static_desk_opens_from_disk_without_a_network(
    app: App, chromium: Browser, library: Path, tmp_path: Path
) -> None:
    assert write_static(library, tmp_path, "--lessons", "one_image").returncode == 2
    done = write_static(library, tmp_path)
    assert done.returncode == 0, done.stderr
    context = chromium.new_context(viewport={"width": 390, "height": 800}, offline=True)
    tab = new_tab(context, (tmp_path / "site").as_uri())
    link = "lwptv;ties:scaling=0.6;experts:circles=0.4;mute:s.b1"
    tab.page.goto(f"{tab.url}/mix.html?desk={link}")
    await_answers(tab.page)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.page.get_by_role("button", name="Make it a run").count() == 0
    desk = open_desk(app, link)
    await_answers(desk)
    rows = [line.get_attribute("data-row") or "" for line in tab.page.locator("tr[data-row]").all()]
    assert len(rows) == 9
    for row in ("in", "out", "h"):  # the static page rounds task vectors, which turns images of these small tasks
        shares = [float(cell(page, row, "share").rstrip("%")) for page in (tab.page, desk)]
        assert abs(shares[0] - shares[1]) <= 10, row
    expect(tab.page.locator(".foot")).to_contain_text("task vectors rounded to int8")
    expect(desk.locator(".foot")).not_to_contain_text("int8")
    tab.page.get_by_role("slider", name="circles").fill("1.2")
    await_answers(tab.page)
    assert not tab.problems and not tab.outside()
    context.close()


@pytest.mark.full
def test_a_static_desk_with_a_missing_file_says_so(chromium: Browser, library: Path, tmp_path: Path) -> None:
    assert write_static(library, tmp_path).returncode == 0
    (tmp_path / "site" / "weights_2.safetensors.gz.data.js").unlink()
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto(f"{(tmp_path / 'site').as_uri()}/mix.html")
    expect(page.locator("main")).to_contain_text("weights_2.safetensors.gz.data.js cannot be loaded", timeout=PATIENCE)
    context.close()
