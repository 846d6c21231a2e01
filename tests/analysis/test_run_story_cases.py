"""Sentences of small made-up runs: ties, no task out of domain, one expert, missing numbers, one model per task."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import stored_runs

from merging.base.files.tables import write_table
from merging.images.benchmarks.answers import SplitAnswers, make_answers_table
from merging.study import run_story
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_store import entry_name, write_measurement
from merging.study.analysis.measurement_subject import MeasurementResult
from merging.study.run_story import RunEvidence, RunFact, tell_story
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store

BENCHMARK: Any = SimpleNamespace(
    digest="of-the-test", tasks=tuple(SimpleNamespace(key=key) for key in "abc"),
    load_labels=lambda task, split: np.zeros(100, np.int64),
    find_task=lambda key: SimpleNamespace(class_names=("right", "wrong")),
)  # fmt: skip
RECIPE = "pretrained: p.safetensors\nexperts: {a: a.safetensors, b: b.safetensors}\nmerge: task_arithmetic\n"
INPUTS = {"pretrained": "0", "experts/a": "1", "experts/b": "2"}
Counts = dict[str, tuple[int, int]]  # {task: (correct, n)} on the reporting half


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


def write_run(
    store: Store,
    run_id: str,
    scores: Counts | None = None,
    recipe: str = RECIPE,
    first: int | None = None,
    **facts: Any,
) -> Run:
    """A stored run with a table "tensors" and these scores; ``facts`` may also be ``tables``.

    With ``first`` it has answers to 100 images of each task, which are right from that image on.
    """
    tables = {"tensors": tensors_table()} | facts.pop("tables", {})
    if first is not None and scores is not None:
        tables["answers"] = make_answers_table(
            answers_of(task, *counts, first) for task, counts in scores.items()
        ).frame()
    if scores is not None:
        rows = [(task, f"Task {task}", half, 2, correct if half == "reporting" else 0, n,
                 (correct / n if n else math.nan) if half == "reporting" else 0.0, 0.0, 1.0)
                for task, (correct, n) in scores.items() for half in ("choosing", "reporting")]  # fmt: skip
        names = ["task", "title", "split", "classes", "correct", "n", "accuracy", "low", "high"]
        tables["scores"] = pd.DataFrame(rows, columns=names)
        facts["benchmark"] = BENCHMARK.digest
    with store.write_run(run_id) as folder:
        schemas = {name: write_table(folder, name, table) for name, table in tables.items()}
        stored_runs.fill(folder, run_id, **{"experts": ["a", "b"], "inputs": INPUTS} | facts | {"tables": schemas})
        (folder / "recipe.yaml").write_text(recipe)
        (folder / "tables" / "saliency.csv").unlink()  # a stand-in
        for name, table in tables.items():
            write_table(folder, name, table)
    return store.get_run(run_id)


def answers_of(task: str, correct: int, n: int, first: int) -> SplitAnswers:
    predicted = np.roll((np.arange(n) >= correct).astype(np.int64), first)[None]
    return SplitAnswers(task, "reporting", ("merged",), predicted, np.zeros((1, n)), np.zeros(n, np.int64))


def tensors_table(
    change: tuple[float, ...] = (1.0, 2.0, 2.0), sections: tuple[str, ...] = ("embeddings", "block 0", "block 1")
) -> pd.DataFrame:
    count = len(change)
    return pd.DataFrame({
        "tensor": [f"t{i}" for i in range(count)], "order": range(count), "section": list(sections), "role": "linear",
        "part": "mlp", "numel": 100, "itemsize": 2, "kept_numel": 50, "change_norm": list(change),
        "pretrained_norm": 10.0,
    })  # fmt: skip


def write_references(store: Store, pretrained: Counts, first: int | None = None, **experts: tuple[int, int]) -> None:
    inputs = {"pretrained": "0"}
    write_run(store, "aaaaaaaaaaaa", pretrained, first=first, kind="pretrained", experts=[], inputs=inputs)
    for number, (task, counts) in enumerate(experts.items()):
        key = f"experts/{task}"
        write_run(
            store, f"bbbbbbbbbbb{number}", {task: counts}, first=first, kind="expert", experts=[task],
            inputs={key: INPUTS[key]},
        )  # fmt: skip


def write_measured(store: Store, run: Run, key: str, notes: dict[str, Any], **tables: pd.DataFrame) -> None:
    measurement = find_measurement(key)
    name = entry_name(measurement, store, BENCHMARK, run.id)
    facts = {"key": key, "version": measurement.version, "run": run.id, "device": "CPU"}
    assert name
    write_measurement(store, name, MeasurementResult(tables, notes), facts, time.monotonic())


def tell(store: Store, run: Run, **evidence: Any) -> dict[str, RunFact]:
    facts = tell_story(RunEvidence(run, store.list_runs(), store, **{"benchmark": BENCHMARK} | evidence))
    return {fact.key: fact for fact in facts}


def test_equal_losses_are_told_together(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100)}, a=(90, 100), b=(80, 100))
    facts = tell(store, write_run(store, stored_runs.ID, {"a": (70, 100), "b": (60, 100)}))
    assert facts["largest_loss"].sentence == (
        "Task a, Task b pay most of 2 tasks: 20.0 points below its expert (n = 200)."
    )
    assert facts["largest_loss"].numbers["tied"] == 2
    assert "closest_task" not in facts  # all are equally close


def test_answers_of_a_run_are_read_once_for_all_sentences(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    monkeypatch.setattr(run_story, "read_correctness", lambda run, _benchmark: read.append(run.id))
    write_references(store, {"a": (50, 100), "b": (50, 100)}, a=(90, 100), b=(80, 100))
    assert "accuracy" in tell(store, write_run(store, stored_runs.ID, {"a": (70, 100), "b": (60, 100)}))
    assert len(read) == len(set(read)) == 4  # the merge, the pretrained model and two experts


def test_ties_within_a_task_are_level_and_a_merge_may_be_above(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100)}, a=(70, 100), b=(60, 100))
    facts = tell(store, write_run(store, stored_runs.ID, {"a": (70, 100), "b": (90, 100)}))
    assert facts["largest_loss"].sentence == (
        "None of 2 tasks is below its expert; Task a is level with its expert (70.0% against 70.0%, n = 100)."
    )
    assert facts["closest_task"].sentence == (
        "Task a stays closest to its expert: level with it (70.0% against 70.0%, n = 100)."
    )


def test_an_unclear_loss_says_so(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100)}, 9, a=(72, 100), b=(60, 100))
    facts = tell(store, write_run(store, stored_runs.ID, {"a": (70, 100), "b": (60, 100)}, first=0))
    assert (
        "2.0 points below its expert (70.0% against 72.0%, n = 100; no clear difference, paired 95% interval −1"
        in facts["largest_loss"].sentence
    )
    assert facts["largest_loss"].numbers["low"] < 0 < facts["largest_loss"].numbers["high"]


def test_without_a_task_out_of_domain_only_the_domain_is_told(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100)}, 30, a=(90, 100), b=(80, 100))
    fact = tell(store, write_run(store, stored_runs.ID, {"a": (80, 100), "b": (76, 100)}, first=0))["accuracy"]
    assert fact.sentence.startswith(
        "Compared with the pretrained model, it gains 28.0 points in domain (paired 95% interval +2"
    )
    assert fact.sentence.endswith("2 tasks, n = 200).")
    assert "out" not in fact.sentence and not [name for name in fact.numbers if name.endswith("_out")]


def test_no_clear_difference_where_the_interval_includes_zero(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100), "c": (71, 100)}, 9, a=(90, 100), b=(80, 100))
    scores = {"a": (90, 100), "b": (80, 100), "c": (70, 100)}
    fact = tell(store, write_run(store, stored_runs.ID, scores, first=0))["accuracy"]
    assert "gains 35.0 points in domain" in fact.sentence
    assert "shows no clear difference out of domain (−1.0 points, paired 95% interval −" in fact.sentence
    assert fact.numbers["low_out"] < 0 < fact.numbers["high_out"]


def test_without_answers_to_each_image_differences_have_no_interval(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100), "c": (71, 100)}, a=(72, 100), b=(80, 100))
    run = write_run(store, stored_runs.ID, {"a": (70, 100), "b": (80, 100), "c": (70, 100)}, first=0)
    facts = tell(store, run)
    assert facts["accuracy"].sentence == (
        "Compared with the pretrained model, it differs by +25.0 points in domain (no interval; 2 tasks, n = 200) and "
        "differs by −1.0 points out of domain (no interval; 1 task, n = 100)."
    )
    assert math.isnan(facts["accuracy"].numbers["low_in"]) and math.isnan(facts["largest_loss"].numbers["high"])
    assert facts["largest_loss"].sentence == (
        "Task a pays most of 2 tasks: 2.0 points below its expert (70.0% against 72.0%, n = 100)."
    )
    assert tell(store, run, benchmark=None)["accuracy"].sentence.count("no interval") == 2


def test_one_expert_pays_nothing_more_than_others(store: Store) -> None:
    write_references(store, {"a": (50, 100)}, a=(90, 100))
    recipe = "pretrained: p.safetensors\nexperts: {a: a.safetensors}\nmerge: task_arithmetic\n"
    inputs = {"pretrained": "0", "experts/a": "1"}
    run = write_run(store, stored_runs.ID, {"a": (40, 100)}, recipe, experts=["a"], inputs=inputs)
    facts = tell(store, run)
    assert facts["largest_loss"].sentence == (
        "On Task a it is 50.0 points below its expert (40.0% against 90.0%, n = 100)."
    )
    assert "1 task, n = 100" in facts["accuracy"].sentence
    assert not {"closest_task", "experts"} & set(facts)  # nothing to compare, and nothing to measure


def test_references_of_other_models_or_benchmarks_are_not_used(store: Store) -> None:
    write_references(store, {"a": (50, 100)}, a=(90, 100))
    other_models = INPUTS | {"pretrained": "9", "experts/a": "9"}
    facts = tell(store, write_run(store, stored_runs.ID, {"a": (40, 100)}, inputs=other_models))
    assert not {"accuracy", "largest_loss"} & set(facts)


def test_tasks_without_images_are_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BENCHMARK, "load_labels", lambda task, split: np.zeros(100 * (task == "a"), np.int64))
    write_references(store, {"a": (50, 100), "b": (0, 0)}, 9, a=(90, 100), b=(0, 0))
    facts = tell(store, write_run(store, stored_runs.ID, {"a": (45, 100), "b": (0, 0)}, first=0))
    assert "shows no clear difference in domain (−5.0 points, " in facts["accuracy"].sentence
    assert facts["accuracy"].numbers["tasks_in"] == 1
    assert facts["largest_loss"].numbers["tasks"] == 1
    assert all(math.isfinite(number) for fact in facts.values() for number in fact.numbers.values())


def test_a_run_without_scores_tells_of_its_weights(store: Store) -> None:
    """Of a network other than CLIP, whose images nobody can evaluate."""
    run = write_run(store, stored_runs.ID, network="T5")
    facts = tell(store, run)
    assert list(facts) == ["move", "experts"]
    assert facts["move"].sentence == (
        "It moves 50.0% of the scalars, and the weights by 17.3% of their norm, most in block 0: by 20.0% "
        "(3 tensors, n = 300)."
    )  # of equal sections the first
    assert (facts["experts"].sentence, facts["experts"].measurement) == ("", "pairs")
    assert list(tell(store, run, benchmark=None)) == ["move"]


def test_missing_norms_are_left_out_and_no_change_is_told(store: Store) -> None:
    run = write_run(store, stored_runs.ID, tables={"tensors": tensors_table((math.nan, 0.0, 3.0))})
    assert tell(store, run)["move"].numbers == pytest.approx(
        {"move": math.sqrt(9 / 200), "largest": 0.3, "changed": 0.5, "tensors": 2, "n": 200}
    )
    unchanged = write_run(store, stored_runs.OTHER, tables={"tensors": tensors_table((0.0, 0.0, 0.0))})
    assert tell(store, unchanged)["move"].sentence == "It leaves the weights as pretrained (3 tensors, n = 300)."


def test_masks_of_each_expert_are_told_apart(store: Store) -> None:
    finals = {"a": (True, True, False), "b": (True, False, False)}
    rows = [(f"t{i}", expert, 10 * (i + 1), kept) for expert, marks in finals.items() for i, kept in enumerate(marks)]
    saliency = pd.DataFrame(rows, columns=["tensor", "expert", "numel", "final"])
    fact = tell(store, write_run(store, stored_runs.ID, tables={"saliency": saliency}))["masks"]
    assert fact.sentence == "It keeps 2 of 3 tensors for at least one expert, 1 for all: 50.0% of 60 scalars."


def test_pruned_and_missing_coefficients_do_not_count(store: Store) -> None:
    table = pd.DataFrame({
        "expert": ["a", "a", "b", "b"], "tensor": ["t0", "t1", "t0", "t1"], "order": [0, 1, 0, 1],
        "coefficient": [0.5, math.nan, 0.1, 9.0], "pruned": [False, False, False, True],
    })  # fmt: skip
    fact = tell(store, write_run(store, stored_runs.ID, tables={"coefficients": table}))["coefficients"]
    assert fact.sentence == (
        "It learned 2 coefficients from 0.10 to 0.50, 0.30 on average; those of a are largest on average (0.50)."
    )
    other = table.drop(columns="expert")  # as Model Stock writes it: computed, not learned
    assert "coefficients" not in tell(store, write_run(store, stored_runs.OTHER, tables={"coefficients": other}))


def changes_table(*rows: tuple[str, str, str, float, float, float]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["level", "name", "over", "change", "low", "high"])
    return table.assign(n=64)


def test_putting_back_falls_back_on_the_domain_and_says_if_nothing_helps(store: Store) -> None:
    run = write_run(store, stored_runs.ID, {"a": (1, 2)})
    table = changes_table(
        ("tensor", "t1", "in domain", 0.02, -0.01, 0.05),
        ("block", "block 1", "in domain", 0.02, -0.01, 0.05),
        ("block", "block 0", "in domain", math.nan, math.nan, math.nan),
        ("kind", "linear", "in domain", 0.5, 0.4, 0.6),
    )
    write_measured(store, run, "put_back", {"images": 32}, changes=table)
    fact = tell(store, run)["put_back"]
    assert fact.sentence == (
        "Nothing put back clearly helps; the best is block 1 with +2.0 points in domain (paired 95% interval −1.0 to "
        "+5.0; measured on 32 images a task, n = 64; best of 2 tried, not corrected for the choice)."
    )
    assert (fact.block, fact.tensor) == ("block 1", "")


def test_a_tensor_may_gain_most_and_the_output_is_a_part(store: Store) -> None:
    run, other = (write_run(store, run_id, {"a": (1, 2)}) for run_id in (stored_runs.ID, stored_runs.OTHER))
    rows = [("block", "output", "out of domain", 0.03, 0.01, 0.05), ("tensor", "t2", "in domain", 0.9, 0.8, 1.0)]
    better = ("tensor", "t\u202e2", "out of domain", 0.04, 0.02, 0.06)
    write_measured(store, run, "put_back", {"images": 32}, changes=changes_table(*rows, better))
    write_measured(store, other, "put_back", {"images": 32}, changes=changes_table(*rows))
    fact = tell(store, run)["put_back"]
    assert fact.sentence.startswith("Putting t\\u202e2 back would give +4.0 points out of domain")
    assert fact.tensor == "t\u202e2"
    assert tell(store, other)["put_back"].sentence.startswith("Putting the output back would give +3.0 points")


def test_an_estimate_says_so_and_what_would_replace_it(store: Store) -> None:
    run = write_run(store, stored_runs.ID, {"a": (1, 2)})
    rows = [("t0", "out of domain", -0.1), ("t1", "out of domain", 0.0125), ("t2", "in domain", 0.5)]
    table = pd.DataFrame(rows, columns=["tensor", "over", "put_back"])
    write_measured(store, run, "first_order", {"images": 32}, changes=table)
    fact = tell(store, run)["put_back"]
    assert fact.sentence == (
        "Putting t1 back would raise the mean margin out of domain most, by 0.0125 (cosines; an estimate to first "
        "order on 32 images a task)."
    )
    assert (fact.tensor, fact.measurement) == ("t1", "put_back")


def drift_table(*cosines: float) -> pd.DataFrame:
    names = ["stem", *(f"block {b}" for b in range(len(cosines) - 2)), "embedding"]
    rows = [
        ("a", model, name, position, token, value * (model == "merged") * (token == "class"), 40)
        for model in ("merged", "pretrained")
        for position, (name, value) in enumerate(zip(names, cosines, strict=True))
        for token in ("class", "mean")
    ]
    return pd.DataFrame(rows, columns=["task", "model", "place", "position", "token", "cosine", "n"])


def test_drift_is_the_growth_within_a_block_and_of_equal_blocks_the_first(store: Store) -> None:
    run = write_run(store, stored_runs.ID, {"a": (1, 2)})
    write_measured(store, run, "drift", {}, cumulative=drift_table(0.0, 0.25, 0.375, 0.625, 2.0))
    fact = tell(store, run)["drift"]
    assert fact.sentence == (
        "Features drift most in block 0: there the class token's mean distance from the experts' (1 − cosine) grows "
        "from 0.000 to 0.250 (1 task, n = 40, choosing half)."
    )


def test_drift_that_does_not_grow_is_not_told(store: Store) -> None:
    run = write_run(store, stored_runs.ID, {"a": (1, 2)})
    write_measured(store, run, "drift", {}, cumulative=drift_table(0.5, 0.4, 0.4, 0.3, 0.9))
    assert "drift" not in tell(store, run)


def test_sections_without_shared_entries_are_left_out(store: Store) -> None:
    run = write_run(store, stored_runs.ID)
    tensors = tensors_table()[["tensor", "order", "section"]]
    pairs = pd.DataFrame(
        {"order": [0, 1, 2], "first": "a", "second": "b", "both_1": [0, 100, 50], "opposed_1": [0, 60, 30]}
    )
    squares = pd.DataFrame({"order": [0, 0], "expert": ["a", "b"], "square": [4.0, 9.0]})
    write_measured(store, run, "pairs", {}, tensors=tensors, pairs=pairs, experts=squares)
    fact = tell(store, run)["experts"]
    assert fact.sentence == (
        "Before any edit, signs conflict most in block 0: 60.0% of 100 entries that both experts of a pair change are "
        "opposed (random signs: 50%); b has the largest of 2 updates (norm 3.00, the smallest 2.00)."
    )
    assert (fact.block, fact.expert) == ("block 0", "b")


def test_a_merge_with_a_model_for_each_task_and_one_that_learned_on_the_test_images_say_so(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100)}, a=(90, 100), b=(80, 100))
    rows = [(expert, f"t{i}", 50, 1.0) for expert in "ab" for i in range(3)]
    by_task = pd.DataFrame(rows, columns=["expert", "tensor", "kept_numel", "change_norm"])
    counts = {"a": (88, 100), "b": (79, 100)}
    run = write_run(store, stored_runs.ID, counts, per_task=True, tables={"task_tensors": by_task},
                    sizes={"files": 2000, "header": 0, "dead": 0})  # fmt: skip
    facts = tell(store, run)
    assert facts["accuracy"].sentence.endswith("In domain each image's task must be known.")
    assert facts["size"].sentence == "A user of it needs 2 kB, 2.00 times one model: models, one per task 2 kB."
    assert ", root mean square over models" in facts["move"].sentence
    learned = tell(store, write_run(store, stored_runs.OTHER, counts, adapted_on="reporting"))
    assert learned["accuracy"].sentence.endswith("† It learned, without labels, on these images.")
    assert "size" not in learned


def test_modules_are_named_and_measurements_that_would_leave_them_out_are_not_asked_for(store: Store) -> None:
    write_references(store, {"a": (50, 100), "b": (50, 100)}, a=(90, 100), b=(80, 100))
    counts = {"a": (88, 100), "b": (79, 100)}
    asked = {
        adapt: [fact.measurement for fact in tell(store, run).values() if not fact.sentence]
        for number, adapt in enumerate(("", "surgery", "twin"))
        for run in [write_run(store, f"ccccccccccc{number}", counts, RECIPE + (f"adapt: {adapt}\n" if adapt else ""),
                              adapt=adapt)]
    }  # fmt: skip
    assert asked == {"": ["drift", "put_back", "pairs"], "surgery": ["drift", "pairs"], "twin": ["pairs"]}
    facts = tell(store, store.get_run("ccccccccccc2"))
    assert facts["accuracy"].sentence.startswith("With its modules, compared with the pretrained model, it differs by")
    assert facts["move"].sentence.startswith("Without its modules, it moves")


def test_titles_may_be_given_and_are_made_safe(store: Store) -> None:
    write_references(store, {"a": (50, 100)}, a=(90, 100))
    run = write_run(store, stored_runs.ID, {"a": (40, 100)})
    assert tell(store, run, titles={"a": "Left\u202eright"})["largest_loss"].sentence.startswith(
        "On Left\\u202eright it"
    )


def test_an_evaluation_without_a_merge_has_no_story(store: Store) -> None:
    write_references(store, {"a": (50, 100)}, a=(90, 100))
    assert [tell(store, run) for run in store.list_runs()] == [{}, {}]
