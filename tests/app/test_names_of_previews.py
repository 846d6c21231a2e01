"""Previews under the titles of methods, experts under their names, and doors where nothing is measured or compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from page_harness import picker, runs, words

from app.reading import glossary
from app.saving import provenance
from app.saving.shown_chart import ShownChart
from app.session import address
from app.widgets.panels import preview_panel
from app.widgets.selection_pickers import SALIENCY_CHART
from merging.recipes.recipe import Recipe


def test_a_preview_has_the_titles_of_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def request(recipe: Recipe, *_: Any) -> Any:
        asked.append(recipe.title)
        raise KeyboardInterrupt

    monkeypatch.setattr("app.reading.previews.preview_request", request)
    with pytest.raises(KeyboardInterrupt):
        preview_panel.draw_preview(Recipe.build("task_arithmetic", {}, [("manual", {"rules": "b0=0"})]), None, "here")
    assert asked == ["Manual (block 0 × 0) → Task Arithmetic"]


def test_no_word_in_a_quoted_name_is_explained() -> None:
    linked, used = glossary.link_words("Preview of “Task arithmetic” on each task.", ())
    assert used == ["preview", "task"]
    assert "[Preview]" in linked and "“Task arithmetic” on each [task]" in linked


def test_the_line_of_a_preview_names_its_chain() -> None:
    table = pd.DataFrame({"of": ["Manual → TIES"], "against": ["Pretrained"], "n": [8]})
    chart = ShownChart("preview_change", table, {}, {}, "preview", "", "", sources=[])
    assert provenance.provenance_line(chart).startswith("preview of Manual → TIES against Pretrained · n = 8 images")


@pytest.mark.full
def test_the_expert_to_give_a_layer_back_to_has_its_name(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_panel, "draw_preview", lambda *_: None)
    run = next(run for run in runs(library).values() if run.chain == ("task_arithmetic",))
    tensor = run.table("tensors")["tensor"].iloc[-1]
    at = open_app(
        "masks", library, run=run.id, tensor=tensor, action="give it back to an expert", action_expert="Flags"
    )
    assert not at.exception
    chosen = at.selectbox(key=address.ACTION_EXPERT)
    assert chosen.value == "flags"
    assert "Flags" in chosen.options


@pytest.mark.parametrize(
    "page",
    [("compare", {"compare_view": "charts", "chart": SALIENCY_CHART}), ("drift", {"drift_view": "layer by layer"})],
)
def test_a_tensor_can_be_chosen_and_followed_before_anything_is_measured(
    open_app: Any, library: Path, page: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.reading.measurements.find_measurement", lambda *_: None)
    run = next(run for run in runs(library).values() if run.chain == ("task_arithmetic",))
    tensor = run.table("tensors")["tensor"].iloc[-1]
    at = open_app(page[0], library, run=run.id, runs=run.id, tensor=tensor, **page[1])
    assert not at.exception
    assert picker(at, address.TENSOR).value == tensor
    assert "This tensor on" in words(at)
