"""A recipe as plain as can be."""

from __future__ import annotations

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe


def plain_recipe(benchmark: Benchmark, scaling: float = 0.3) -> Recipe:
    return Recipe.build("task_arithmetic", {"scaling": scaling}, [], benchmark.pretrained, benchmark.experts)
