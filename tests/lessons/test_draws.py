"""Facts on the same images have the same resamples, from which the uncertainty of a change is computed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from contexts import context_of
from lesson_text import LESSON
from small_sweeps import recipe, run

from merging.base.errors import LessonError
from merging.images.benchmarks.answers import pack_correctness
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.paired_scores import compare_models, find_interval, resample_accuracies
from merging.study.runs import execute
from merging.study.runs.run_answers import read_correctness
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Axis, Sweep
from merging.teaching import lesson_check, paper_verdict
from merging.teaching.fact import Fact
from merging.teaching.facts import curve_facts, feature_facts
from merging.teaching.facts.fact_computation import compute_fact
from merging.teaching.lesson import FactSpec, Paper
from merging.teaching.lesson_context import LessonContext
from merging.teaching.lesson_files import parse_lesson


@pytest.fixture(scope="module")
def context(tiny_benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> LessonContext:
    """A lesson whose two runs and sweep are computed on the tiny benchmark."""
    store = Store(tmp_path_factory.mktemp("store"), libraries=(), benchmark=tiny_benchmark.digest)
    plain = recipe(tiny_benchmark, edits=[], params={"scaling": 0.3})
    for scaling in (0.3, 0.6):
        merge = recipe(tiny_benchmark, edits=[], params={"scaling": scaling})
        execute.execute(merge, store, benchmark=tiny_benchmark, context=context_of({}))
    run(Sweep(recipes=(plain,), axes=(Axis("task_arithmetic.scaling", (0.0, 0.3, 0.6)),)), store, tiny_benchmark)
    text = LESSON.replace('chain: "task_arithmetic:scaling=0.123"', 'chain: "task_arithmetic:scaling=0.6"')
    text = text.replace("ta: {preset: task_arithmetic}", 'ta: {chain: "task_arithmetic:scaling=0.3"}')
    return LessonContext(store, tiny_benchmark, parse_lesson(text, Path("small.yaml")))


def fact(context: LessonContext, name: str, **arguments: Any) -> Fact:
    found = compute_fact(FactSpec(name, arguments), context)
    assert not found.missing, found.missing
    return found


def harmonic(inside: Any, outside: Any) -> Any:
    return 2 * inside * outside / (inside + outside)


def test_scores_of_runs_have_the_draws_of_their_answers(context: LessonContext) -> None:
    answers = read_correctness(context.require_run("ta"), context.benchmark)
    assert answers is not None
    draws = resample_accuracies({"": answers})[""]
    experts = set(context.benchmark.experts)
    inside = np.mean([draws[task] for task in draws if task in experts], axis=0)
    outside = np.mean([draws[task] for task in draws if task not in experts], axis=0)
    for over, expected in (("in", inside), ("out", outside), ("circles", draws["circles"])):
        np.testing.assert_allclose(fact(context, "accuracy", run="ta", over=over).draws, expected, atol=1e-12)
    np.testing.assert_allclose(fact(context, "h_score", run="ta").draws, harmonic(inside, outside), atol=1e-12)


def test_points_of_a_sweep_are_paired(context: LessonContext) -> None:
    for over in ("in", "h"):
        first, last = (fact(context, "swept", sweep="lam", at=value, over=over) for value in (0.0, 0.6))
        assert first.draws is not None and last.draws is not None and first.draws.shape == (10_000,)
        low, high = find_interval(last.draws - first.draws)
        assert low <= last.value - first.value <= high
    best = fact(context, "best", sweep="lam", by="h")
    by_value = {value: fact(context, "swept", sweep="lam", at=value, over="h") for value in (0.0, 0.3, 0.6)}
    chosen = by_value[fact(context, "best", sweep="lam", by="h", of="value").value]
    assert (best.value, best.draws is not None) == (chosen.value, True)
    np.testing.assert_array_equal(best.draws, chosen.draws)  # type: ignore[arg-type]


def test_the_best_point_has_a_lead_and_ties(context: LessonContext) -> None:
    scores = sorted(fact(context, "swept", sweep="lam", at=value, over="h").value for value in (0.0, 0.3, 0.6))
    lead = fact(context, "best", sweep="lam", by="h", of="lead")
    assert lead.value == pytest.approx(scores[-1] - scores[-2]) and lead.unit == "points"
    assert lead.low < lead.value < lead.high and (lead.half, lead.seed) == ("choosing", 0)
    ties = fact(context, "best", sweep="lam", by="h", of="ties")
    assert (ties.value >= 1) == (lead.low <= 0) and ties.text in "012"
    sure = fact(context, "best", sweep="lam", by="h", subject="in", least=0.1, of="certainty")
    assert "10,000 resamples of the images (seed 0)" in sure.source


def test_without_answers_the_interval_of_a_difference_is_unknown(
    context: LessonContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    paired = fact(context, "difference", run="nowhere", against="ta", over="in")
    new, old = (read_correctness(context.require_run(alias), context.benchmark) for alias in ("nowhere", "ta"))
    assert new is not None and old is not None
    row = compare_models(new, old, list(context.benchmark.experts)).iloc[0]
    assert (paired.value, paired.low, paired.high) == tuple(row[["difference", "low", "high"]])
    assert paired.source.endswith("image by image")

    monkeypatch.setattr("merging.teaching.facts.score_facts.read_correctness", lambda run, benchmark: None)
    without = LessonContext(context.store, context.benchmark, context.lesson)
    unknown = fact(without, "difference", run="nowhere", against="ta", over="in")
    assert unknown.value == pytest.approx(paired.value) and not unknown.has_interval
    assert unknown.source.endswith("without stored answers") and fact(without, "h_score", run="ta").draws is None
    spec = FactSpec("difference", {"run": "nowhere", "against": "ta", "over": "in"})
    paper = Paper("lwptv", "", {"": 3.0 * np.sign(unknown.value)}, "%", (spec,))
    assert paper_verdict.judge_paper(paper, without) == "not reproduced here"
    lesson = dataclasses.replace(context.lesson, facts={**context.lesson.facts, "change": spec})
    problems = lesson_check.find_problems(lesson, LessonContext(context.store, context.benchmark, lesson))
    assert any(text.startswith("The fact of change (difference) has no interval: ") for text in problems)


def test_exemplars_have_the_draws_of_their_images() -> None:
    right = [{"a": (np.arange(40) < 20 + seed) * 1.0, "b": np.ones(9)} for seed in (0, 4)]
    cells = [("LOT", 4, seed, task, one[task].mean(), len(one[task])) for seed, one in enumerate(right) for task in one]
    table = pd.DataFrame(cells, columns=["method", "exemplars", "seed", "task", "accuracy", "n"])
    packed = [pack_correctness({task: right[seed][task]}) for _, _, seed, task, *_ in cells]
    tables = {"accuracy": table, "accuracy_answers": pd.DataFrame({"right": packed})}
    measured = SimpleNamespace(table=tables.__getitem__, notes={"split": "reporting"})
    lesson: Any = SimpleNamespace(find_measurement=lambda key: measured)
    found = curve_facts.exemplars(lesson, {"method": "LOT", "n": 4})
    shares = {task: (right[0][task] + right[1][task]) / 2 for task in "ab"}
    draws = resample_accuracies({"": shares})[""]
    np.testing.assert_allclose(found.draws, (draws["a"] + draws["b"]) / 2, atol=1e-12)  # type: ignore[arg-type]
    assert found.value == pytest.approx((22 / 40 + 1) / 2) and found.n == 49


def test_a_difference_from_a_run_without_the_data_set_is_refused() -> None:
    tables = {
        alias: pd.DataFrame({"task": [task], "n": [9], "correct": [5], "silhouette": [0.1]})
        for alias, task in (("ours", "kana"), ("theirs", "greek"))
    }
    lesson: Any = SimpleNamespace(
        require_run=str,
        find_measurement=lambda key, run: SimpleNamespace(
            table=lambda name: tables[run], notes={"split": "choosing", "seed": 0}
        ),
    )
    assert feature_facts.neighbors(lesson, {"run": "ours", "task": "kana"}).value == pytest.approx(5 / 9)
    with pytest.raises(LessonError, match="hold no data set 'kana'"):
        feature_facts.neighbors(lesson, {"run": "ours", "against": "theirs", "task": "kana"})


def test_a_change_on_the_same_images_is_judged_by_its_own_draws(
    context: LessonContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 10_000)
    first = Fact(0.6, "%", 0.56, 0.64, half="reporting", draws=0.6 + noise)
    last = Fact(0.62, "%", 0.58, 0.66, half="reporting", draws=0.62 + noise + noise[::-1] / 10)
    paper = Paper("lwptv", "", {"a": 1.0, "b": 2.0}, "%", (FactSpec("accuracy"),) * 2)

    def judge(*facts: Fact) -> str:
        left = list(facts)
        monkeypatch.setattr(paper_verdict, "compute_fact", lambda spec, context: left.pop(0))
        return paper_verdict.judge_paper(paper, context)

    assert judge(first, last) == "same direction" and judge(last, first) == "other direction"
    apart = "not reproduced here"
    assert judge(first, dataclasses.replace(last, draws=None)) == apart
    assert judge(first, dataclasses.replace(last, half="choosing")) == apart
    assert judge(first, dataclasses.replace(last, seed=3)) == apart
    assert judge(first, dataclasses.replace(last, draws=0.62 + noise + noise[::-1])) == apart
    wide = dataclasses.replace(last, value=0.9, low=0.89, high=0.91, draws=None)
    assert judge(first, wide) == apart and judge(wide, first) == apart  # paired, but their change is unknown
    assert judge(first, dataclasses.replace(wide, half="choosing")) == "same direction"
    counted = [Fact(value, half="reporting") for value in (1.0, 2.0)]
    assert judge(*counted) == "same direction"  # without any interval
    ((name, theirs, ours),) = paper_verdict.describe_change(paper, [first, last])
    low, high = find_interval(100 * (last.draws - first.draws))  # type: ignore[operator]
    assert (name, theirs) == (paper_verdict.CHANGE, "+1 points")
    assert ours == f"+2.0 points (+{low:.1f} to +{high:.1f}, reporting half)"
    assert paper_verdict.describe_change(paper, [first, wide]) == []
    change = paper_verdict.find_paired_change([first, last])
    assert change is not None
    smallest = 100 * (1.959964 + 0.841621) / 1.959964 * (change.high - change.low) / 2
    said = f"A true difference of {smallest:.1f} points or more would be shown in 80% of samples like this."
    assert paper_verdict.describe_power(change) == said
    assert first == dataclasses.replace(first, draws=None) and "draws" not in repr(first)
