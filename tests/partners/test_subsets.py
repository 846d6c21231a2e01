"""The measurement of subsets: its plan, what is stored and used again, and numbers against plain numpy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import plain_tower
import pytest
import small_sweeps
import torch

from merging.base.errors import Cancelled, MergingError, RecipeError
from merging.base.files.atomic import MANIFEST, seal
from merging.base.files.records import write_json
from merging.base.progress import Progress
from merging.engine import run as engine
from merging.engine.evaluation.evaluate import evaluate_answers
from merging.images.benchmarks.answers import ANSWERS
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.image_draws import CHOOSING, REPORTING
from merging.models.checkpoint import Checkpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study.partners.stored_subsets import read_subsets
from merging.study.partners.subsets import (
    PERMUTATIONS,
    list_orders,
    list_subsets,
    plan_subsets,
)
from merging.study.runs.execute import execute
from merging.study.runs.run import FACTS as RUN_FACTS
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import SUBSETS, Axis, Sweep
from merging.study.sweeps.sweep_session import SweepSession, run_sweep
from merging.study.sweeps.sweep_target import choose_experts
from merging.tasks.context import QUIET


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


def read(checkpoint: Checkpoint, name: str) -> np.ndarray:
    return checkpoint.read(name).float().numpy()


def plain_recipe(benchmark: Benchmark, merge: str = "task_arithmetic") -> Recipe:
    return small_sweeps.recipe(benchmark, merge, edits=[])


def test_every_subset_of_a_small_team_and_prefixes_of_seeded_orders_of_a_large_one() -> None:
    assert list_subsets(3) == list(range(8)) and len(list_subsets(8)) == 256
    large = set(list_subsets(10, seed=4))
    for order in list_orders(10, seed=4).tolist():
        assert {sum(1 << index for index in order[:size]) for size in range(11)} <= large
    everyone = (1 << 10) - 1
    assert {0, everyone, 0b11, everyone ^ 1} <= large and len(large) <= 67 + PERMUTATIONS * 9
    assert list_subsets(10, seed=4) == list_subsets(10, seed=4) != list_subsets(10, seed=5)


def test_matrices_of_losses_are_there_early(tiny_benchmark: Benchmark) -> None:
    sweep = plan_subsets(plain_recipe(tiny_benchmark), 0)
    sizes = [int(point.values[0]).bit_count() for point in sweep.points]
    count = len(tiny_benchmark.experts)
    assert sizes[: count + 2] == [count - 1] * count + [count, 0] and sizes[count + 2 :] == sorted(sizes[count + 2 :])
    five = Recipe.build("task_arithmetic", experts={name: name for name in "abcde"})
    larger = [int(point.values[0]).bit_count() for point in plan_subsets(five).points]
    assert larger == [*[4] * 5, 5, 0, *[1] * 5, *[2] * 10, *[3] * 10]
    assert Sweep.from_yaml(sweep.to_yaml()).id == sweep.id
    by_subset = {point.values[0]: point for point in sweep.points}
    assert by_subset[0].terms == () and [name for name, _ in by_subset[1].recipe.experts] == [
        next(iter(tiny_benchmark.experts))
    ]


def test_sweeps_of_subsets_refuse_other_axes_and_single_experts(tiny_benchmark: Benchmark) -> None:
    recipe = plain_recipe(tiny_benchmark)
    with pytest.raises(RecipeError, match="2 to 27 experts"):
        plan_subsets(choose_experts(recipe, {next(iter(tiny_benchmark.experts))}))
    many = [
        Recipe.build("task_arithmetic", experts={f"e{number}": "" for number in range(count)}) for count in (27, 28)
    ]
    assert 900 < len(plan_subsets(many[0]).points) <= 1000, "the most points of a sweep"
    with pytest.raises(RecipeError, match="2 to 27 experts; the recipe has 28"):
        plan_subsets(many[1])
    with pytest.raises(RecipeError, match="one recipe and varies 'subset'"):
        Sweep(recipes=(recipe,), axes=(Axis("alpha", (0.0, 1.0)),), kind=SUBSETS)


def test_measured_subsets_are_stored_and_agree_with_single_evaluations(tiny_benchmark: Benchmark, store: Store) -> None:
    recipe = plain_recipe(tiny_benchmark, "ties")
    sweep = plan_subsets(recipe, 0, split=REPORTING)
    assert read_subsets(sweep, store, tiny_benchmark).right == {}
    small_sweeps.run(sweep, store, tiny_benchmark)
    measured = read_subsets(sweep, store, tiny_benchmark)
    names = list(tiny_benchmark.experts)
    assert measured.complete and measured.experts == tuple(names) and len(measured.right) == 2 ** len(names)
    for chosen in ((), (names[1],), tuple(names)):
        model = open_checkpoint(tiny_benchmark.pretrained)
        if chosen:
            small = choose_experts(recipe, set(chosen))
            experts = {name: open_checkpoint(tiny_benchmark.experts[name], name) for name in chosen}
            model = engine.run_recipe(small, model, experts).state_dict
        evaluation = evaluate_answers(model, tiny_benchmark, splits=(REPORTING,))
        assert measured.accuracy[chosen] == {row.task: row.accuracy for row in evaluation.scores.itertuples()}
        subset = sum(1 << names.index(name) for name in chosen)
        for task, right in evaluation.correctness.items():
            assert measured.right[subset][task].tolist() == right.tolist()


def test_runs_without_answers_are_merged_anew(tiny_benchmark: Benchmark, store: Store) -> None:
    recipe = plain_recipe(tiny_benchmark)
    run = execute(recipe, store, benchmark=tiny_benchmark, keep_model=False)
    facts = run.path / RUN_FACTS
    plain = json.loads(facts.read_bytes())
    del plain["tables"][ANSWERS]
    (path,) = run.path.rglob(f"{ANSWERS}.*")
    path.unlink()
    (run.path / MANIFEST).unlink()
    write_json(facts, plain)
    seal(run.path)
    sweep = plan_subsets(recipe, 0, split=REPORTING, subsets=[0, 2 ** len(tiny_benchmark.experts) - 1])
    small_sweeps.run(sweep, store, tiny_benchmark)
    measured = read_subsets(sweep, store, tiny_benchmark)
    scores = run.scores[run.scores["split"] == REPORTING].set_index("task")["accuracy"].to_dict()
    assert measured.complete and measured.accuracy[measured.experts] == scores


def test_failures_name_the_experts_of_a_subset(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MergingError("no.")

    sweep, names = plan_subsets(plain_recipe(tiny_benchmark), 4, subsets=[3, 5]), list(tiny_benchmark.experts)
    monkeypatch.setattr(SweepSession, "compute", fail)
    with pytest.raises(MergingError, match=rf"2 of 2 subsets could not.* {names[0]} \+ {names[1]}: no\."):
        run_sweep(sweep, store, tiny_benchmark)
    with pytest.raises(MergingError, match=r" pretrained: no\."):
        run_sweep(plan_subsets(sweep.recipes[0], 4, subsets=[0, 1]), store, tiny_benchmark)


@pytest.mark.full
def test_a_stopped_measurement_keeps_its_points_and_goes_on(tiny_benchmark: Benchmark, store: Store) -> None:
    sweep = plan_subsets(plain_recipe(tiny_benchmark), 0)
    sweep_storage.store_sweep(sweep, store)

    phases: list[str] = []

    def stop_early(progress: Progress) -> None:
        phases.append(progress.phase)
        if len(small_sweeps.names(store)) >= 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        run_sweep(sweep, store, tiny_benchmark, context=replace(QUIET, progress=stop_early))
    assert all(phase.startswith("Subset ") for phase in phases)
    part = read_subsets(sweep, store, tiny_benchmark)
    assert 0 < len(part.right) < part.total and not part.complete
    before = {name: (store.root / "points" / name).stat().st_mtime_ns for name in small_sweeps.names(store)}
    small_sweeps.run(sweep, store, tiny_benchmark)
    assert read_subsets(sweep, store, tiny_benchmark).complete
    assert all((store.root / "points" / name).stat().st_mtime_ns == time for name, time in before.items())


def test_nobody_is_the_pretrained_model_also_under_an_adapt(tiny_benchmark: Benchmark, store: Store) -> None:
    recipe = small_sweeps.recipe(
        tiny_benchmark,
        edits=[],
        adapt=("surgery", {"rank": 2, "steps": 8, "lr": 0.05}),
        test_data={"split": "exemplars"},
    )
    small_sweeps.run(plan_subsets(recipe, 0, subsets=[0, 1]), store, tiny_benchmark)
    measured = read_subsets(plan_subsets(recipe, 0, subsets=[0, 1]), store, tiny_benchmark)
    plain = evaluate_answers(open_checkpoint(tiny_benchmark.pretrained), tiny_benchmark, splits=(CHOOSING,))
    assert measured.accuracy[()] == {row.task: row.accuracy for row in plain.scores.itertuples()}
    assert plan_subsets(recipe).points[0].recipe.adapt == recipe.adapt


@pytest.mark.full
def test_a_measured_pair_of_the_bundled_team_agrees_with_plain_numpy(store: Store) -> None:
    """Weights, tower, head and loss once more by other means, on a few images."""
    benchmark = Benchmark.load()
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    names = list(benchmark.experts)
    pair = (1 << names.index("flags")) | (1 << names.index("textures"))
    sweep = plan_subsets(recipe, 16, subsets=[0, pair])
    run_sweep(sweep, store, benchmark)
    measured = read_subsets(sweep, store, benchmark)
    pretrained = open_checkpoint(benchmark.pretrained)
    experts = [open_checkpoint(benchmark.experts[name]) for name in ("textures", "flags")]
    base = {name: read(pretrained, name) for name in pretrained.infos if name.startswith("visual.")}
    pair_weights = {  # stored in float16, like the pretrained weights
        name: (value + np.float32(0.3) * sum(read(expert, name) - value for expert in experts)).astype(np.float16)
        for name, value in base.items()
    }
    images, labels = benchmark.load_images("flags", "choosing")
    chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:16])
    pixels = benchmark.preprocess(images[chosen])
    head = benchmark.load_head("flags").numpy()
    for subset, weights in ((0, base), (pair, pair_weights)):
        state = {name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()}
        outputs = plain_tower.layer_outputs(plain_tower.hugging_face(state), pixels, layers=6, heads=4, patch=8)
        features = outputs["visual_projection.weight"].numpy()
        right = (features @ head.T).argmax(axis=1) == labels[chosen]
        assert measured.right[subset]["flags"].tolist() == right.astype(float).tolist()
