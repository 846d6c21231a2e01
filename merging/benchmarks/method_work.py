"""The work of every method on a benchmark's models."""

from __future__ import annotations

from merging.benchmarks.benchmark import Benchmark
from merging.engine.work import ChainWork, chain_work
from merging.formats.opening import open_checkpoint
from merging.methods import registry
from merging.methods.method import Adapt
from merging.recipes.recipe import Recipe


def method_work(benchmark: Benchmark) -> dict[tuple[str, str], ChainWork]:
    """{(role, key): its work at its defaults, of an edit with the default merge after it}; adapts are left out.

    Raises:
        CheckpointError: a model of the benchmark cannot be opened.
    """
    pretrained = open_checkpoint(benchmark.pretrained, "pretrained")
    experts = {name: open_checkpoint(source, name, like=pretrained) for name, source in benchmark.experts.items()}
    return {
        (method.role, method.key): chain_work(Recipe.of_method(method), pretrained, experts)
        for method in registry.methods()
        if not isinstance(method, Adapt)
    }
