"""Points of sweeps keep the predicted class of every image, which give their scores whoever computed them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sweeps import RATIO, read_points, recipe, run, sweep

from merging.base.errors import StoreError
from merging.base.files.tables import Columns
from merging.engine.evaluation.evaluate import evaluate_answers
from merging.images.benchmarks.answers import ANSWERS
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs import execute
from merging.study.runs.run_answers import read_correctness
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_session
from merging.study.sweeps.points import PREDICTED_COLUMN, Point, PointSample, SampledBenchmark, add_predictions
from merging.study.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.study.sweeps.sweep_target import EXPERTS
from merging.tasks.workers.workers import Workers

PLANE_AXES = (Axis("alpha", (0.0, 1.0)), Axis("beta", (0.0, 0.5)))
PAIR = ("pretrained", "circles", "digits")
SWEEPS = {
    "all images": {},
    "a sample": {"images": 7, "seed": 3},
    "two recipes": {"merges": ("task_arithmetic", "ties")},
    "the reporting half": {"split": "reporting", "images": 5},
    "a line": {"kind": LINE, "axes": (Axis("alpha", (0.5, 1.0)),)},
    "a plane": {"kind": PLANE, "axes": PLANE_AXES, "images": 6, "through": PAIR},
    "numbers of experts": {"axes": (Axis(EXPERTS, (2.0, 4.0)),)},
    "a model per task": {"merges": ("emr",), "axes": (Axis(RATIO.target, (0.2, 0.7)),), "images": 9},
}


def make_sweep(benchmark: Benchmark, name: str) -> Sweep:
    said = dict(SWEEPS[name])
    return sweep(benchmark, *said.pop("merges", ()), **said)


def check_points(made: Sweep, found: dict[str, Point], benchmark: Benchmark) -> None:
    """The answers of every point are those to the images of its sample, and give its scores."""
    sampled = SampledBenchmark.from_benchmark(benchmark, made.sample.normalize_on(benchmark))
    for point in found.values():
        right = point.read_correctness(sampled)
        assert right is not None and list(right) == point.scores["task"].tolist()
        for row in point.scores.to_dict("records"):
            assert len(right[row["task"]]) == row["n"] == len(sampled.load_images(row["task"], made.split)[1])
            assert right[row["task"]].mean() == pytest.approx(row["accuracy"], rel=1e-15)


@pytest.mark.parametrize("name", SWEEPS)
def test_predictions_give_the_score_of_each_task(tiny_benchmark: Benchmark, store: Store, name: str) -> None:
    made = make_sweep(tiny_benchmark, name)
    run(made, store, tiny_benchmark)
    found = read_points(made, store, tiny_benchmark)
    assert len(found) == len({one.name for one in sweep_session.plan_sweep(made, tiny_benchmark)})
    check_points(made, found, tiny_benchmark)


def test_a_model_per_task_answers_other_data_sets_with_all_of_them(tiny_benchmark: Benchmark, store: Store) -> None:
    made = make_sweep(tiny_benchmark, "a model per task")
    run(made, store, tiny_benchmark)
    sampled = SampledBenchmark.from_benchmark(tiny_benchmark, made.sample.normalize_on(tiny_benchmark))
    shares = set()
    for point in read_points(made, store, tiny_benchmark).values():
        right = point.read_correctness(sampled)
        assert right is not None
        assert all(set(np.unique(right[task])) <= {0, 1} for task in tiny.EXPERTS)
        shares |= {float(share) for task in tiny.OUTSIDE for share in right[task]}
    assert shares <= {0, 0.25, 0.5, 0.75, 1} and len(shares) > 2


@pytest.mark.parametrize("name", ["a sample", "a model per task", "a plane"])
def test_points_from_workers_are_those_of_this_process(tiny_benchmark: Benchmark, store: Store, name: str) -> None:
    made, other = make_sweep(tiny_benchmark, name), Store(store.root / "other", libraries=())
    run(made, store, tiny_benchmark)
    with ThreadPoolExecutor(2) as pool:
        run(made, other, tiny_benchmark, workers=Workers(pool, 2))
    here, there = (read_points(made, one, tiny_benchmark) for one in (store, other))
    assert list(here) == list(there)
    for point_name, point in here.items():
        assert point.scores[PREDICTED_COLUMN].tolist() == there[point_name].scores[PREDICTED_COLUMN].tolist()


def test_a_point_of_a_stored_run_has_its_predictions(tiny_benchmark: Benchmark, store: Store) -> None:
    chain = recipe(tiny_benchmark)
    stored = execute.execute(chain, store, benchmark=tiny_benchmark)
    sample = PointSample("reporting", tasks=("flags", "tiles"))
    point = points.read_point_of_run(store, stored.id, "name", tiny_benchmark, sample)
    expected = read_correctness(stored, tiny_benchmark)
    assert point is not None and expected is not None
    right = point.read_correctness(SampledBenchmark.from_benchmark(tiny_benchmark, sample))
    assert right is not None and list(right) == ["flags", "tiles"]
    assert all((right[task] == expected[task]).all() for task in right)


def test_scores_without_answers_name_the_point_or_the_run(tiny_benchmark: Benchmark, store: Store) -> None:
    found = evaluate_answers(tiny_benchmark.pretrained, tiny_benchmark, splits=("choosing",), tasks=("digits", "tiles"))
    with pytest.raises(StoreError, match=r"An evaluation has scores but no answers for tiles \(choosing\)"):
        add_predictions(found._replace(answers=tuple(one for one in found.answers if one.task != "tiles")))
    stored = execute.execute(recipe(tiny_benchmark), store, benchmark=tiny_benchmark)
    answers = stored.plain_table(ANSWERS)
    columns = {name: answers[name][1:] for name in ("task", "split", "n", "models", "predicted", "margin")}
    damaged = SimpleNamespace(
        id=stored.id, benchmark=stored.benchmark, scores=stored.scores, device="CPU", provenance="", versions={},
        result=stored.result, plain_table=lambda name: Columns(columns),
    )  # fmt: skip
    known: Any = SimpleNamespace(list_copies=lambda run_id: [damaged])
    task, split = answers["task"][0], answers["split"][0]
    with pytest.raises(StoreError, match=rf"Run {stored.id} has scores but no answers for {task}"):
        points.read_point_of_run(known, stored.id, "name", tiny_benchmark, PointSample(str(split)))


@settings(max_examples=15, deadline=None)
@given(images=st.integers(0, 40), seed=st.integers(0, 9), split=st.sampled_from(["choosing", "reporting"]))
def test_samples_of_images_have_the_labels_and_answers_of_the_whole_split(
    tiny_benchmark: Benchmark, images: int, seed: int, split: str
) -> None:
    sample = PointSample(split, images, seed, ("digits", "tiles")).normalize_on(tiny_benchmark)
    sampled = SampledBenchmark.from_benchmark(tiny_benchmark, sample)
    both = [
        evaluate_answers(tiny_benchmark.pretrained, one, splits=(split,), tasks=("digits", "tiles"))
        for one in (tiny_benchmark, sampled)
    ]
    point = Point("name", add_predictions(both[1]), "CPU", "", versions={})
    right, whole = point.read_correctness(sampled), both[0].correctness
    assert right is not None
    for task in ("digits", "tiles"):
        every, _ = tiny_benchmark.load_images(task, split)
        shown, labels = sampled.load_images(task, split)
        assert (sampled.sample_labels(task) == labels).all()
        places = [next(i for i, image in enumerate(every) if (image == one).all()) for one in shown]
        assert places == sorted(places) and (right[task] == whole[task][places]).all()


def test_predictions_of_another_sample_are_refused_and_none_are_none(tiny_benchmark: Benchmark, store: Store) -> None:
    made = make_sweep(tiny_benchmark, "a sample")
    run(made, store, tiny_benchmark)
    point = next(iter(read_points(made, store, tiny_benchmark).values()))
    other = SampledBenchmark.from_benchmark(tiny_benchmark, replace(made.sample, images=8))
    with pytest.raises(StoreError, match="has 7 images of circles; its sample has 8"):
        point.read_correctness(other)
    damaged = replace(point, table=point.scores.assign(**{PREDICTED_COLUMN: "AAAA"}))
    with pytest.raises(StoreError, match="are damaged"):
        damaged.read_correctness(replace(other, sample=made.sample))
    assert replace(point, table=point.scores.drop(columns=PREDICTED_COLUMN)).read_correctness(other) is None
