"""Goals, verdicts, and the check of lessons."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import app_places
import pytest
from lesson_text import LESSON

from merging.base.files import atomic
from merging.base.files.plain_yaml import read_plain_yaml
from merging.base.settings import LIBRARY_FOLDER
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.teaching import lesson_check, paper_verdict
from merging.teaching.fact import Fact
from merging.teaching.goals import is_met
from merging.teaching.lesson import FactSpec, Goal, Lesson, Paper
from merging.teaching.lesson_context import LessonContext
from merging.teaching.lesson_files import list_lessons, parse_lesson, read_lesson
from merging.teaching.skeleton import make_skeleton

BUNDLED = {lesson.key: lesson for lesson in list_lessons()}


def of(context: LessonContext, lesson: Lesson) -> LessonContext:
    return LessonContext(context.store, context.benchmark, lesson)


def found(context: LessonContext, text: str) -> str:
    lesson = parse_lesson(text, Path("small.yaml"))
    return "\n".join(lesson_check.find_problems(lesson, of(context, lesson)))


# Goals


def test_a_goal_is_judged_from_the_address(small: LessonContext) -> None:
    at_least = Goal(key="ratio", low=0.8)
    assert [is_met(at_least, small, {"ratio": text}) for text in ("0.8", "0.79", "x", "")] == [
        True,
        False,
        False,
        False,
    ]
    assert is_met(at_least, small, {}) is False
    between = Goal(key="ratio", low=0.2, high=0.3)
    assert [is_met(between, small, {"ratio": text}) for text in ("0.3", "0.31", "nan")] == [True, False, False]
    assert is_met(Goal(key="density", equal=0.2), small, {"density": "0.20"})
    assert is_met(Goal(key="criterion", equal="in domain"), small, {"criterion": "in domain"})
    run = Goal(key="run", equal="@lw")
    assert is_met(run, small, {"run": small.find_id("lw")}) and is_met(run, small, {"run": small.find_id("lw")[:6]})
    assert not is_met(run, small, {"run": small.find_id("ta")}) and not is_met(run, small, {})
    assert not is_met(Goal(key="run", equal="@nowhere"), small, {"run": ""})


def test_a_goal_is_judged_from_facts(small: LessonContext) -> None:
    goal = small.lesson.steps[0].goal
    assert goal is not None
    view = small.resolve_view(small.lesson.steps[0].view)
    assert [is_met(goal, small, view | {"ratio": ratio}) for ratio in ("0.7", "0.9")] == [False, True]
    assert is_met(goal, small, {}) is None
    unknown = Goal(FactSpec("put_back", {"run": "lw", "over": "out"}), low=0)
    assert is_met(unknown, small, {}) is None


# Verdicts


def judged(monkeypatch: pytest.MonkeyPatch, context: LessonContext, said: list[float], *facts: Fact) -> str:
    left = list(facts)
    monkeypatch.setattr(paper_verdict, "compute_fact", lambda spec, context: left.pop(0))
    paper = Paper("lwptv", "", {str(n): value for n, value in enumerate(said)}, "%", (FactSpec("null"),) * len(facts))
    return paper_verdict.judge_paper(paper, context)


def test_a_verdict_follows_the_numbers(monkeypatch: pytest.MonkeyPatch, small: LessonContext) -> None:
    low, high = Fact(0.6, "%", 0.58, 0.62, half="choosing"), Fact(0.7, "%", 0.68, 0.72)  # on different images
    near, skewed = Fact(0.62, "%", 0.6, 0.64), Fact(0.66, "%", 0.655, 0.75)
    assert judged(monkeypatch, small, [51.3, 60.9], low, high) == "same direction"
    assert judged(monkeypatch, small, [60.9, 51.3], low, high) == "other direction"
    assert judged(monkeypatch, small, [51.3, 60.9], low, near) == "not reproduced here"
    assert (
        judged(monkeypatch, small, [1.0, 2.0], low, skewed) == "same direction"
    )  # only the ends toward each other count
    assert judged(monkeypatch, small, [2.0, 1.0], skewed, low) == "same direction"
    assert judged(monkeypatch, small, [51.3, 60.9], low, Fact(missing="x")) == "not reproduced here"
    assert judged(monkeypatch, small, [5.0, 5.0], low, high) == "not reproduced here"
    assert judged(monkeypatch, small, [3.0], Fact(0.1, "points", 0.01, 0.2)) == "same direction"
    assert judged(monkeypatch, small, [3.0], Fact(0.1, "points", -0.01, 0.2)) == "not reproduced here"
    assert judged(monkeypatch, small, [3.0], Fact(-0.1, "points", -0.2, -0.01)) == "other direction"


# The check


@pytest.mark.parametrize("key", BUNDLED)
def test_every_bundled_lesson_can_be_taught_on_the_bundled_library(small: LessonContext, key: str) -> None:
    assert lesson_check.find_problems(BUNDLED[key], of(small, BUNDLED[key])) == []


def test_without_a_library_every_fact_says_that_it_is_missing(benchmark_bundled: Benchmark, tmp_path: Path) -> None:
    empty = Store(tmp_path, libraries=(), benchmark=benchmark_bundled.digest)
    for lesson in BUNDLED.values():
        context = LessonContext(empty, benchmark_bundled, lesson)
        assert all(
            paper_verdict.judge_paper(step.paper, context) == "not reproduced here"
            for step in lesson.steps
            if step.paper
        )
        assert "is not stored" in lesson_check.find_problems(lesson, context)[0]
        assert any("not measured here" in text for _, text in lesson_check.fill_texts(lesson, context))


def test_the_skeleton_can_be_taught_as_it_is(small: LessonContext, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(make_skeleton("own"), encoding="utf-8")
    lesson = read_lesson(path)
    assert lesson_check.find_problems(lesson, of(small, lesson)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ratio: 0.7", "ratio: 0.9", "holds as soon as the step opens"),
        ("show: {ratio: 0.9}", "show: {ratio: 0.75}", "does not hold with the values of show"),
        ("  show: {ratio: 0.9}\n", "", "it has no show"),
        ("page: masks", "page: maskes", "no page 'maskes'. Did you mean 'masks'"),
        ("shared_mask: true}", "shared_mark: true}", "no key of the address 'shared_mark'. Did you mean 'shared_mask'"),
        ("saliency_matrix", "saliency_matrx", "no chart 'saliency_matrx'. Did you mean"),
        ("{kept} of", "some of", "The fact kept is declared and never used"),
        ("run: ta, over: out", "run: nowhere, over: out", r"fact of before .* unknown here: There is no run"),
        ("over: out", "over: kanna", "Did you mean 'kana'"),
        ("title: A small", "title: A small", "The run nowhere is not stored"),
        (
            "  hint:",
            "  claims: [{fact: accuracy, run: ta, over: out, at_least: 0.99}]\n  hint:",
            "its text claims that",
        ),
    ],
)
def test_the_check_finds(small: LessonContext, old: str, new: str, problem: str) -> None:
    import re

    assert re.search(problem, found(small, LESSON.replace(old, new, 1)))


def test_the_check_finds_numbers_that_were_typed(small: LessonContext) -> None:
    text = make_skeleton("small").replace("What is on the screen", "It falls to 69.4 % here")
    assert "a number is typed into the text (69.4 %)" in found(small, text)


def test_a_share_without_interval_is_found(small: LessonContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_check, "compute_fact", lambda spec, context: Fact(0.5, "%"))
    problems = found(small, LESSON)
    assert "The fact of before (accuracy) has no interval" in problems
    assert "(kept) has no interval" not in problems


def test_a_changed_table_changes_the_text(small: LessonContext, benchmark_bundled: Benchmark, tmp_path: Path) -> None:
    run = small.require_run("ta")
    folder = tmp_path / "runs" / run.id
    shutil.copytree(run.path, folder)
    rows = [line.split(",") for line in (folder / "scores.csv").read_text("utf-8").splitlines()]
    at = {name: rows[0].index(name) for name in ("correct", "accuracy")}
    for row in rows[1:]:
        row[at["correct"]], row[at["accuracy"]] = "0", "0.0"
    (folder / "scores.csv").write_text("\n".join(",".join(row) for row in rows) + "\n", "utf-8")
    (folder / atomic.MANIFEST).unlink()
    atomic.seal(folder)
    store = Store(tmp_path / "store", (tmp_path / "runs", LIBRARY_FOLDER), benchmark=benchmark_bundled.digest)
    changed = LessonContext(store, benchmark_bundled, small.lesson)
    texts = [lesson_check.fill_texts(one.lesson, one)[0][1] for one in (small, changed)]
    assert "69.8 %" in texts[0] and "it is 0.0 %" in texts[1]


def test_the_list_of_places_is_that_of_the_app() -> None:
    written: Any = read_plain_yaml(lesson_check.PLACES_FILE.read_text("utf-8"))
    assert written == app_places.places(), "Run tests/support/app_places.py"


def test_an_explanation_is_short(small: LessonContext) -> None:
    lesson = parse_lesson(make_skeleton("small"), Path("small.yaml"))
    steps = tuple(
        dataclasses.replace(step, say="word " * 121) if step.kind == "explain" else step for step in lesson.steps
    )
    long = dataclasses.replace(lesson, steps=steps)
    assert any(
        "at most 120 words; this one has 121" in text for text in lesson_check.find_problems(long, of(small, long))
    )
