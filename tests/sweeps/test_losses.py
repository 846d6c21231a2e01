"""Losses on lines and in planes, and barriers: those of plain numpy, at corners those of the models themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from small_sweeps import names, read_points, recipe, run, sweep

from merging.base.devices import choose_device
from merging.base.errors import MergingError
from merging.engine.evaluation.evaluate import evaluate_answers
from merging.engine.evaluation.image_features import compute_features
from merging.engine.run import MergeResult
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_session, sweep_tables
from merging.study.sweeps.point_losses import average_losses, explain_barriers, find_barrier, list_barriers
from merging.study.sweeps.points import PREDICTED_COLUMN, add_predictions
from merging.study.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.study.sweeps.weighted_sum import CombinedCheckpoint
from merging.tasks.context import Context

PAIR = ("circles", "digits")
PLANE_AXES = (Axis("alpha", (0.0, 0.5, 1.0)), Axis("beta", (0.0, 0.5, 1.0)))
CPU = Context(device="cpu")


def losses_of(model: Checkpoint, benchmark: Benchmark, task: str) -> NDArray[np.float64]:
    """The cross-entropies (n,) of a model on the choosing half of a task, in numpy from its features."""
    images, labels = benchmark.load_images(task, "choosing")
    encoder = Encoder.from_checkpoint(model, choose_device("cpu"))
    meter = CPU.meter(len(labels))
    features = compute_features(encoder, benchmark.preprocess(images), meter, "", "").double().numpy()
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    logits = benchmark.logit_scale * unit @ benchmark.load_head(task).double().numpy().T
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]


def averages_of(made: Sweep, store: Store, benchmark: Benchmark) -> tuple[pd.DataFrame, pd.DataFrame]:
    run(made, store, benchmark)
    planned = sweep_session.plan_sweep(made, benchmark)
    rows = sweep_tables.sweep_table(made, planned, read_points(made, store, benchmark))
    return rows, sweep_tables.average_rows(rows)


def assert_points_are_models(made: Sweep, models: Mapping[str, Checkpoint], store: Store, benchmark: Benchmark) -> None:
    """Assert that points, by name, have the weights of models and give their answers to every image."""
    stored, session = read_points(made, store, benchmark), sweep_session.SweepSession(benchmark, made.sample)
    planned = {one.name: one.point for one in sweep_session.plan_sweep(made, benchmark)}
    opened = session.open_checkpoints(made.recipes[0])
    for name, model in models.items():
        terms = [(scale, model if isinstance(one, Recipe) else opened.experts[one])
                 for scale, one in planned[name].terms or ()]  # fmt: skip
        combined = CombinedCheckpoint(opened.pretrained, terms)
        for tensor in model.infos:
            torch.testing.assert_close(combined.read(tensor), model.read(tensor), rtol=0, atol=1e-6)
        answers = evaluate_answers(model, session.sampled, splits=("choosing",), context=CPU)
        assert add_predictions(answers)[PREDICTED_COLUMN].tolist() == stored[name].table[PREDICTED_COLUMN].tolist()


@pytest.mark.full
def test_corners_of_a_plane_have_the_losses_of_their_models(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, kind=PLANE, axes=PLANE_AXES, through=("digits", "merged", "merged 2"),
                 recipes=(recipe(tiny_benchmark), recipe(tiny_benchmark, "ties")))  # fmt: skip
    rows, means = averages_of(made, store, tiny_benchmark)
    other = Store(store.root / "other", libraries=())
    merges = [execute.execute(one, other, benchmark=tiny_benchmark, context=CPU) for one in made.recipes]
    corners = {
        (0.0, 0.0): open_checkpoint(tiny_benchmark.experts["digits"], "digits"),
        (1.0, 0.0): merges[0].open_models()["merged"],
        (0.0, 1.0): merges[1].open_models()["merged"],
    }
    planned = {one.point.values: one for one in sweep_session.plan_sweep(made, tiny_benchmark)}
    assert [planned[at].run_id for at in (*corners, (0.5, 0.5))] == ["", merges[0].id, merges[1].id, ""]
    assert_points_are_models(made, {planned[at].name: model for at, model in corners.items()}, store, tiny_benchmark)
    for (x, y), model in corners.items():
        own = rows[(rows["x"] == x) & (rows["y"] == y)]
        for row in own.to_dict("records"):
            losses = losses_of(model, tiny_benchmark, row["task"])
            assert row["loss"] == pytest.approx(losses.mean(), rel=1e-5)
            assert row["loss_error"] == pytest.approx(losses.std(ddof=1) / math.sqrt(len(losses)), rel=1e-4)
        inside = own.loc[own["in_domain"], "loss"]
        mean = means[(means["x"] == x) & (means["y"] == y)].iloc[0]
        assert mean["loss_in"] == pytest.approx(inside.mean()) and mean["loss_in_low"] < mean["loss_in"]
    assert set(rows.loc[rows["in_domain"], "task"]) == tiny_benchmark.experts.keys()


def test_between_models_are_their_weighted_weights(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.0, 0.25, 1.0)),), through=PAIR)
    rows, _ = averages_of(made, store, tiny_benchmark)
    first, second = (open_checkpoint(tiny_benchmark.experts[name], name) for name in PAIR)
    blended = {
        name: (0.75 * first.read(name).float() + 0.25 * second.read(name).float()).to(first.infos[name].dtype)
        for name in first.infos
    }
    model = MappingCheckpoint(blended, "blended")
    model.metadata = first.metadata
    own = rows[rows["x"] == 0.25].set_index("task")
    for task in PAIR:
        assert own.loc[task, "loss"] == pytest.approx(losses_of(model, tiny_benchmark, task).mean(), rel=2e-3)
    assert set(rows.loc[rows["in_domain"], "task"]) == set(PAIR)
    assert not set(rows["task"]) & (tiny_benchmark.experts.keys() - set(PAIR))
    points = read_points(made, store, tiny_benchmark).values()  # nothing is evaluated that has no row
    assert points and all(set(point.table["task"]) == set(rows["task"]) for point in points)
    assert sweep_tables.estimate_cost(made, store, tiny_benchmark).stored == len(points) == 3


def test_points_of_lines_and_planes_are_shared(tiny_benchmark: Benchmark, store: Store) -> None:
    line = sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.0, 0.5, 1.0)),), through=PAIR)
    run(line, store, tiny_benchmark)
    before = names(store)
    plane = sweep(tiny_benchmark, kind=PLANE, axes=PLANE_AXES, through=(*PAIR, "pretrained"))
    planned = {one.point.values: one.name for one in sweep_session.plan_sweep(plane, tiny_benchmark)}
    assert before == {planned[0.0, 0.0], planned[0.5, 0.0], planned[1.0, 0.0]}
    assert sweep_tables.estimate_cost(plane, store, tiny_benchmark).stored == 3


def test_a_point_with_losses_is_not_taken_from_a_run(tiny_benchmark: Benchmark, store: Store) -> None:
    line = sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.0, 1.0)),))
    execute.execute(line.recipes[0], store, benchmark=tiny_benchmark, context=CPU)
    assert sweep_tables.estimate_cost(line, store, tiny_benchmark).stored == 0
    _, means = averages_of(line, store, tiny_benchmark)
    assert np.isfinite(means[["loss_in", "loss_out"]].to_numpy()).all()


def test_recipes_that_nothing_goes_through_and_other_networks_are_refused(tiny_benchmark: Benchmark) -> None:
    recipes = (recipe(tiny_benchmark), recipe(tiny_benchmark, "ties"))
    with pytest.raises(MergingError, match="does not go through the merge of lwptv → ties"):
        sweep(tiny_benchmark, kind=LINE, axes=PLANE_AXES[:1], through=("digits", "merged"), recipes=recipes)
    made = sweep(tiny_benchmark, kind=LINE, axes=PLANE_AXES[:1], through=("merged 2", "merged"), recipes=recipes)
    assert Sweep.from_yaml(made.to_yaml()) == made and made.labels == ("Interpolation α (0 merged 2, 1 merged)",)
    assert [type(made.points[0]).from_plain(point.to_plain()) for point in made.points] == list(made.points)


# Barriers


def test_the_barrier_of_a_model_with_itself_is_zero() -> None:
    assert find_barrier((0.0, 0.5, 1.0), (0.7, 0.7, 0.7)) == (0.0, 0.0, 3)


def test_a_barrier_is_the_largest_rise_above_the_straight_line() -> None:
    positions = np.linspace(-0.5, 1.5, 21)
    losses = 1 + positions + 3 * np.sin(np.pi * positions) + 100 * (positions > 1.01)  # beyond an end is not between
    barrier = find_barrier(positions.round(9).tolist(), losses.tolist())
    assert barrier is not None and barrier.height == pytest.approx(3) and barrier.position == pytest.approx(0.5)
    assert barrier.points == 11
    assert find_barrier((-0.5, 0.0, 1.0, 1.5), (3.0, 1.0, 2.0, 3.0)) is None, "no point lies between the ends"
    assert find_barrier((0.0, 0.5), (1.0, 2.0)) is None and find_barrier((0.0, 1.0), (1.0, math.nan)) is None


def test_barriers_of_a_plane_are_those_of_its_edges(tiny_benchmark: Benchmark) -> None:
    made = sweep(tiny_benchmark, kind=PLANE, axes=PLANE_AXES, through=("pretrained", *PAIR))
    x, y = (grid.ravel() for grid in np.meshgrid((0.0, 0.5, 1.0), (0.0, 0.5, 1.0)))
    loss = 1 + (x == 0.5) * (y == 0) * 0.3 + (x == 0) * (y == 0.5) * 0.2 + (x == 0.5) * (y == 0.5) * 0.7
    means = pd.DataFrame({"line": 0, "x": x, "y": y, "loss_in": loss, "loss_out": np.nan})
    table = list_barriers(made, means)
    assert table[["first", "second"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert table["height"].tolist() == pytest.approx([0.3, 0.2, 0.7]) and set(table["at"]) == {0.5}
    assert set(table["loss"]) == {"loss_in"} and set(table["points"]) == {3}
    assert "no interval" in explain_barriers(made) and "biased upward" in explain_barriers(made)
    axes = (PLANE_AXES[0], Axis("beta", (0.0, 0.5)))
    without_end = sweep(tiny_benchmark, kind=PLANE, axes=axes, through=("pretrained", *PAIR))
    assert explain_barriers(without_end).endswith("at 0 and 1, which are not among the values of beta.")


@pytest.mark.parametrize(("alphas", "pairs"), [((0.0, 0.25, 1.0), ["circles and digits"]), ((0.0, 1.0), None)])
def test_edges_without_points_have_no_barrier(
    tiny_benchmark: Benchmark, alphas: tuple[float, ...], pairs: list[str] | None
) -> None:
    axes = (Axis("alpha", alphas), Axis("beta", (0.0, 0.5, 1.0)))
    made = sweep(tiny_benchmark, kind=PLANE, axes=axes, through=("pretrained", *PAIR))
    x, y = (grid.ravel() for grid in np.meshgrid(*(axis.values for axis in axes)))
    table = list_barriers(made, pd.DataFrame({"line": 0, "x": x, "y": y, "loss_in": 1.0 + x, "loss_out": 1.0}))
    edges = set(zip(table["first"], table["second"], strict=True))
    assert edges == ({(0, 1), (0, 2)} if pairs else {(0, 2)})
    said = explain_barriers(made)
    assert all(f"lies between {pair}," in said for pair in pairs or ["pretrained and circles", "circles and digits"])
    assert said.count("No point") == 3 - len(edges) and said.endswith("biased upward.")


@pytest.mark.full
def test_each_of_many_recipes_is_merged_once(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, merged = sweep_session.engine.run_recipe, list[str]()

    def count(one: Recipe, *arguments: Any, **options: Any) -> MergeResult:
        merged.append(one.merge.key)
        return merge(one, *arguments, **options)

    monkeypatch.setattr(sweep_session.engine, "run_recipe", count)
    keys = ("task_arithmetic", "ties", "iso_c", "iso_cts")
    run(
        sweep(tiny_benchmark, *keys, kind=LINE, axes=(Axis("alpha", (0.0, 0.5, 1.0)),), images=7), store, tiny_benchmark
    )
    assert sorted(merged) == sorted(keys)


def test_means_of_losses_have_the_errors_of_independent_tasks() -> None:
    inside, low, high, *outside = average_losses([(True, 1.0, 0.3), (True, 3.0, 0.4)])
    assert (
        inside == 2 and high - inside == pytest.approx(1.959964 * 0.25) and inside - low == pytest.approx(high - inside)
    )
    assert all(math.isnan(value) for value in outside)
