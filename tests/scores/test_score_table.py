"""Scores in one form: intervals and averages of proportions alone, and how they are stored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from merging.base.files.records import JsonRecords
from merging.base.files.tables import SCORES, Columns
from merging.images.benchmarks.metrics import wilson
from merging.sharing.evaluator_session import PROGRAMS_FOLDER, list_programs
from merging.study.imported_scores import FOLDER, delete_scores, find_scores, imported_scores, store_scores
from merging.study.runs.run_store import Store
from merging.study.score_table import GIVEN, H_SCORE, INSIDE, MEAN, MEASURED, OUTSIDE, PROGRAM, Score, ScoreTable
from merging.study.sweeps import points

RUN = "0" * 12


def given(*scores: Score) -> ScoreTable:
    return ScoreTable(GIVEN, "a.csv", scores)


def test_intervals_are_of_proportions_with_a_count() -> None:
    assert Score("rte", "accuracy", 0.66, n=100).interval == wilson(66, 100)
    assert Score("rte", "exact_match (strict)", 0.5, n=10).interval == wilson(5, 10)
    for score in (Score("rte", "accuracy", 0.66), Score("rte", "f1", 0.5, n=10), Score("c", "CIDEr", 1.1, n=5)):
        assert all(map(math.isnan, score.interval))


def test_averages_are_of_one_metric_in_and_out_of_domain() -> None:
    scores = given(
        Score("a", "accuracy", 0.8), Score("b", "accuracy", 0.4), Score("c", "accuracy", 0.5),
        Score("a", "exact_match", 0.1), Score("a", "CIDEr", 1.2), Score("a", "accuracy", 0.0, "test"),
    )  # fmt: skip
    metric, means = scores.means(("a", "b"))
    assert metric == "accuracy" and {name: tasks for name, (_, tasks) in means.items()} == {
        INSIDE: 2, OUTSIDE: 1, H_SCORE: 3,
    }  # fmt: skip
    assert [value for value, _ in means.values()] == pytest.approx([0.6, 0.5, 2 * 0.6 * 0.5 / 1.1])
    assert given(*scores.scores[:3]).means(()) == ("accuracy", {MEAN: (pytest.approx(1.7 / 3), 3)})
    assert given(Score("a", "perplexity", 9.0)).means(("a",)) == ("", {})


def test_accuracies_of_the_benchmark_have_the_same_form() -> None:
    row = {"task": "kana", "split": "reporting", "correct": 3, "n": 4, "accuracy": 0.75, "low": 0.3, "high": 0.95}
    table = ScoreTable.from_table(pd.DataFrame([row]), MEASURED, "CPU")
    assert table.scores == (Score("kana", "accuracy", 0.75, "reporting", 4),)
    (measured,), (other,) = table.rows(["kana"]), given(Score("rte", "f1", 0.5)).rows([])
    assert measured.keys() == other.keys() and (measured["source"], other["source"]) == (MEASURED, GIVEN)
    assert (measured["in_domain"], measured["low"], other["in_domain"]) == (True, wilson(3, 4)[0], False)


def test_scores_are_stored_replaced_and_forgotten(tmp_path: Path) -> None:
    one = given(Score("rte", "accuracy", 0.1 + 0.2, "test", 56), Score('a,"b"', "f1", -1e-300, better="lower"))
    store_scores(tmp_path, RUN, one)
    assert find_scores(tmp_path, RUN) == one and find_scores(tmp_path, "1" * 12) is None
    two = ScoreTable(PROGRAM, "my_eval.py", one.scores[:1])
    store_scores(tmp_path, RUN, two)
    assert find_scores(tmp_path, RUN) == two and list(imported_scores(tmp_path).list_locations()) == [RUN]
    path = tmp_path / FOLDER / RUN / "scores.csv"
    path.write_text(path.read_text().replace("0.3", "0.9"))
    assert find_scores(tmp_path, RUN) is None  # damaged, so it is set aside
    store_scores(tmp_path, RUN, one)
    delete_scores(tmp_path, RUN)
    delete_scores(tmp_path, RUN)
    assert find_scores(tmp_path, RUN) is None


WRONG: dict[str, dict[str, Any]] = {
    "accuracy above 1": {"metric": "accuracy", "value": 7.0},
    "no metric": {"metric": " "},
    "no direction": {"better": "sideways"},
    "infinite n": {"n": math.inf},
}


@pytest.mark.parametrize("part", WRONG.values(), ids=WRONG)
def test_wrong_scores_that_another_program_sealed_count_as_absent(part: dict[str, Any], tmp_path: Path) -> None:
    seal(tmp_path, "a.csv", Score(**{"task": "rte", "metric": "f1", "value": 0.5, **part}))
    assert find_scores(tmp_path, RUN) is None
    assert points.find_point(Store(tmp_path, libraries=()), RUN) is None


def test_names_that_another_program_sealed_bring_no_escapes_to_a_terminal(tmp_path: Path) -> None:
    hostile = "\x1b[2Jeval.py" + "x" * 200
    seal(tmp_path, hostile, Score("r\x1bte", "f1", 0.5))
    store = Store(tmp_path, libraries=())
    JsonRecords(tmp_path / PROGRAMS_FOLDER, points.VERSION).write("2" * 12, {"name": hostile})
    found, point = find_scores(tmp_path, RUN), points.find_point(store, RUN)
    assert found is not None and point is not None
    shown = [found.origin, point.program, *list_programs(store).values()]
    assert len(shown) == 3 and all(name.startswith("\\x1b[2Jeval.py") and len(name) < 90 for name in shown)
    assert {one.task for table in (found, point.score_table) for one in table.scores} == {"r\\x1bte"}


def seal(root: Path, origin: str, score: Score) -> None:
    """Store scores of a run and those of a point as a program would that does not check them."""
    tables = {SCORES: Columns(given(score).columns)}
    imported_scores(root).write(RUN, {"source": PROGRAM, "origin": origin, SCORES: {}}, tables)
    facts = {"name": RUN, "device": "CPU", PROGRAM: origin, SCORES: {}}
    points.point_results(Store(root, libraries=())).write(RUN, facts, tables)
