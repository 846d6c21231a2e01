"""The estimate of a run: learned from own runs, aware of what methods compute and keep in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pretend_device import NAME, pretend_device

from merging.images.benchmarks.benchmark import SPLITS
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import ADAPTING, EVALUATING, MERGING, estimate_run
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import PRECOMPUTED


def test_the_estimate_learns_from_own_runs(recipe, run_it, store, tiny_benchmark):
    opened = open_inputs(recipe)
    first = estimate_run(opened, tiny_benchmark, device="cpu")
    assert first.seconds == sum(first.phases.values()) > 0
    assert first.anonymous_bytes > 0 and not first.is_from_own_runs
    assert first.reads_bytes >= opened.nbytes
    run = run_it(recipe)
    learned = estimate_run(opened, tiny_benchmark, store.list_runs(), "cpu")
    assert learned.phases[MERGING] == pytest.approx(run.seconds[MERGING]) and learned.is_from_own_runs
    other = open_inputs(Recipe.build("ties", {}, [], recipe.pretrained, dict(recipe.experts)))
    assert not estimate_run(other, tiny_benchmark, store.list_runs(), "cpu").is_from_own_runs  # no run of its chain
    precomputed = [replace(run, provenance=PRECOMPUTED)]
    assert not estimate_run(opened, tiny_benchmark, precomputed, "cpu").is_from_own_runs
    assert estimate_run(opened, None, store.list_runs(), "cpu").seconds < learned.seconds
    with pretend_device():  # runs on one device say nothing of another
        assert not estimate_run(opened, tiny_benchmark, [run], NAME).is_from_own_runs
        assert estimate_run(opened, tiny_benchmark, [replace(run, device=NAME.upper())], NAME).is_from_own_runs


def test_the_estimate_knows_what_methods_compute_beyond_passes_over_the_scalars(tiny_benchmark):
    def work(merge, params=None, **settings):
        recipe = Recipe.build(merge, params or {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, **settings)
        return estimate_run(open_inputs(recipe)).work[MERGING]

    plain = work("task_arithmetic")
    few, many = (work("lot", exemplars={"per_task": n}) for n in (2, 66))
    assert few - work("weight_averaging") > (many - few) / 32  # the regression itself, beyond two images a task
    assert work("fisher", exemplars={"per_task": 66}) > work("regmean", exemplars={"per_task": 66}) > plain
    assert work("drm") > work("iso_c") > plain
    none, some, twice = (work("wudi", {"steps": steps}) for steps in (0, 150, 300))
    assert twice - none == pytest.approx(2 * (some - none))
    assert some > 1.1 * none


def test_the_estimate_knows_the_memory_that_exemplars_and_decompositions_take(tiny_benchmark):
    def memory(merge, **settings):
        recipe = Recipe.build(merge, {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, **settings)
        return estimate_run(open_inputs(recipe)).anonymous_bytes

    few, many = (memory("lot", exemplars={"per_task": n}) for n in (2, 66))
    image = next(iter(tiny_benchmark.labeled_exemplars(2, 0).values())).images[0]
    assert many - few >= 64 * len(tiny_benchmark.experts) * image.numel() * image.element_size()
    assert few > memory("weight_averaging") and memory("drm") > memory("model_stock")


def adapted_work(tiny_benchmark, adapt, params=None, merge="weight_averaging", **settings):
    models = (tiny_benchmark.pretrained, tiny_benchmark.experts)
    recipe = Recipe.build(merge, {}, [], *models, adapt=adapt and (adapt, params or {}), **settings)
    return estimate_run(open_inputs(recipe), tiny_benchmark).work


def test_the_estimate_counts_the_updates_of_adapts_that_learn_on_features(tiny_benchmark):
    def work(adapt, steps, **params):
        return adapted_work(tiny_benchmark, adapt, {"steps": steps, **params})[ADAPTING]

    for adapt in ("surgery", "twin"):
        none, some, twice = (work(adapt, steps) for steps in (0, 500, 1000))
        assert some > 2 * none > 0 and twice - none == pytest.approx(2 * (some - none))
    assert work("surgery", 500, rank=64) > work("surgery", 500, rank=1)
    assert work("surgery", 0) == work("surgery", 0, rank=1) and work("wemoe", 0) == 0


def test_the_estimate_counts_the_score_with_the_task_unknown(tiny_benchmark):
    plain = adapted_work(tiny_benchmark, None)[EVALUATING]
    named, unnamed = (adapted_work(tiny_benchmark, key)[EVALUATING] for key in ("mass", "wemoe"))
    inside = sum(tiny_benchmark.count_images(name, split) for name in tiny_benchmark.experts for split in SPLITS)
    every = sum(tiny_benchmark.count_images(task.key, split) for task in tiny_benchmark.tasks for split in SPLITS)
    assert named - unnamed == pytest.approx(inside * (plain + unnamed) / every)
