"""Every view opens on something that is stored: a picture is drawn, and no offer to measure stands alone."""

from __future__ import annotations

import time
from typing import Any

import pytest
from page_harness import SLOW, charts, labels, words

from app import main
from merging.base import settings

pytestmark = pytest.mark.full  # on the bundled library
VIEWS = {  # page -> the control that chooses its view, as the address names it; empty where a page has one view
    "masks": "", "conflicts": "conflicts_view", "partners": "partners_view", "drift": "drift_view",
    "features": "features_view", "image": "image_view", "learning": "learning_view", "scores": "scores_view",
    "sweeps": "", "compare": "compare_view", "run": "",
}  # fmt: skip
WITHOUT_CHARTS = {  # page -> why it opens without a chart
    "merge": "a form; the chart of a preview or a result follows",
    "mix": "the visitor's browser draws it",
    "methods": "tables and cards, one a method",
    "models": "forms and tables of files, benchmarks and runs",
    "report": "lists what was added to it",
    "lessons": "cards of lessons; a lesson shows other pages",
}
HOME = {"home"}  # its tests are in test_home_page.py


def pictures(at: Any) -> int:
    """How many charts a page shows once what it computes meanwhile is there."""
    limit = time.monotonic() + SLOW
    while not charts(at) and "Reading the image" in words(at) and time.monotonic() < limit:
        time.sleep(0.3)
        at.run()
    return charts(at)


def list_views(at: Any, control: str) -> list[str]:
    return list(at.button_group(key=control).options) if control else [""]


def test_every_page_is_looked_at_or_has_a_reason() -> None:
    pages = {name for section in main.SECTIONS.values() for name, *_ in section}
    assert pages == {*VIEWS, *WITHOUT_CHARTS, *HOME}


@pytest.mark.parametrize("page", VIEWS)
def test_every_view_opens_with_a_picture(open_app: Any, page: str) -> None:
    control = VIEWS[page]
    names = list_views(open_app(page, settings.BUNDLED_FOLDER), control)
    assert len(names) > 1 or not control
    without = []
    for name in names:
        at = open_app(page, settings.BUNDLED_FOLDER, **({control: name} if control else {}))
        assert not at.exception and not at.error
        if not pictures(at) or "Measure" in labels(at, "button"):
            without.append(name)
    assert without == []


@pytest.mark.parametrize("page", [page for page, control in VIEWS.items() if control and page != "image"])
def test_every_view_shows_a_picture_when_it_is_opened_after_the_others(open_app: Any, page: str) -> None:
    at = open_app("masks", settings.BUNDLED_FOLDER)  # whose run nobody chose
    at.query_params.clear()
    at.switch_page(f"screens/{page}.py").run()
    for _ in range(2):
        for name in list_views(at, VIEWS[page]):
            at.button_group(key=VIEWS[page]).set_value(name).run()
            assert not at.exception and charts(at) and "Measure" not in labels(at, "button"), name


def test_every_comparison_has_a_picture_for_a_run_that_is_suggested(open_app: Any) -> None:
    at = open_app("compare", settings.BUNDLED_FOLDER)
    suggested = [str(button.key).removeprefix("beside_") for button in at.button if button.label == "Compare"]
    assert len(suggested) == 3
    for view in list_views(at, VIEWS["compare"]):
        opened = [open_app("compare", settings.BUNDLED_FOLDER, run_b=other, compare_view=view) for other in suggested]
        assert not any(at.exception for at in opened) and any(pictures(at) for at in opened), view


def test_what_one_page_opens_on_does_not_follow_to_another(open_app: Any) -> None:
    at = open_app("drift", settings.BUNDLED_FOLDER)
    for page in ("features", "image", "drift"):
        at.query_params.clear()
        at.switch_page(f"screens/{page}.py").run()
        assert not at.exception and pictures(at) and "Measure" not in labels(at, "button"), page


def test_putting_back_opens_on_a_run_that_is_measured_also_after_masks(open_app: Any) -> None:
    at = open_app("masks", settings.BUNDLED_FOLDER)  # whose run is one that is not measured, and that nobody chose
    at.query_params.clear()
    at.query_params["drift_view"] = "put back"
    at.switch_page("screens/drift.py").run()
    assert charts(at) == 3 and "Measure" not in labels(at, "button")
    at = open_app("drift", settings.BUNDLED_FOLDER, drift_view="put back")
    assert charts(at) == 3 and "Measure" not in labels(at, "button")
