"""The answers behind tables of accuracies give their numbers, and a second evaluation gives the same answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny

from merging.base.errors import StoreError
from merging.engine.evaluation.evaluate import evaluate_answers
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.measurements.parameter_kinds import NOTHING_RESET
from merging.study.runs.execute import execute
from merging.study.runs.run_answers import read_correctness
from merging.study.runs.run_store import Store
from merging.study.trials import drm_ablations, exemplar_sensitivity, task_counts
from merging.study.trials.exemplar_sensitivity import CANDIDATES, OWN_EXPERTS
from merging.study.trials.row_answers import RIGHT, join_answers, join_rows, name_answers, split_answers
from merging.tasks.context import Context

CPU = Context(device="cpu")
TABLES = {  # {table: its measurement}
    "accuracy": "exemplars", "weights": "exemplars", "ablations": "drm_ablations", "ranks": "drm_ablations",
    "counts": "task_counts", "ablation": "ablation",
}  # fmt: skip
BY_TASK = ["accuracy", "weights", "counts", "ablation"]  # tables with a row for each task
Measured = dict[str, StoredMeasurement]


@pytest.fixture(scope="module")
def made(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Measured]:
    """Small measurements of the tiny benchmark, and of a run with one model per task."""
    benchmark, store = Benchmark.load(tiny_folder), Store(tmp_path_factory.mktemp("answered"), libraries=())
    recipe = find_preset("emr").recipe(benchmark.pretrained, benchmark.experts)
    run = execute(recipe, store, benchmark=benchmark, context=CPU)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (exemplar_sensitivity, "COUNTS", (3,)), (exemplar_sensitivity, "SEEDS", (0, 1)),
            (exemplar_sensitivity, "CANDIDATES", CANDIDATES[::3]),
            (drm_ablations, "CUTS", (0.0, 0.2)), (drm_ablations, "VARIANTS", drm_ablations.VARIANTS[:2]),
            (task_counts, "PRESETS", ("ties_mean",)),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        found = {
            key: measure.measure(key, store, benchmark, run.id if key == "ablation" else "", context=CPU)
            for key in dict.fromkeys(TABLES.values())
        }
    return store, found


def read_rows(made: tuple[Store, Measured], name: str) -> pd.DataFrame:
    return join_answers(name, made[1][TABLES[name]].table)


@pytest.mark.parametrize("name", BY_TASK)
def test_answers_give_correct_and_n_of_every_row(made: tuple[Store, Measured], name: str) -> None:
    rows = read_rows(made, name)
    assert len(rows) >= 16
    for row in rows.to_dict("records"):
        ((task, right),) = row[RIGHT].items()
        assert (task, len(right), right.sum()) == (row["task"], row["n"], row["correct"])
        assert set(np.unique(right)) <= {0, 1}


@pytest.mark.parametrize("name", ["ablations", "ranks"])
def test_answers_of_all_tasks_give_the_averages_of_every_row(made: tuple[Store, Measured], name: str) -> None:
    rows = read_rows(made, name)
    assert len(rows) == 4
    for row in rows.to_dict("records"):
        means = {task: right.mean() for task, right in row[RIGHT].items()}
        assert set(means) == {*tiny.EXPERTS, *tiny.OUTSIDE}
        for column, tasks in (("in_domain", tiny.EXPERTS), ("out_of_domain", tiny.OUTSIDE)):
            assert row[column] == pytest.approx(np.mean([means[task] for task in tasks]), rel=1e-6)


def test_answers_are_of_the_model_that_the_row_names(made: tuple[Store, Measured], tiny_benchmark: Benchmark) -> None:
    store, _ = made
    lot = CANDIDATES[0].build_recipe(tiny_benchmark, 3, 1)
    drm = Recipe.build("drm", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    accuracy, ablations, weights = (read_rows(made, name) for name in ("accuracy", "ablations", "weights"))
    lot_rows = accuracy[accuracy.set_index(["method", "exemplars", "seed"]).index == ("LOT", 3, 1)]
    drm_rows = ablations[ablations["chain"] == drm.text()]
    assert (len(lot_rows), len(drm_rows)) == (4, 1)
    for recipe, rows in ((lot, lot_rows), (drm, drm_rows)):
        run = execute(recipe, store, benchmark=tiny_benchmark, context=CPU)
        expected = read_correctness(run, tiny_benchmark)
        assert expected is not None
        assert all((right == expected[task]).all() for task, right in join_rows(rows).items())
    for task, right in join_rows(weights[weights["solved"] == OWN_EXPERTS]).items():
        own = evaluate_answers(tiny_benchmark.experts[task], tiny_benchmark, splits=("reporting",), tasks=(task,))
        assert (own.correctness[task] == right).all()


def test_with_nothing_reset_answers_are_those_of_the_run(made: tuple[Store, Measured], tiny_benchmark) -> None:
    (run,) = (run for run in made[0].list_runs() if run.per_task)
    rows, expected = read_rows(made, "ablation"), read_correctness(run, tiny_benchmark)
    right = join_rows(rows[rows["kind"] == NOTHING_RESET])
    assert expected is not None and list(right) == list(tiny.EXPERTS)
    assert all((right[task] == expected[task]).all() for task in right)
    reset = join_rows(rows[rows["kind"] == "linear weights"])
    assert any((reset[task] != right[task]).any() for task in right)


@pytest.mark.parametrize("name", TABLES)
def test_shown_tables_have_no_answers(made: tuple[Store, Measured], name: str) -> None:
    measured = made[1][TABLES[name]]
    table, answers = measured.table(name), measured.table(name_answers(name))
    assert RIGHT not in table and list(answers) == [RIGHT] and len(answers) == len(table)
    frame = table.assign(right="x")
    parts = split_answers(name, frame)
    assert list(parts) == [name, f"{name}_answers"] and list(parts[name]) == list(table)


def test_damaged_answers_are_refused(made: tuple[Store, Measured]) -> None:
    measured = made[1]["task_counts"]

    def read(damaged: str, name: str) -> pd.DataFrame:
        table = measured.table(name)
        return table.assign(right=damaged) if name == name_answers("counts") else table

    with pytest.raises(StoreError, match="are damaged"):
        join_answers("counts", partial(read, '{"circles": [30, "AAAA"]}'))
    assert len(join_answers("counts", partial(read, "{}"))) == len(measured.table("counts"))
