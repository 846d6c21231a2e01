"""The work of every registered method on a benchmark's models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from merging.engine.chain_work import ChainWork, chain_work, find_tower, forward_flops
from merging.engine.learning.learning_work import FORWARD_AND_BACKWARD
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import registry
from merging.methods.method import Adapt
from merging.models.checkpoint import Checkpoint
from merging.models.formats.model_sources import open_models
from merging.recipes.recipe import Recipe


def method_work(benchmark: Benchmark) -> dict[tuple[str, str], ChainWork]:
    """{(role, key): the method's work at its defaults}; edits and adapts are counted together with the default merge.

    Methods that merge only so many experts are counted on the first.

    Raises:
        CheckpointError: a model of the benchmark cannot be opened.
    """
    pretrained, experts = open_models(benchmark.pretrained, benchmark.experts)
    work = {}
    for method in registry.list_methods():
        recipe = Recipe.from_method(method)
        merged = dict(islice(experts.items(), method.max_experts))
        # ``adapted_on`` is the split whose images the method learns from, if it learns.
        image_counts = [_count_images(recipe, benchmark.count_images(name, recipe.adapted_on or "")) for name in merged]
        chain = chain_work(recipe, pretrained, merged, image_counts if recipe.test_data else ())
        if isinstance(method, Adapt):
            chain = _add_adapt_work(chain, method, (pretrained, *merged.values()), image_counts)
        work[method.role, method.key] = chain
    return work


def _count_images(recipe: Recipe, available: int) -> int:
    """The number of a task's images that a recipe samples, out of ``available``."""
    settings = recipe.test_data or recipe.exemplars  # without ``per_task`` all images are used
    return 0 if settings is None else min(available, settings.per_task or available)


def _add_adapt_work(
    chain: ChainWork, method: Adapt, models: Sequence[Checkpoint], image_counts: Sequence[int]
) -> ChainWork:
    """The work of a merge and of the adapt on top of it; updates on features are not counted.

    ``models`` are the pretrained model, then the experts.
    """
    both_ways = method.count_images_processed(method.params(), image_counts)  # images that run forward and backward
    forward = method.feature_passes * sum(image_counts)
    tower = find_tower(models[0])
    flops = forward_flops(tower) * (forward + FORWARD_AND_BACKWARD * both_ways) if tower else 0.0
    model_bytes = [sum(info.nbytes for info in model.infos.values()) for model in models]
    reads = (sum(model_bytes) if method.stores else 0) + (sum(model_bytes[1:]) if method.needs_task else 0)
    return replace(
        chain,
        passes=chain.passes + (method.stores is not None),
        reads=chain.reads + reads,
        forward=chain.forward + forward + both_ways,
        backward=chain.backward + both_ways,
        tower_flops=chain.tower_flops + flops,
    )
