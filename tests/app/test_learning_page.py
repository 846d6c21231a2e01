"""The page Learning: every view on made-up runs, what it says where a run lacks one, and what its links restore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import learned_runs
import pytest
import tiny_library
from page_harness import charts, click, words

from merging import settings
from merging.runs.store import Store

VIEWS = {  # view -> a run that has it, and its charts
    "coefficients": (learned_runs.LAYERWISE, ["coefficient_map", "coefficient_steps", "coefficient_sums"]),
    "loss and gain": (learned_runs.LAYERWISE, ["learning_loss"]),
    "modules": (learned_runs.MODULES, ["feature_shift"]),
    "masks": (learned_runs.MASKED, ["localization_map", "localization_overlap"]),
    "storage": (learned_runs.ROUTED, ["storage_parts"]),
}


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_library.write(tmp_path_factory.mktemp("learned"), ("ties",))
    learned_runs.add(folder)
    return folder


def keys(at: Any) -> list[str]:
    """The charts on the page."""
    return [chart.proto.id.rpartition("chart_")[2] for chart in at.get("plotly_chart")]


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_draws_its_charts(open_app: Any, learned: Path, view: str) -> None:
    run, expected = VIEWS[view]
    at = open_app("learning", learned, run=run, learned=view)
    assert not at.exception and not at.error
    assert keys(at) == expected


def test_routing_shows_the_router_each_block_and_one_tasks_images(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.ROUTED)
    assert at.session_state["learned"] == "modules"  # the first view that this run has
    assert keys(at) == ["router_confusion", "routing_own", "routing_map"]
    assert "below the line" in words(at)


def test_a_run_with_a_coefficient_for_each_expert_shows_lines_only(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.TASKWISE)
    assert not at.exception
    assert keys(at) == ["coefficient_steps"]
    assert "one coefficient for each expert" in words(at)


def test_a_step_and_a_tensor_come_from_the_link(open_app: Any, learned: Path) -> None:
    tensor = "visual.proj"
    at = open_app("learning", learned, run=learned_runs.LAYERWISE, step="20", tensor=tensor, expert="flags")
    assert not at.exception
    assert at.select_slider(key="step").value == "20"
    described = [chart.proto.spec for chart in at.get("plotly_chart")]
    assert "at step 20" in described[0]
    assert "Of visual.proj" in words(at).replace("\\", "")


def test_a_click_on_the_map_chooses_its_tensor_and_expert(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.LAYERWISE)
    at = click(at, "coefficient_map", "Flags", "visual.proj")
    assert at.query_params["tensor"] == "visual.proj"
    assert at.query_params["expert"] == "flags"


def test_a_view_that_a_run_lacks_names_those_that_it_has(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=learned_runs.MASKED, learned="coefficients")
    assert charts(at) == 0
    assert "This run has no coefficients. It has: masks and storage." in words(at)
    at = next(button for button in at.button if button.label == "Masks").click().run()
    assert keys(at) == ["localization_map", "localization_overlap"]


def test_a_run_that_learned_nothing_says_so_and_offers_one_that_did(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run=run_of(learned, "ties"))
    assert "learned nothing" in words(at)
    at = next(button for button in at.button if button.label.startswith("Show ")).click().run()
    assert keys(at) == ["coefficient_steps"]  # of the first one by title


def run_of(folder: Path, *chain: str) -> str:
    return next(
        run.id
        for run in Store(libraries=(folder / "runs",)).runs()
        if run.chain == chain and run.id not in learned_runs.TITLES
    )


@pytest.mark.slow
def test_the_library_has_learned_runs_beside_those_with_coefficients_of_another_kind(open_app: Any) -> None:
    learned, computed = (
        next(run.id for run in Store(libraries=(settings.LIBRARY,)).runs() if run.title == title)
        for title in ("LW AdaMerging", "Model Stock, across tasks")
    )
    at = open_app("learning", settings.BUNDLED, run=learned, learned="coefficients", step="100", tensor="visual.proj")
    assert not at.exception and not at.error
    assert keys(at) == ["coefficient_map", "coefficient_steps", "coefficient_sums"]
    assert "learned nothing" in words(open_app("learning", settings.BUNDLED, run=computed))


def test_without_any_learned_run_the_page_says_what_it_would_show(open_app: Any, library: Path) -> None:
    at = open_app("learning", library)
    assert not at.exception
    assert charts(at) == 0
    assert "No run has learned anything yet" in words(at)


def test_a_link_to_a_run_that_is_not_here(open_app: Any, learned: Path) -> None:
    at = open_app("learning", learned, run="000000000000", step="7", learned="EVIL")
    assert not at.exception
    assert "does not have" in words(at)


# Marks beside scores


def test_scores_mark_what_adapted_on_the_scored_images_and_what_needs_each_images_task(
    open_app: Any, learned: Path
) -> None:
    shown = ",".join((learned_runs.LAYERWISE, learned_runs.MODULES, learned_runs.ROUTED))
    at = open_app("scores", learned, runs=shown)
    assert not at.exception
    assert "† Adapted on these images" in words(at) and "Marked ‡. Per task in domain" in words(at)
    plane, tasks = (json.loads(chart.proto.spec) for chart in at.get("plotly_chart")[:2])
    names = {trace["name"] for trace in plane["data"]}
    assert {"Merge that adapts on test data †", "Merge with a module per task ‡ †"} <= names
    assert "Modules for tasks † (a module per task)" in {trace["name"] for trace in tasks["data"]}
    table = at.dataframe[0].value.set_index("run")
    assert table.loc[learned_runs.LAYERWISE, "label"] == "Learned by tensor †"
    assert table.loc[learned_runs.MODULES, "kind"] == "a module per task ‡"
    assert "†" not in table.loc[learned_runs.ROUTED, "label"]


def test_compare_and_home_carry_the_marks(open_app: Any, learned: Path) -> None:
    at = open_app("compare", learned, run=learned_runs.LAYERWISE, b=learned_runs.MODULES)
    assert not at.exception
    assert "† Adapted on these images" in words(at) and "Per task in domain" in words(at)
    at = open_app("home", learned)
    assert "† adapted on the scored images" in words(at) and "a module per task ‡" in words(at)
