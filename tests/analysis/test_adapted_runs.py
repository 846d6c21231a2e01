"""Answers and measurements of runs with an adapt: through its modules, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merging.base.errors import TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.measure import measure
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_answers import read_run_answers
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

ADAPTS = {"surgery": {"rank": 4, "steps": 60, "lr": 0.05}, "twin": {"steps": 20}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def run(store: Store, tiny_benchmark: Benchmark) -> Any:
    def of(key: str = "", **options: Any) -> Run:
        adapt = (key, ADAPTS[key]) if key else None
        models = (tiny_benchmark.pretrained, tiny_benchmark.experts)
        recipe = Recipe.build("task_arithmetic", {}, [], *models, adapt=adapt)
        return execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"), **options)

    return of


@pytest.mark.full
@pytest.mark.parametrize(("key", "keep"), [("surgery", True), ("surgery", False), ("twin", False)])
def test_answers_are_those_of_the_scores_and_not_of_the_merge_without_modules(key, keep, run, tiny_benchmark) -> None:
    one, plain = run(key, keep_model=keep), read_run_answers(run(), tiny_benchmark)
    assert one.has_model == keep
    answers = read_run_answers(one, tiny_benchmark)
    scores = one.scores[one.scores["split"] == "reporting"].set_index("task")["correct"]
    assert {task: of_task.is_right.sum() for task, of_task in answers.items()} == scores.to_dict()
    assert any((answers[task].predicted != plain[task].predicted).any() for task in answers)


@pytest.mark.full
def test_surgery_moves_the_embedding_towards_the_experts_and_no_layer(run, store, tiny_benchmark) -> None:
    adapted, plain = (
        measure("drift", store, tiny_benchmark, one.id, context=Context("cpu")) for one in (run("surgery"), run())
    )
    keys = ["task", "model", "place", "token"]
    l1 = [of.table("cumulative").set_index(keys)["l1"].xs("merged", level="model") for of in (adapted, plain)]
    ends = l1[0].index.get_level_values("place") == "embedding"
    assert (l1[0][~ends] == l1[1][~ends]).all()
    assert (l1[0][ends] < l1[1][ends]).all()
    assert adapted.table("isolated").equals(plain.table("isolated"))


def test_what_would_leave_modules_out_is_refused(run, store, tiny_benchmark) -> None:
    surgery, twin = run("surgery"), run("twin")
    for key, one in (("put_back", surgery), ("first_order", surgery), ("ablation", surgery), ("drift", twin)):
        with pytest.raises(TaskError, match=f"{one.adapt} is on top of this run's merged model, and this"):
            measure(key, store, tiny_benchmark, one.id, context=Context(device="cpu"))
