"""The best point of a sweep against the others, recomputed with numpy alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from contexts import context_of
from small_sweeps import read_points, recipe, run, sweep

from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import wilson
from merging.images.benchmarks.paired_scores import MOST_AT_ONCE, resample_accuracies
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_session
from merging.study.sweeps.best_points import (
    Answers,
    BestComparison,
    compare_with_best,
    name_points,
    read_point_answers,
)
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.requirement import Requirement, describe_draws, judge_points
from merging.study.sweeps.sweep import Axis, Sweep
from merging.study.sweeps.sweep_tables import average_rows, sweep_table

INSIDE, OUTSIDE, N = ("digits", "land"), ("kana", "greek"), 150
CHANCES = {"0.1": (0.55, 0.86), "0.2": (0.62, 0.85), "0.3": (0.64, 0.8), "0.6": (0.66, 0.5), "1": (0.3, 0.2)}


@pytest.fixture
def scaled(tiny_benchmark: Benchmark) -> Sweep:
    axis = Axis("task_arithmetic.scaling", (0.1, 0.2, 0.3, 0.6, 1.0))
    return Sweep(recipes=(recipe(tiny_benchmark, edits=[]),), axes=(axis,))


def answer() -> dict[str, dict[str, Any]]:
    """Answers of points, named by their values, that are right on mostly the same images."""
    rng = np.random.default_rng(1)
    ease = {task: rng.random(N) for task in (*INSIDE, *OUTSIDE)}
    return {
        point: {
            task: (ease[task] + rng.normal(0, 0.1, N) < (chances[0] if task in INSIDE else chances[1])) * 1.0
            for task in ease
        }
        for point, chances in CHANCES.items()
    }


def rows_of(answers: Answers) -> pd.DataFrame:
    cells = [
        (0, point, "", "CPU", "choosing", float(point), task, right.sum(), N, right.mean(),
         *wilson(int(right.sum()), N), task in INSIDE)
        for point, by_task in answers.items()
        for task, right in by_task.items()
    ]  # fmt: skip
    columns = ["line", "point", "run", "device", "split", "x", "task", "correct", "n", "accuracy", "low", "high"]
    return pd.DataFrame(cells, columns=[*columns, "in_domain"])


def compare(scaled: Sweep, answers: Answers, best: str, column: str = "h_score") -> BestComparison:
    found = rows_of(answer())
    return compare_with_best(scaled, found, average_rows(found), best, column, answers)


def harmonic(by_task: Any) -> Any:
    inside, outside = (sum(by_task[task] for task in tasks) / 2 for tasks in (INSIDE, OUTSIDE))
    return 2 * inside * outside / (inside + outside)


def test_the_lead_of_the_best_has_the_interval_of_the_largest_of_all_its_leads(scaled: Sweep) -> None:
    answers = answer()
    draws = {point: harmonic(by_task) for point, by_task in resample_accuracies(answers).items()}
    values = {point: harmonic({task: right.mean() for task, right in one.items()}) for point, one in answers.items()}
    best = max(values, key=lambda point: values[point])
    distances = []
    for other in set(values) - {best}:
        change = draws[best] - draws[other]
        distances.append(abs(change - values[best] + values[other]) / change.std(ddof=1))
    quantile = np.percentile(np.max(distances, axis=0), 95)
    found = compare(scaled, answers, best)
    assert (found.best, found.value, found.reason) == (best, pytest.approx(values[best]), "")
    ranked = sorted(set(values) - {best}, key=lambda point: -values[point])
    assert [other.point for other in found.others] == ranked
    for other in found.others:
        half = quantile * (draws[best] - draws[other.point]).std(ddof=1)
        assert other.lead == pytest.approx(values[best] - values[other.point])
        assert (other.lead_low, other.lead_high) == (pytest.approx(other.lead - half), pytest.approx(other.lead + half))
        assert other.is_tie == (other.lead <= half)
    assert found.ties == tuple(other.point for other in found.others if other.is_tie)
    assert 0 < len(found.ties) < 4 and found.default == "0.3"


def test_any_point_can_be_the_best_and_the_nearest_is_named_first(scaled: Sweep) -> None:
    """As of equal points, of which rounding decides."""
    found = compare(scaled, answer(), "0.1", "out_of_domain")
    assert found.others[0].point == "0.2" and found.column == "out_of_domain"
    below = compare(scaled, answer(), "0.3", "in_domain")
    assert below.others[0].lead < 0 and below.others[0].lead_low < below.others[0].lead < below.others[0].lead_high


def test_only_points_that_meet_the_bound_are_compared(scaled: Sweep) -> None:
    answers, found = answer(), rows_of(answer())
    table = judge_points(found, average_rows(found), Requirement("out", 0.7), answers)
    names = set(table.loc[table["meets"], "point"])
    compared = compare_with_best(scaled, found, table, "0.3", "in_domain", answers)
    assert {other.point for other in compared.others} == names - {"0.3"} and len(names) == 3
    assert "of 2 other points that meet the bound cannot be distinguished from it" in compared.in_words(
        {name: name for name in names}
    )
    alone = table.assign(meets=table["point"] == "0.3")
    assert "no other point" in compare_with_best(scaled, found, alone, "0.3", "in_domain", answers).reason
    none = table.assign(meets=False)
    assert compare_with_best(scaled, found, none, "0.3", "in_domain", answers).reason == "No point meets the bound."


def test_hundreds_of_points_are_compared_by_their_answers(scaled: Sweep) -> None:
    """In blocks, whose leads and certainties are those of all points at once."""
    few = answer()
    many = few | {f"{copy / 1000 + 2:g}": few["0.1"] for copy in range(MOST_AT_ONCE)}
    found = rows_of(many)
    averages = average_rows(found)
    compared = compare_with_best(scaled, found, averages, "0.2", "h_score", many)
    expected = compare(scaled, few, "0.2")
    assert len(compared.others) == len(many) - 1 > 250
    alike = {other.point: other for other in compared.others}
    assert all(alike[other.point] == other for other in expected.others)
    assert all(replace(alike[name], point="0.1") == alike["0.1"] for name in many if float(name) >= 2)
    table = judge_points(found, averages, Requirement("out", 0.8), many).set_index("point")
    assert table["by_image"].all() and (table["certainty"][[*many][5:]] == table["certainty"]["0.1"]).all()
    assert describe_draws(table) == "10,000 resamples of the images (seed 0)"


def test_what_cannot_be_compared_says_why(scaled: Sweep) -> None:
    answers, found = answer(), rows_of(answer())
    absent = compare(scaled, {point: answers[point] for point in ("0.1", "0.2")}, "0.2")
    assert not absent.others
    assert absent.reason.endswith("since the answers to images of 3 of 5 points are not stored or are damaged.")
    assert absent.in_words({"0.2": "0.2"}) == f"0.2 is best by H-score, {100 * absent.value:.1f} %. {absent.reason}"
    fewer = found[(found["point"] != "1") | (found["task"] != "land")]
    reason = compare_with_best(scaled, fewer, average_rows(fewer), "0.2", "in_domain", answers).reason
    assert reason == "Averages over different data sets are not compared."


def test_the_words_name_ties_the_next_and_the_default(scaled: Sweep) -> None:
    names = {point: f"λ {point}" for point in CHANCES}
    found = compare(scaled, answer(), "0.2")
    ties = ", ".join(names[point] for point in found.ties)
    assert found.in_words(names).startswith(
        f"λ 0.2 is best by H-score, {100 * found.value:.1f} %; {len(found.ties)} of 4 other points cannot be "
        f"distinguished from it ({ties}). It is {found.others[0]} better than "
    )
    lead = next(other for other in found.others if other.point == "0.3")
    assert f"{100 * lead.lead:.1f} points ({100 * lead.lead_low:.1f} to".replace("-", "−") in found.in_words(names)
    assert "the default (λ 0.3)" in found.in_words(names)
    assert replace(found, default="0.2").in_words(names).startswith("λ 0.2 (the default) is best")
    apart = replace(found, ties=())
    assert "cannot be distinguished" not in apart.in_words(names)
    assert "all 4 other points can be distinguished from it" in apart.in_words(names)
    averages = average_rows(rows_of(answer()))
    assert name_points(averages.assign(y=2.0), ["TA"])["0.1"] == "0.1 × 2"
    assert name_points(averages, ["TA", "TIES"])["0.1"] == "TA at 0.1"


def test_answers_of_points_and_of_runs_are_read(tiny_benchmark: Benchmark, store: Store) -> None:
    few = sweep(tiny_benchmark, images=7)
    run(few, store, tiny_benchmark)
    points = read_points(few, store, tiny_benchmark)
    answers = read_point_answers(points, few.sample, tiny_benchmark)
    assert {name: {task: right.sum() for task, right in one.items()} for name, one in answers.items()} == {
        name: dict(zip(point.scores["task"], point.scores["correct"], strict=True)) for name, point in points.items()
    }
    rows = sweep_table(few, sweep_session.plan_sweep(few, tiny_benchmark), points)
    averages = average_rows(rows)
    best = str(averages.loc[averages["h_score"].idxmax(), "point"])
    found = compare_with_best(few, rows, averages, best, "h_score", answers)
    assert [other.lead for other in found.others] == pytest.approx(
        sorted(averages["h_score"].max() - averages.loc[averages["point"] != best, "h_score"])
    )
    many = {f"{copy}": next(iter(points.values())) for copy in range(400)}
    assert read_point_answers(many, few.sample, tiny_benchmark).keys() == many.keys()
    damaged = {name: replace(point, table=point.scores.assign(predicted="AAAA")) for name, point in points.items()}
    damaged[best] = points[best]
    assert list(read_point_answers(damaged, few.sample, tiny_benchmark)) == [best]

    whole = sweep(tiny_benchmark)
    planned = sweep_session.plan_sweep(whole, tiny_benchmark)[0]
    stored = execute.execute(planned.point.recipe, store, benchmark=tiny_benchmark, context=context_of({}))
    known = KnownPoints([planned], store, tiny_benchmark, whole.sample.normalize_on(tiny_benchmark)).read_points()
    of_run = read_point_answers(known, whole.sample, tiny_benchmark)[planned.name]
    assert stored.scores is not None
    scores = stored.scores[stored.scores["split"] == "choosing"]
    assert {task: right.sum() for task, right in of_run.items()} == dict(
        zip(scores["task"], scores["correct"], strict=True)
    )
