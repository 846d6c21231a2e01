"""Moments of layer inputs that stay in memory, so that chains on exemplars need no second pass over them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from merging.base.devices import choose_device
from merging.base.errors import NeedsError
from merging.base.text import size_text
from merging.engine.chain_work import count_tokens, find_tower, linear_maps
from merging.engine.layer_inputs import CapturedInputs, OnDetail
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods.method import Adapt, Merge
from merging.methods.moments import Moments, ignore_detail
from merging.models.families import WEIGHTS, Parameter
from merging.study.previews.preview_memory import count_bytes
from merging.study.runs.opened_recipe import OpenedRecipe

LIMIT = 1 << 29  # bytes


class MomentsInMemory:
    """The moments of the exemplars that a recipe draws: captured when first asked for, and kept.

    Raises:
        NeedsError: they would take more than ``LIMIT`` bytes, or a method needs gradients, which are not kept.
    """

    def __init__(self, opened: OpenedRecipe, benchmark: Benchmark, device: str) -> None:
        refuse_uncacheable(opened)
        recipe = opened.recipe
        assert recipe.exemplars is not None
        images = benchmark.exemplars(recipe.exemplars.per_task, recipe.exemplars.seed)
        self._captured = CapturedInputs(opened.experts, images, choose_device(device), like=opened.pretrained)
        self._kept: dict[str, tuple[Moments, ...] | None] = {}

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of what enters this parameter in each expert."""
        if parameter.name not in self._kept:
            self._kept[parameter.name] = self._captured.moments(parameter, on_detail)
        return self._kept[parameter.name]

    @property
    def nbytes(self) -> int:
        """Bytes that are kept: moments, and what is needed to capture more of them."""
        kept = (moments.tensors for of_experts in self._kept.values() for moments in of_experts or ())
        return count_bytes([*self._captured.tensors, *itertools.chain.from_iterable(kept)])


def estimate_bytes(opened: OpenedRecipe) -> int:
    """Bytes that the moments of a recipe's exemplars take at most."""
    tower, exemplars = find_tower(opened.pretrained), opened.recipe.exemplars
    if tower is None or exemplars is None:
        return 0
    rows = exemplars.per_task * count_tokens(tower)
    widths = [one.inputs for one in linear_maps(opened.pretrained, 1, WEIGHTS)]
    return len(opened.experts) * sum(min(4 * rows * width, 8 * width**2) for width in widths)


def refuse_learning(opened: OpenedRecipe) -> None:
    """Raise NeedsError if something is learned step by step, so that the recipe has no preview."""
    for method, step in opened.recipe.stages:
        if isinstance(method, Adapt) or method.learns(step.params):
            raise NeedsError(f"{method.title} learns from images, which takes longer than a preview. Run it instead.")


def refuse_uncacheable(opened: OpenedRecipe) -> None:
    """Raise NeedsError if what a recipe's exemplars give cannot be kept, so that it has no preview."""
    methods: Mapping[str, bool] = {method.title: bool(method.gradients) for method, _ in opened.recipe.data_methods}
    merge = opened.recipe.methods[-1]
    way = "Run it instead; changes after its merge can then be previewed against the run."
    for title, gradients in methods.items():
        if gradients:
            raise NeedsError(f"{title} needs gradients of exemplars, which take longer than a preview. {way}")
    if isinstance(merge, Merge) and merge.through_merged:
        raise NeedsError(f"{merge.title} runs the exemplars through every layer that it merges, so none is kept. {way}")
    if methods and (size := estimate_bytes(opened)) > LIMIT:
        raise NeedsError(
            f"{next(iter(methods))} needs what {opened.recipe.exemplars.per_task if opened.recipe.exemplars else 0} "
            f"exemplars a task give, which is {size_text(size)} and not at hand. {way}"
        )
