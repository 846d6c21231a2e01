"""The shortest chain of each method on a benchmark's few images, and those images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import common_checks

from merging.images.benchmarks.benchmark import Benchmark
from merging.methods.method import Method
from merging.recipes.recipe import Exemplars, Recipe, TestData
from merging.recipes.step import Step

PER_TASK = 6


def chain_of(method: Method, **models: Any) -> Recipe:
    """The chain, with few steps where it learns."""
    chain = Recipe.from_method(method, **models)
    if method.role != "edit" and (params := common_checks.short_params(method)):
        step = Step(method.key, method.params.build(params))
        chain = replace(chain, **{"adapt" if chain.adapt else "merge": step})
    if chain.test_data:
        chain = replace(chain, test_data=TestData(per_task=PER_TASK))
    return replace(chain, exemplars=Exemplars(per_task=PER_TASK)) if chain.exemplars else chain


def images_of(chain: Recipe, benchmark: Benchmark) -> dict[str, Any]:
    """The images that the chain needs."""
    shown = benchmark.labeled_exemplars(PER_TASK, 0)
    return {
        "exemplars": shown if chain.exemplars else None,
        "test_data": common_checks.unlabeled(shown) if chain.test_data else None,
    }
