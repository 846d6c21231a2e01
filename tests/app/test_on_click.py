"""What a chart offers to save is made when somebody asks for it, and for the benchmark on which it was drawn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from page_harness import labels, press, words

from app.saving import csv_files, figure_files, provenance
from app.saving.shown_chart import ShownChart
from app.session import benchmark_choice

CHART = "id_ood_scatter"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made so far."""
    found: list[str] = []
    parts = (
        (provenance, "provenance_line"), (figure_files, "picture_data"), (csv_files, "csv_with_source"),
        (ShownChart, "make_view"),
        (ShownChart, "draw_figure"),
    )  # fmt: skip
    for owner, name in parts:
        whole = getattr(owner, name)

        def noted(*given: Any, name: str = name, whole: Any = whole) -> Any:
            found.append(name)
            return whole(*given)

        monkeypatch.setattr(owner, name, noted)
    return found


@pytest.mark.full
def test_a_page_makes_nothing_that_nobody_asked_for(open_app: Any, library: Path, made: list[str]) -> None:
    at = open_app("scores", library)
    assert not at.exception and len(at.get("plotly_chart")) > 1
    assert not made and not at.get("bidi_component") and "HTML" not in labels(at, "download_button")
    assert figure_files.FORMATS_NOTE not in words(at)

    at.session_state[f"figure_{CHART}"] = True
    at.run()
    assert set(made) == {"provenance_line", "picture_data", "draw_figure"}
    assert len(at.get("bidi_component")) == labels(at, "download_button").count("HTML") == 1
    assert figure_files.FORMATS_NOTE in words(at)

    at.session_state[f"figure_{CHART}"] = False
    at.run()
    made.clear()
    press(at, "Add to report")
    assert made == ["make_view"] and not at.get("bidi_component")


@pytest.mark.full
def test_the_menu_keeps_what_was_chosen_for_the_picture(open_app: Any, library: Path) -> None:
    at = open_app("scores", library)
    for change in ({f"below_{CHART}": [figure_files.CAPTION]}, {f"figure_{CHART}": False}, {f"figure_{CHART}": True}):
        for key, value in ({f"figure_{CHART}": True} | change).items():
            at.session_state[key] = value
        assert not at.run().exception
    assert at.session_state[f"below_{CHART}"] == [figure_files.CAPTION]


@pytest.mark.full
def test_the_report_says_what_stood_at_the_chart(open_app: Any, library: Path) -> None:
    at = press(open_app("scores", library), "Add to report")
    (kept,) = at.session_state["_report_keeper"].read_draft().views
    assert "H-score is the harmonic mean" in kept.view.caption and kept.view.place.startswith("scores")
    assert kept.view.sources


def test_a_file_is_made_without_a_session(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(
        csv_files.st, "download_button", lambda label, content, *_, key, **__: given.update({key: content})
    )
    assert not open_app("scores", library).exception
    with ThreadPoolExecutor(1) as thread:
        files = {key: thread.submit(given[key]).result().decode() for key in (f"csv_{CHART}", f"csv_table_{CHART}")}
    for content in files.values():
        head, first, *_ = content.splitlines()
        assert head.endswith(f",{csv_files.SOURCE_COLUMN}") and "Mergescope" in first and "reporting half" in first
    assert len({*files.values()}) == 2


def test_a_file_is_of_the_benchmark_that_its_page_showed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tmp_path / "one"))
    make = benchmark_choice.bind_download(lambda: str(benchmark_choice.benchmark_folder()).encode())
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tmp_path / "other"))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(make).result().decode() == str((tmp_path / "one").resolve())
        assert thread.submit(benchmark_choice.benchmark_folder).result() == (tmp_path / "other").resolve()
