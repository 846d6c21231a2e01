"""Sweeps over chains that learn: what is varied, what they say of images they have seen, scores through modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_sweeps import read_points, recipe, run, value_of

from merging.base.errors import RecipeError
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_target as axes
from merging.study.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.tasks.context import Context

STEPS = Axis("surgery.steps", (0.0, 60.0))


def adapted(benchmark: Benchmark, **options: Any) -> Recipe:
    return recipe(benchmark, adapt=("surgery", {"rank": 2, "steps": 8, "lr": 0.05}), **options)


def test_what_an_adapt_and_its_images_have_can_be_varied(tiny_benchmark: Benchmark) -> None:
    one = adapted(tiny_benchmark, test_data={"per_task": 6})
    targets = {target.name for target in axes.list_targets([one])}
    assert {"surgery.rank", "surgery.lr", "test_data.per_task", "test_data.seed", "lwptv.prune_ratio"} <= targets
    assert value_of(one, "test_data.per_task") == 6 and value_of(adapted(tiny_benchmark), STEPS.target) == 8
    varied = axes.vary_recipe(one, "surgery.rank", 3)
    assert varied.adapt is not None and varied.adapt.params.values()["rank"] == 3
    assert (varied.merge, varied.edits, varied.test_data) == (one.merge, one.edits, one.test_data)
    fewer = axes.vary_recipe(one, "test_data.per_task", 2)
    assert fewer.test_data is not None and fewer.test_data.per_task == 2
    assert axes.vary_recipe(one, "task_arithmetic.scaling", 0.5).adapt == one.adapt


def test_it_says_where_it_is_judged_on_images_that_were_seen(tiny_benchmark: Benchmark, store: Store) -> None:
    made = Sweep(recipes=(adapted(tiny_benchmark),), axes=(STEPS,), images=4)
    assert "by which points are compared" in made.learning_note and "split: exemplars" in made.learning_note
    apart = Sweep(recipes=(adapted(tiny_benchmark, test_data={"split": "exemplars"}),), axes=(STEPS,), images=4)
    assert apart.learning_note == ""
    warnings: list[str] = []
    run(made, store, tiny_benchmark, warn=warnings.append)
    assert warnings[0] == made.learning_note
    run(apart, store, tiny_benchmark, warn=warnings.append)
    assert warnings.count(made.learning_note) == 1


def test_points_are_scored_through_the_modules(tiny_benchmark: Benchmark, store: Store, tmp_path: Any) -> None:
    made = Sweep(recipes=(adapted(tiny_benchmark),), axes=(STEPS,), images=0)
    run(made, store, tiny_benchmark)
    scores = {point.scores["correct"].sum() for point in read_points(made, store, tiny_benchmark).values()}
    runs = Store(tmp_path / "runs", libraries=())
    expected = set()
    for value in STEPS.values:
        stored = execute(
            axes.vary_recipe(adapted(tiny_benchmark), STEPS.target, value),
            runs,
            benchmark=tiny_benchmark,
            context=Context(device="cpu"),
        )
        assert stored.scores is not None
        expected.add(stored.scores[stored.scores["split"] == "choosing"]["correct"].sum())
    assert scores == expected and len(scores) == 2


def test_there_is_no_line_through_what_is_put_on_top(tiny_benchmark: Benchmark) -> None:
    with pytest.raises(
        RecipeError, match=r"A line varies weights only; remove the adapt on top of the model: .*surgery"
    ):
        Sweep(recipes=(adapted(tiny_benchmark),), axes=(Axis("alpha", (0.0, 1.0)),), kind=LINE)
    plane: Any = {"axes": (Axis("alpha", (0.0, 1.0)), Axis("beta", (0.0, 1.0))), "kind": PLANE}
    with pytest.raises(RecipeError, match="A plane varies weights only"):
        Sweep(recipes=(adapted(tiny_benchmark),), through=("pretrained", "circles", "digits"), **plane)


def test_a_recipe_that_is_not_on_the_line_changes_nothing(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path
) -> None:
    made, plain = (
        Sweep(recipes=(one,), axes=(Axis("alpha", (0.0, 0.5)),), kind=LINE, through=("circles", "digits"), images=4)
        for one in (adapted(tiny_benchmark), recipe(tiny_benchmark))
    )
    assert made.learning_note == "" and made.recipes[0].adapted_on == made.split
    tables = []
    for one, folder in ((made, store), (plain, Store(tmp_path / "plain", libraries=()))):
        run(one, folder, tiny_benchmark)
        tables.append({name: point.rows for name, point in read_points(one, folder, tiny_benchmark).items()})
    assert len(tables[0]) == 2 and tables[0] == tables[1]
