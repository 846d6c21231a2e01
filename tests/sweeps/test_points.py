"""Points of sweeps: dense sums, scores like those of runs, draws of images, averages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from small_sweeps import RATIO, names, read_points, recipe, run, sweep

from merging.base.errors import CompatibilityError, RecipeError
from merging.engine.evaluation.evaluate import evaluate
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import summarize
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.families import UNMERGED
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_tables
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps import sweep_target as axes
from merging.study.sweeps.points import PointSample, SampledBenchmark
from merging.study.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.study.sweeps.sweep_target import EXPERTS
from merging.study.sweeps.weighted_sum import CombinedCheckpoint, fit_coefficients
from merging.tasks.context import Context

# Weighted sums


def test_a_combination_is_the_dense_sum() -> None:
    base, experts = tiny.family()
    terms = [(0.4, experts["circles"]), (-1.3, experts["digits"])]
    made = CombinedCheckpoint(MappingCheckpoint(base, "base"), [(c, MappingCheckpoint(e, "e")) for c, e in terms])
    for name, first in base.items():
        dense = first.double() + sum(c * (e[name].double() - first.double()) for c, e in terms)
        torch.testing.assert_close(made.read(name).double(), dense, rtol=1e-5, atol=1e-6)
        assert made.read(name).dtype == first.dtype
        piece = made.read_flat(name, 1, 5)
        assert torch.equal(piece, made.read(name).reshape(-1)[1:5])


def test_a_combination_is_exact_at_its_corners_and_in_double() -> None:
    base, experts = tiny.family()
    pretrained, one = MappingCheckpoint(base, "base"), MappingCheckpoint(experts["circles"], "one")
    for coefficient, same in ((1.0, one), (0.0, pretrained)):
        assert CombinedCheckpoint(pretrained, [(coefficient, one)]).digest == same.digest
    assert CombinedCheckpoint(pretrained, []).digest == pretrained.digest
    double = {name: value.double() for name, value in base.items()}
    far = {name: value + 1e-12 for name, value in double.items()}
    made = CombinedCheckpoint(MappingCheckpoint(double, "base"), [(0.5, MappingCheckpoint(far, "far"))])
    assert all(not torch.equal(made.read(name), value) for name, value in double.items())


def test_a_combination_of_what_does_not_fit_is_refused() -> None:
    base, experts = tiny.family()
    odd = {name: value for name, value in experts["circles"].items() if name != "visual.proj"}
    with pytest.raises(CompatibilityError, match=r"visual\.proj"):
        CombinedCheckpoint(MappingCheckpoint(base, "base"), [(1.0, MappingCheckpoint(odd, "odd"))])


def test_where_a_merge_lies_in_its_plane(tiny_benchmark: Benchmark, store: Store) -> None:
    pair = ("circles", "digits")
    axes_ = tuple(Axis(name, (0.0, 1.0)) for name in ("alpha", "beta"))
    plain = Sweep(
        recipes=(recipe(tiny_benchmark, edits=[]),), axes=axes_, kind=PLANE, images=0, through=("pretrained", *pair)
    )
    outcome = run(plain, store, tiny_benchmark)
    assert outcome == sweep_compute.SweepOutcome(5, 5, False)
    merged = next(one for one in sweep_compute.plan_sweep(plain, tiny_benchmark) if not one.point.values)
    notes = points.find_point(store, merged.name).notes  # type: ignore[union-attr]
    assert notes["at"] == pytest.approx(dict.fromkeys(pair, 0.3), abs=2e-3)  # stored in float16
    assert notes["off_plane"] < 0.02
    found = read_points(plain, store, tiny_benchmark)
    rows = sweep_tables.sweep_table(plain, sweep_compute.plan_sweep(plain, tiny_benchmark), found)
    outside = {task.key for task in tiny_benchmark.tasks} - tiny_benchmark.experts.keys()
    assert set(rows["task"]) == {*pair, *outside} and set(rows.loc[rows["in_domain"], "task"]) == set(pair)
    corner = rows[(rows["x"] == 1) & (rows["y"] == 0)].set_index("task")["correct"]
    tasks = list(corner.index)
    own = evaluate(
        tiny_benchmark.experts["circles"], tiny_benchmark, splits=("choosing",), tasks=tasks, context=Context("cpu")
    )
    assert corner.to_dict() == own.set_index("task")["correct"].to_dict()


def test_a_planted_merge_is_found_in_its_plane(tiny_benchmark: Benchmark) -> None:
    opened = sweep_compute.SweepSession(tiny_benchmark, PointSample()).open_checkpoints(recipe(tiny_benchmark))
    names = [one.name for one in opened.pretrained.parameters if one.role not in UNMERGED]

    def flatten(model: Checkpoint) -> np.ndarray:
        return torch.cat([model.read(name).double().ravel() for name in names]).numpy()

    base = flatten(opened.pretrained)
    vectors = np.stack([flatten(expert) - base for expert in opened.experts.values()], axis=1)
    planted = np.linspace(-0.4, 0.9, vectors.shape[1])
    outside = np.random.default_rng(0).normal(size=len(base)) / 100
    outside -= vectors @ np.linalg.lstsq(vectors, outside)[0]
    infos = opened.pretrained.infos
    for across in (0 * outside, outside):
        change = vectors @ planted + across
        parts = torch.from_numpy(base + change).split([infos[name].numel for name in names])
        tensors = {name: part.reshape(infos[name].shape) for name, part in zip(names, parts, strict=True)}
        notes = fit_coefficients(opened, MappingCheckpoint(tensors, "planted"))
        assert list(notes["at"]) == list(opened.experts)
        assert list(notes["at"].values()) == pytest.approx(planted, abs=1e-9)
        assert notes["off_plane"] == pytest.approx(np.linalg.norm(across) / np.linalg.norm(change), abs=1e-6)


# Points


@pytest.mark.full
def test_points_have_the_scores_of_the_run_of_the_same_recipe(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, "task_arithmetic", "ties")
    run(made, store, tiny_benchmark)
    every = sweep_compute.plan_sweep(made, tiny_benchmark)
    found = read_points(made, store, tiny_benchmark)
    means = sweep_tables.average_rows(sweep_tables.sweep_table(made, every, found)).set_index("point")
    other = Store(store.root / "other", libraries=())
    for one in every:
        stored = execute.execute(one.point.recipe, other, benchmark=tiny_benchmark, context=Context(device="cpu"))
        assert stored.id == one.run_id and stored.scores is not None
        expected = stored.scores[stored.scores["split"] == "choosing"].reset_index(drop=True)
        assert found[one.name].scores[expected.columns].to_csv() == expected.to_csv()
        summary = summarize(stored.scores, stored.experts, split="choosing")
        assert means.loc[one.name, "h_score"] == summary.h_score
        assert means.loc[one.name, "in_low"] == summary.in_low


def test_merges_of_one_model_per_task_are_judged_as_runs_are(tiny_benchmark: Benchmark, store: Store) -> None:
    emr = recipe(tiny_benchmark, "emr")
    made = Sweep(recipes=(emr,), axes=(Axis(RATIO.target, (0.2, 0.7)),), images=0)
    run(made, store, tiny_benchmark)
    one = next(one for one in sweep_compute.plan_sweep(made, tiny_benchmark) if one.point.values == (0.7,))
    stored = execute.execute(one.point.recipe, Store(store.root / "x", libraries=()), benchmark=tiny_benchmark)
    assert stored.scores is not None
    expected = stored.scores[stored.scores["split"] == "choosing"].reset_index(drop=True)
    found = points.find_point(store, one.name)
    assert found is not None and found.scores[expected.columns].to_csv() == expected.to_csv()
    with pytest.raises(RecipeError, match="no line through it"):
        Sweep(recipes=(emr,), axes=(Axis("alpha", (0.0, 1.0)),), kind=LINE)


def test_points_that_a_stored_run_has_are_taken_from_it(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark)
    middle = axes.vary_recipe(made.recipes[0], RATIO.target, 0.5)
    execute.execute(middle, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert sweep_tables.estimate_cost(made, store, tiny_benchmark).stored == 1
    run(made, store, tiny_benchmark)
    assert len(names(store)) == 2
    assert len(read_points(made, store, tiny_benchmark)) == 3
    few = replace(made, images=5)  # the run was evaluated on all images
    assert sweep_tables.estimate_cost(few, store, tiny_benchmark).stored == 0


def test_a_line_ends_in_the_pretrained_and_the_merged_model(tiny_benchmark: Benchmark, store: Store) -> None:
    line = sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.0, 0.5, 1.0)),))
    run(line, store, tiny_benchmark)
    every = {one.point.values[0]: one for one in sweep_compute.plan_sweep(line, tiny_benchmark)}
    found = read_points(line, store, tiny_benchmark)
    zero = evaluate(tiny_benchmark.pretrained, tiny_benchmark, splits=("choosing",), context=Context(device="cpu"))
    assert found[every[0.0].name].scores["correct"].tolist() == zero["correct"].tolist()
    stored = execute.execute(line.recipes[0], Store(store.root / "x", libraries=()), benchmark=tiny_benchmark)
    assert every[1.0].run_id == stored.id and not every[0.5].run_id
    assert stored.scores is not None
    expected = stored.scores[stored.scores["split"] == "choosing"]["correct"].tolist()
    assert found[every[1.0].name].scores["correct"].tolist() == expected


def one_by_one(made: Sweep, every: Any, found: Any) -> list[dict[str, Any]]:
    """The rows of the averages, each made of one point alone, as pages do."""
    whole = [
        (one, found[one.name], sweep_tables.point_rows(made, one, found[one.name]))
        for one in sweep_tables.sort_points(every)
    ]
    return [
        dict(zip(sweep_tables.average_columns(made), sweep_tables.average_row(*each), strict=True)) for each in whole
    ]


def test_a_point_that_lines_share_counts_once(tiny_benchmark: Benchmark, store: Store) -> None:
    lines = sweep(tiny_benchmark, "task_arithmetic", "ties", kind=LINE, axes=(Axis("alpha", (0.0, 1.0)),))
    assert len(lines.points) == 4
    assert sweep_tables.estimate_cost(lines, store, tiny_benchmark).points == 3
    assert run(lines, store, tiny_benchmark) == sweep_compute.SweepOutcome(3, 3, False)
    every = sweep_compute.plan_sweep(lines, tiny_benchmark)
    found = read_points(lines, store, tiny_benchmark)
    means = sweep_tables.average_rows(sweep_tables.sweep_table(lines, every, found))
    assert one_by_one(lines, every, found) == means.to_dict("records")
    assert list(means["x"]) == [0.0, 1.0, 0.0, 1.0]  # and is on both lines
    assert means["in_domain"].iloc[0] == means["in_domain"].iloc[2]


def test_a_draw_of_images_is_seeded_and_of_the_stated_size(tiny_benchmark: Benchmark) -> None:
    def shown(images: int, seed: int) -> Any:
        return SampledBenchmark.from_benchmark(tiny_benchmark, PointSample(images=images, seed=seed)).load_images(
            "circles", "choosing"
        )

    few, labels = shown(7, 0)
    assert len(few) == len(labels) == 7
    assert np.array_equal(shown(7, 0)[0], few) and not np.array_equal(shown(7, 1)[0], few)
    whole, every = tiny_benchmark.load_images("circles", "choosing")
    places = [int(np.flatnonzero((whole == image).all(axis=(1, 2, 3)))[0]) for image in few]
    assert [every[place] for place in places] == list(labels)
    assert (
        len(shown(500, 0)[0])
        == tiny.CHOOSING
        == SampledBenchmark.from_benchmark(tiny_benchmark, PointSample()).count_images("circles", "choosing")
    )
    assert (
        PointSample(images=500, seed=3).normalize_on(tiny_benchmark) == PointSample()
    )  # nothing is drawn, so the seed means nothing
    others = PointSample(without=("circles",)).normalize_on(tiny_benchmark)
    assert others == PointSample(tasks=tuple(task.key for task in tiny_benchmark.tasks if task.key != "circles"))
    assert others.normalize_on(tiny_benchmark) == others
    assert PointSample(without=("no task",)).normalize_on(tiny_benchmark) == PointSample()
    exemplars = SampledBenchmark.from_benchmark(tiny_benchmark, PointSample(images=3)).labeled_exemplars(8)
    assert all(len(task.images) == 8 for task in exemplars.values())


def test_left_out_experts_tasks_are_in_neither_average(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, axes=(Axis(EXPERTS, (2.0, 4.0)),))
    run(made, store, tiny_benchmark)
    every = sweep_compute.plan_sweep(made, tiny_benchmark)
    found = read_points(made, store, tiny_benchmark)
    means = sweep_tables.average_rows(sweep_tables.sweep_table(made, every, found))
    assert one_by_one(made, every, found) == means.to_dict("records")
    means = means.set_index("x")
    assert means["tasks_in"].to_dict() == {2.0: 2, 4.0: 4}
    assert means["tasks_out"].to_dict() == {2.0: 2, 4.0: 2}
