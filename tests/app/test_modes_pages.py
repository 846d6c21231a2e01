"""Pages in the modes of a server for many: no control that fails, a way in its place, and links that open."""

from __future__ import annotations

import pytest
from page_harness import labels, runs, words

from merging.base import modes

STARTS = {
    "Run", "Measure", "Preview", "Start the sweep", "Resume", "Pause", "Open as a run", "Export the model", "Cancel",
    "Make the benchmark", "Check every number", "Drop the weights", "Add to the Merge page", "Run again", "Dismiss",
}  # fmt: skip
PAGES = {
    "merge": {},
    "sweeps": {},
    "drift": {},
    "models": {"models_view": "runs"},
    "image": {},
}


def controls(at):
    found = [button.label for button in at.button]
    return {label for label in found if label in STARTS or label.startswith(("Delete", "Compute ", "Export "))}


@pytest.mark.parametrize("page", PAGES)
def test_read_mode_starts_nothing_and_says_where_to(page, open_app, library, monkeypatch):
    merge = next(run.id for run in runs(library).values() if run.kind == "merge")
    query = PAGES[page] | ({"selected_runs": merge} if page == "models" else {})
    at = open_app(page, library, **query)
    assert controls(at) or at.get("file_uploader")  # else the rest would show nothing
    monkeypatch.setenv(modes.MODE_VARIABLE, "read")
    at = open_app(page, library, **query)
    assert not at.exception and not at.error
    assert controls(at) == set() and not at.get("file_uploader")
    assert "read mode" in words(at) and "own machine" in words(at)
    if page == "merge":
        assert "Recipe" in labels(at, "download_button")


def test_class_mode_merges_measures_and_previews(open_app, library, monkeypatch):
    monkeypatch.setenv(modes.MODE_VARIABLE, "class")
    at = open_app("merge", library)
    assert not at.exception and {"Run", "Preview"} <= controls(at)
    at.switch_page("screens/sweeps.py").run()
    assert controls(at) == set() and "class mode" in words(at)


def test_a_link_from_another_mode_opens(open_app, library, monkeypatch):
    monkeypatch.setenv(modes.MODE_VARIABLE, "read")
    chain = "task_arithmetic(scaling=0.4)"
    at = open_app("merge", library, chain=chain, presentation="1", preset="ties")
    assert not at.exception and not at.error
    assert "own machine" in words(at)


def test_an_unknown_mode_is_an_error_on_every_page(open_app, library, monkeypatch):
    monkeypatch.setenv(modes.MODE_VARIABLE, "clas")
    at = open_app("home", library)
    assert [error.value for error in at.error] and "MERGESCOPE" in at.error[0].value
    monkeypatch.delenv(modes.MODE_VARIABLE)  # before the fixture closes the queue
