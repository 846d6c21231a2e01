"""A way through the app: experts and images of one's own, a benchmark made of them, a merge that is scored on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import tiny_data
import torch
from browser_tab import App
from playwright.sync_api import Locator, expect

pytestmark = [pytest.mark.browser, pytest.mark.full]
PATIENCE = 180_000  # ms: jobs are processes of their own
EXPERTS = ("fruit", "cars")


def write_hub(folder: Path) -> Path:
    """A whole CLIP model, and experts in another folder."""
    (folder / "experts").mkdir(parents=True)
    tiny_data.open_clip_folder(folder / "clip")
    for name, state in tiny.family(EXPERTS)[1].items():
        tiny.write(folder / "experts" / f"{name}.safetensors", state, torch.float32)
    return folder


def write_images(folder: Path) -> Path:
    """Images for both experts, and of what no expert saw."""
    parts = {"train": tiny_data.rows(4), "test": tiny_data.rows(10, 100)}
    tiny_data.folder(folder / "fruit", parts)
    tiny_data.arrow(folder / "cars", parts)
    tiny_data.folder(folder / "beasts", {"": tiny_data.rows(10, 300)})
    return folder


def picker(app: App, label: str) -> Locator:
    """The field of a picker, told by its label."""
    kinds = "[data-testid=stSelectbox], [data-testid=stMultiSelect]"
    return app.page.locator(kinds).filter(has=app.page.get_by_text(label, exact=True)).locator("input").first


def pick(app: App, label: str, *options: str) -> None:
    """Choose options in a picker."""
    for option in options:
        picker(app, label).click()
        app.page.get_by_role("option", name=option).first.click()
        app.settled()
    app.page.keyboard.press("Escape")


def type_in(app: App, label: str, words: str) -> None:
    """Fill a field and let the page know."""
    field = app.page.get_by_role("textbox", name=label, exact=True)
    field.fill(words)
    field.press("Enter")
    app.settled()


def test_from_images_to_scores(app: App, tmp_path: Path) -> None:
    hub, images = write_hub(tmp_path / "hub"), write_images(tmp_path / "images")
    page = app.open("/models").page
    type_in(app, "Your folder or file", str(hub))
    expect(app.text("tensors of every checkpoint fit")).to_be_visible(timeout=PATIENCE)
    expect(app.text("the pretrained model is a guess")).to_be_visible()
    type_in(app, "Title of the set", "Fruit and cars")
    page.get_by_role("button", name="Add to the Merge page").click()
    app.settled()

    page.get_by_role("radio", name="data", exact=True).click()
    app.settled()
    type_in(app, "Folder of your data sets", str(images))
    pick(app, "Models", "Fruit and cars")
    pick(app, "Data sets", "images/fruit", "images/cars", "images/beasts")
    expect(app.text("What was recognized")).to_be_visible(timeout=PATIENCE)
    expect(app.text("train 12, test 30")).to_be_visible()
    page.get_by_role("button", name="Make the benchmark").click()
    expect(page.get_by_role("button", name="Switch to it")).to_be_visible(timeout=PATIENCE)
    app.settled()
    page.get_by_role("button", name="Switch to it").click()
    app.wait_for_address("benchmark=own%3Amine")
    app.settled()
    expect(app.text("With an expert: fruit, cars.")).to_be_visible()

    page.get_by_role("link", name="Merge", exact=True).click()
    app.settled()
    expect(page.get_by_test_id("stMultiSelect")).to_contain_text("fruit")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".st-key-result")).to_contain_text("is done", timeout=PATIENCE)
    app.settled()
    page.get_by_role("link", name="See its scores").click()
    app.settled().charted()
    expect(app.text("On the benchmark")).to_be_visible()
    assert "benchmark=own%3Amine" in page.url
    page.reload()  # the link is all that another session needs
    app.settled().charted()
    expect(app.text("and the reference models")).to_be_visible()
    page.goto(page.url.replace("benchmark=own%3Amine", ""))
    app.settled()
    expect(app.text("another benchmark than the current one")).to_be_visible()
