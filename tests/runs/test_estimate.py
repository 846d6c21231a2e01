"""The estimate of a run: learned from own runs, aware of what methods compute and keep in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from merging.recipes.recipe import Recipe
from merging.runs.estimate import MERGING, estimate
from merging.runs.inputs import open_inputs
from merging.runs.run import PRECOMPUTED


def test_the_estimate_learns_from_own_runs(recipe, run_it, store, tiny_benchmark):
    opened = open_inputs(recipe)
    first = estimate(opened, tiny_benchmark)
    assert first.seconds == sum(first.phases.values()) > 0
    assert first.anonymous_bytes > 0 and not first.learned
    assert first.reads_bytes >= opened.nbytes
    run = run_it(recipe)
    learned = estimate(opened, tiny_benchmark, store.runs())
    assert learned.phases[MERGING] == pytest.approx(run.seconds[MERGING]) and learned.learned
    other = open_inputs(Recipe.build("ties", {}, [], recipe.pretrained, dict(recipe.experts)))
    assert not estimate(other, tiny_benchmark, store.runs()).learned  # no run of its chain
    precomputed = [replace(run, provenance=PRECOMPUTED)]
    assert not estimate(opened, tiny_benchmark, precomputed).learned
    assert estimate(opened, None, store.runs()).seconds < learned.seconds


def test_the_estimate_knows_what_methods_compute_beyond_passes_over_the_scalars(tiny_benchmark):
    def work(merge, params=None, **settings):
        recipe = Recipe.build(merge, params or {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, **settings)
        return estimate(open_inputs(recipe)).work[MERGING]

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
        return estimate(open_inputs(recipe)).anonymous_bytes

    few, many = (memory("lot", exemplars={"per_task": n}) for n in (2, 66))
    image = next(iter(tiny_benchmark.labeled_exemplars(2, 0).values())).images[0]
    assert many - few >= 64 * len(tiny_benchmark.experts) * image.numel() * image.element_size()
    assert few > memory("weight_averaging") and memory("drm") > memory("model_stock")
