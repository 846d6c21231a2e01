"""Words on pages: sentences, durations, downloads without formulas, and no parameter named by the app."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from page_harness import MAIN

from app import page_text
from app.live.desk import EDITS, MERGES
from app.widgets.jobs.measure_button import origin_in_words
from merging.base.files import tables
from merging.base.text import duration_text
from merging.methods import registry
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_store import KIND, MEMORY_NOTE, StoredMeasurement
from merging.study.runs.run import THIS_MACHINE
from merging.tasks.results import Result


def test_sentences_name_what_counts() -> None:
    recipe = Recipe.build("ties", {"aggregation": "mean"}, [("lwptv", {"shared": False})])
    assert page_text.chain_words(recipe) == (
        "LwPTV (prune ratio 0.7, shared mask off), then TIES (density 0.2, aggregation mean, scaling coefficient 0.3)"
    )
    assert page_text.chain_title(recipe) == "LwPTV (shared mask off) → TIES (aggregation mean)"


def test_names_are_strings_also_where_no_key_has_one() -> None:
    keys = pd.Series(["a", "b"])
    assert list(page_text.look_up_names(keys, {"a": "A"})) == ["A", "b"] and list(
        page_text.look_up_names(keys, {})
    ) == ["a", "b"]
    assert list(page_text.look_up_names(keys, {"a": "A"}, "—")) == ["A", "—"] and list(
        page_text.look_up_names(keys, {}, "—")
    ) == ["—", "—"]


@pytest.mark.parametrize(("seconds", "says"), [(0.01, "0.1 s"), (7.25, "7.2 s"), (42, "42 s"), (200, "3 min 20 s")])
def test_durations(seconds: float, says: str) -> None:
    assert duration_text(seconds) == says


def test_downloads_hold_no_formulas() -> None:
    table = pd.DataFrame({"=1+1": ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tx", "plain"], "number": [-1.5] * 6})
    read = pd.read_csv(io.BytesIO(tables.csv_bytes(table)))
    assert list(read.columns) == ["'=1+1", "number"]
    assert all(not str(cell).startswith(("=", "+", "-", "@", "\t")) for cell in read["'=1+1"])
    assert read["number"].tolist() == [-1.5] * 6


def test_what_a_click_chooses_is_said_in_one_place() -> None:
    others = {  # what is painted, guessed, sorted
        "views/masks/paint_tools.py", "views/lessons/guess_widgets.py", "snapshot/lesson_pages.py",
        "views/scores/plugin_matrix.py", "screens/methods.py",
    }  # fmt: skip
    hint = re.compile(r"Click (a|an|one|up|{}) |, or choose|or click |[(]click ")
    places = {path for path in MAIN.parent.rglob("*.py") if hint.search(path.read_text("utf-8"))}
    assert {path.relative_to(MAIN.parent).as_posix() for path in places} - others == {"session/selection.py"}


OTHERS_WORDS = {  # words that mean something of the page's own, and happen to be some method's parameter, too
    # The parameters of what a browser merges as the engine does, and those of the manual edit.
    "live/desk.py": {*(name for names in (EDITS | MERGES).values() for name in names), "default", "rules", "when"},
    "screens/masks.py": {"shared", "block", "threshold", "weights"},  # a choice of the live picture
    "session/address.py": {"block", "density", "direction", "scope", "score"},  # keys of links
    "views/conflicts/sign_agreement.py": {"density", "rank_tol", "positions"},  # columns and notes of the measurement
    "reading/runs/network_values.py": {"density", "weights"},  # columns or values of the measurement of signs
    "views/drift/similarity.py": {"seed"},  # a note of the measurement
    "views/conflicts/spectra.py": {"direction"},  # a column of its table: singular vectors are numbered
    "views/conflicts/joint_space.py": {"renorm"},  # a column of its table
    "reading/papers/paper_facts.py": {"components", "weights"},  # a fact of claims, and a column of a table
    "views/compare/run_pair.py": {"scope"},  # a column of its table
    "views/compare/other_charts.py": {"direction", "threshold"},  # a column of its table: singular vectors are numbered
    "views/sweeps/sweep_form.py": {"alpha"},  # the key of interpolation coefficients
    "views/models/benchmark_form.py": {"seed"},  # of the draw of images
    "views/lessons/guess_widgets.py": {"across"},  # an option of a chart: its columns
    "views/image/neighbors.py": {"rank"},  # a column of its table
    "views/image/attention.py": {"block"},  # a column of its table
    "views/drift/lot_cases.py": {"weights"},  # a column of its table
    "views/runs/run_rows.py": {"weights"},  # a column of its table
    "screens/home.py": {"weights"},  # a column of a table
    "views/features/feature_maps.py": {"positions"},  # of points in the plane
    "views/features/joint_tables.py": {"positions"},  # the same
    "views/run_page/run_pictures.py": {"positions"},  # the same
    "views/sweeps/tuning_form.py": {"seed"},  # of the search
    "widgets/panels/network_panel.py": {"layer"},  # what a click on the map chooses: a layer in all blocks
    "reading/restored_tensors.py": {"block"},  # a level or a column of its table
    "views/drift/restoring.py": {"block"},  # a level or a column of its table
    "views/conflicts/linear_layers.py": {"block"},  # a level or a column of its table
    "views/learning/image_routing.py": {"block"},  # a level or a column of its table
    "widgets/panels/put_back_panel.py": {"block", "layer"},  # a level or a column of its table
    "session/selection.py": {"block", "layer"},  # what a click on the map chooses
    "status.py": {"mode"},  # of the server
    "reading/step_text.py": {"steps"},  # of a lesson
    "reading/figures.py": {"t"},  # Plotly's name of the margin at the top
    "views/learning/along_steps.py": {"steps"},  # columns or keys of its own
    "reading/previews.py": {"seed"},  # the same
    "reading/measurements.py": {"l1", "rank"},  # columns of its tables
    "views/drift/by_depth.py": {"l1"},  # the same
    "views/compare/image_agreement.py": {"margin_difference"},  # a column of its table
    "views/models/benchmark_options.py": {"seed"},  # of a draw of images
    "views/learning/learning_tables.py": {"routing"},  # a table of runs
    "views/scores/training_view.py": {"seed"},  # a column of its table: the seed of training
    "views/scores/robustness_view.py": {"seed"},  # a note of the measurement
    "views/merge/network_options.py": {"clip"},  # a value of the family that a recipe states
}


def test_the_app_names_no_parameter() -> None:
    names = {name for kind in (m.params for m in registry.list_methods()) for name in kind.bounds()}
    for path in sorted((MAIN.parent).rglob("*.py")):
        source = path.read_text("utf-8")
        named = {name for name in names if f'"{name}"' in source}
        place = path.relative_to(MAIN.parent).as_posix()
        assert named <= OTHERS_WORDS.get(place, set()), place


@pytest.mark.parametrize(
    ("value", "shown"), [(3.46, "+3.5"), (-2.7, "\N{MINUS SIGN}2.7"), (-0.04, "+0.0"), (1234.5, "+1,234.5")]
)
def test_differences_have_a_sign_and_zero_has_no_minus(value: float, shown: str) -> None:
    assert page_text.format_signed(value) == shown


def test_a_chain_names_only_the_parameters_that_count() -> None:
    learned = Recipe.build("localize_and_stitch", {"density": 0.1})
    words = page_text.chain_words(learned)
    assert "density 0.1" not in words.replace("initial density", "") and "steps 10" in words
    assert page_text.chain_title(learned) == "Localize-and-Stitch" and learned.text() == "localize_and_stitch"
    by_size = page_text.chain_words(Recipe.build("localize_and_stitch", {"localize": "magnitude"}))
    assert by_size == "Localize-and-Stitch (masks magnitude, density 0.05)"


def test_the_origin_of_a_measurement_says_where_memory_ran_out() -> None:
    short = StoredMeasurement(
        "drift",
        "",
        THIS_MACHINE,
        "GPU",
        1.0,
        {MEMORY_NOTE: "GPU ran out of memory."},
        Result(KIND, Path(), True, {}, {}, print),
    )
    assert origin_in_words([short]) == "Measured on this machine on GPU. GPU ran out of memory."
    assert origin_in_words([replace(short, notes={})]) == "Measured on this machine on GPU."
