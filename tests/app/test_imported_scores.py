"""Imported scores of runs of other networks: on Models & runs, Scores, Compare and Home; a sentence without."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import other_kinds
import pytest
from page_harness import charts, run_until_idle, words

from app.reading import page_data
from app.reading.runs.imported_runs import NO_SCORES
from merging.recipes.recipe import Recipe
from merging.study.imported_scores import checkpoint_id, find_scores, imported_scores, store_scores
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.score_files import parse_scores
from merging.tasks.context import Context

TABLE = (
    b"task,split,metric,value,n\nqasc,,accuracy,0.5,100\nrte,,accuracy,0.7,277\ncb,,accuracy,0.3,\n"
    b"book,,perplexity,9.5,\n"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A stored run of two experts of a T5."""
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tmp_path / "t5"))
    experts = other_kinds.write_team(tmp_path / "t5", "T5", ("qasc", "rte"))
    recipe = Recipe.build("ties", pretrained=experts.pop("pretrained"), experts=experts)
    return execute(recipe, Store(tmp_path / "store", libraries=()), context=Context(device="cpu"))


def give(run: Run, tmp_path: Path) -> None:
    store_scores(tmp_path / "store", run.id, parse_scores(TABLE, "elsewhere.csv"))


@pytest.mark.full
def test_without_scores_pages_say_how_to_give_some(open_app: Any, library: Path, run: Run) -> None:
    for page, query in (("models", {"models_view": "runs", "selected_runs": run.id}), ("scores", {"runs": run.id})):
        at = open_app(page, library, **query)
        assert not at.exception
        assert NO_SCORES in words(at)
        assert "Open diamonds" not in words(at)
    at = open_app("scores", library)
    assert not at.exception and "1 run of T5 has no scores." in words(at)


@pytest.mark.full
def test_given_scores_stand_apart_from_measured_ones(open_app: Any, library: Path, run: Run, tmp_path: Path) -> None:
    give(run, tmp_path)
    at = open_app("scores", library, runs=run.id)
    assert not at.exception and charts(at) == 1 and "From **elsewhere" in words(at)
    store_scores(tmp_path / "store", checkpoint_id(run.inputs["experts/rte"]), parse_scores(TABLE, "own.csv"))
    at = open_app("scores", library, runs=run.id)
    assert not at.exception and "From **own" in words(at)  # the expert that was merged, beside the run
    at = open_app("scores", library)
    assert at.session_state["compare"] and run.id not in at.session_state["compare"]
    at = open_app("compare", library, run=run.id, run_b=run.id)
    assert not at.exception and charts(at) == 1
    at = open_app("home", library)
    row = at.dataframe[0].value.set_index("id").loc[run.id]
    assert not at.exception and row[["in", "out", "h"]].isna().all()
    for words_of_score in ("◇ accuracy: ", "60.0% (2 tasks)", "30.0% (", "40.0% (", "from elsewhere"):
        assert words_of_score in row["imported"]


@pytest.mark.full
def test_a_program_measures_a_run_and_what_is_merged_next(
    open_app: Any, library: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"task": "rte", "metric": "accuracy", "value": 0.25, "n": 8}
    (tmp_path / "my_eval.py").write_text(f"print({json.dumps(line)!r})\n", "utf-8")
    monkeypatch.chdir(tmp_path)  # the jobs of the app start elsewhere
    monkeypatch.setenv("MERGESCOPE_EVALUATOR", f"{sys.executable} my_eval.py")
    at = open_app("models", library, models_view="runs", selected_runs=run.id)
    at.button(key="given_measure").click().run()
    at = run_until_idle(at)
    assert not at.exception
    found = find_scores(tmp_path / "store", run.id)
    assert found is not None and found.origin.endswith(" my_eval.py") and found.scores[0].value == 0.25
    experts = {name: f"models:t5/{name}.safetensors" for name in ("qasc", "rte")}
    recipe = Recipe.build("weight_averaging", pretrained="models:t5/pretrained.safetensors", experts=experts)
    job = page_data.job_queue().submit(recipe)
    run_until_idle(at)
    assert find_scores(tmp_path / "store", job.subject)


def scores_field(at: Any) -> Any:
    """The field that takes a table of scores; another one takes packs."""
    (field,) = (one for one in at.get("file_uploader") if "pack" not in one.label)
    return field


def test_a_file_is_taken_and_removed_and_goes_with_the_run(
    open_app: Any, library: Path, run: Run, tmp_path: Path
) -> None:
    at = open_app("models", library, models_view="runs", selected_runs=run.id)
    field = scores_field(at)
    field.upload("bad.csv", b"task,value\n", "text/csv").run()
    assert "bad.csv lacks the column metric" in words(at) or any("lacks" in error.value for error in at.error)
    field = scores_field(at)
    field.upload("elsewhere.csv", TABLE, "text/csv").run()
    assert not at.exception
    assert imported_scores(tmp_path / "store").list_locations()
    assert list(at.dataframe[-1].value["Value"]) == ["◇ 50.0%", "◇ 70.0%", "◇ 30.0%", "◇ 9.5"]
    at.button(key="given_remove").click().run()
    assert NO_SCORES in words(at)
    give(run, tmp_path)
    Store(tmp_path / "store", libraries=()).delete(run.id)
    assert not imported_scores(tmp_path / "store").list_locations()
