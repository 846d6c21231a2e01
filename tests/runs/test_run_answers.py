"""The stored answers of runs give exactly their scores, on both halves, whoever computed them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import stored_runs
import tiny
import tiny_library
from hypothesis import given, settings
from hypothesis import strategies as st
from per_task_merge import KEY

from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.base.files.tables import read_unpacked
from merging.engine.evaluation.evaluate import evaluate, evaluate_answers
from merging.engine.outputs import MERGED
from merging.images.benchmarks.answers import ANSWERS
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_answers import has_answers, join_experts, read_correctness, read_run_answers
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

CPU = Context(device="cpu")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two merges, one with a model per task, and the references, on two data sets with fewer images."""
    return tiny_library.write(tmp_path_factory.mktemp("answered"), ("ties", "emr"), ("flags", "tiles"))


@pytest.fixture(scope="module")
def runs(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    store = Store(tmp_path_factory.mktemp("store"), libraries=(library / "runs",))
    return {run.title: run for run in store.list_runs()}


def check_answers(run: Run, benchmark: Benchmark) -> None:
    """The answers give every row of the scores."""
    assert run.scores is not None and has_answers(run, benchmark)
    seen = 0
    for split in SPLITS:
        answers, scores = read_run_answers(run, benchmark, split), run.scores[run.scores["split"] == split]
        right = read_correctness(run, benchmark, split)
        assert answers is not None and right is not None
        assert list(answers) == list(right) == scores["task"].tolist()
        for row in scores.to_dict("records"):
            one = answers[row["task"]]
            assert (one.labels == benchmark.load_labels(row["task"], split)).all() and len(one.labels) == row["n"]
            assert one.predicted.shape == one.margin.shape == (len(one.models), row["n"])
            assert right[row["task"]].mean() == pytest.approx(row["accuracy"], rel=1e-15)
            assert round(one.is_right.sum() / len(one.models)) == row["correct"]
            seen += 1
    assert seen == len(run.scores) == 2 * len(benchmark.tasks)


@pytest.mark.parametrize("title", ["Ties", "EMR-Merging", "Pretrained", "Trained on all tasks", "Expert for Flags"])
def test_answers_give_exactly_the_scores(library: Path, runs: dict[str, Run], title: str) -> None:
    check_answers(runs[title], Benchmark.load(library))


def test_modules_answer_with_what_they_add(tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    store = Store(tmp_path, libraries=())
    adapts = {"surgery": {"rank": 2, "steps": 5}, "twin": {"steps": 5}}
    for adapt in adapts.items():
        recipe = Recipe.build("task_arithmetic", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, adapt=adapt)
        check_answers(execute(recipe, store, benchmark=tiny_benchmark, context=CPU), tiny_benchmark)


@pytest.mark.usefixtures("doubles")
def test_a_merge_with_models_of_some_tasks_answers_with_all_of_them_elsewhere(
    tiny_benchmark: Benchmark, tmp_path: Path
) -> None:
    experts = {name: tiny_benchmark.experts[name] for name in ("circles", "digits")}
    recipe = Recipe.build(KEY, {}, [], tiny_benchmark.pretrained, experts)
    run = execute(recipe, Store(tmp_path, libraries=()), benchmark=tiny_benchmark, context=CPU)
    check_answers(run, tiny_benchmark)
    answers = read_run_answers(run, tiny_benchmark)
    assert answers is not None
    assert {task: one.models for task, one in answers.items()} == {
        task.key: (task.key,) if task.key in experts else tuple(experts) for task in tiny_benchmark.tasks
    }


def test_models_are_named_and_a_single_one_is_the_merged_one(library: Path, runs: dict[str, Run]) -> None:
    benchmark = Benchmark.load(library)
    single, several = (read_run_answers(runs[title], benchmark) for title in ("Ties", "EMR-Merging"))
    assert single is not None and several is not None
    assert {one.models for one in single.values()} == {(MERGED,)}
    assert {task: one.models for task, one in several.items()} == {
        task.key: (task.key,) if task.has_expert else tiny.EXPERTS for task in benchmark.tasks
    }


def test_answers_are_a_few_bytes_an_image_and_no_table_of_the_run(library: Path, runs: dict[str, Run]) -> None:
    run, benchmark = runs["Ties"], Benchmark.load(library)
    assert ANSWERS not in run.tables and ANSWERS in run.result.schemas
    packed = run.path / "tables" / f"{ANSWERS}.csv.gz"
    images = sum(benchmark.count_images(task.key, split) for task in benchmark.tasks for split in SPLITS)
    assert packed.stat().st_size < 8 * images and len(read_unpacked(packed)) > 2 * images


def test_evaluations_have_the_scores_of_evaluate_and_the_stored_answers(library: Path, runs: dict[str, Run]) -> None:
    benchmark = Benchmark.load(library)
    made = evaluate_answers(benchmark.pretrained, benchmark, splits=("reporting",), context=CPU)
    assert made.scores.equals(evaluate(benchmark.pretrained, benchmark, splits=("reporting",), context=CPU))
    stored = read_run_answers(runs["Pretrained"], benchmark)
    assert stored is not None and list(made.correctness) == list(stored)
    for one in made.answers:
        assert (one.predicted == stored[one.task].predicted).all()
        np.testing.assert_allclose(one.margin, stored[one.task].margin, atol=1e-3)
        assert (made.correctness[one.task] == stored[one.task].correctness).all()


def test_without_answers_or_on_another_benchmark_there_are_none(
    tiny_benchmark: Benchmark, other_benchmark: Benchmark, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = Recipe.build("weight_averaging", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark, context=CPU)
    assert read_correctness(run, tiny_benchmark) and read_run_answers(run, other_benchmark) is None
    stored_runs.remove_answers(run.path)
    given_scores = store.get_run(run.id)
    assert given_scores.has_scores and not has_answers(given_scores, tiny_benchmark)
    assert read_run_answers(given_scores, tiny_benchmark) is read_correctness(given_scores, tiny_benchmark) is None


def test_damaged_answers_are_refused(tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = Recipe.build("weight_averaging", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark, context=CPU)
    table = run.path / "tables" / f"{ANSWERS}.csv"
    text = read_unpacked(table.with_name(f"{table.name}.gz")).decode()
    for number, changed in enumerate((text.replace(",30,", ",29,", 1), text.replace("eN", "eM"))):
        assert changed != text
        table.with_name(f"{table.name}.gz").unlink(missing_ok=True)
        table.write_text(changed)
        (run.path / atomic.MANIFEST).unlink()
        atomic.seal(run.path)
        damaged = Store(store.root, libraries=(tmp_path / str(number),)).get_run(run.id)
        with pytest.raises(StoreError, match="Stored answers are"):
            read_correctness(damaged, tiny_benchmark)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_each_task_with_its_own_expert_is_right_where_that_is_and_elsewhere_the_mean(data) -> None:
    experts = data.draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=4))
    sizes = {task: data.draw(st.integers(1, 6)) for task in "abcde"}
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    right = {name: {task: (rng.random(n) < 0.5) * 1.0 for task, n in sizes.items()} for name in experts}
    joined = join_experts(right)
    assert list(joined) == list("abcde")
    for task, n in sizes.items():
        for image in range(n):
            votes = [right[task][task][image]] if task in experts else [right[name][task][image] for name in experts]
            assert joined[task][image] == pytest.approx(sum(votes) / len(votes))


def test_joined_experts_are_the_individual_row_of_the_scores(library: Path, runs: dict[str, Run]) -> None:
    from merging.images.benchmarks.metrics import individual

    benchmark = Benchmark.load(library)
    titles = {name: f"Expert for {benchmark.find_task(name).title}" for name in benchmark.experts}
    answers = {name: read_correctness(runs[title], benchmark) for name, title in titles.items()}
    joined = join_experts({name: right for name, right in answers.items() if right is not None})
    scores = individual({name: runs[title].scores for name, title in titles.items()})  # type: ignore[misc]
    rows = scores[scores["split"] == "reporting"].set_index("task")["accuracy"]
    assert {task: right.mean() for task, right in joined.items()} == pytest.approx(rows.to_dict())


def test_facts_of_a_run_say_which_tables_it_has(runs: dict[str, Run]) -> None:
    facts = json.loads((runs["Ties"].path / "run.json").read_bytes())
    assert set(facts["tables"][ANSWERS]) == {"task", "split", "n", "models", "predicted", "margin"}
