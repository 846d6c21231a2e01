"""Moments of layer inputs that stay in memory, so that further chains on the same exemplars need no pass over them.

Moments are the rows that enter a layer on the exemplars, or their sum and Gram matrix if those are smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from merging.base.devices import choose_device
from merging.base.errors import NeedsError
from merging.base.text import size_text
from merging.engine.chain_work import count_tokens, find_tower, list_linear_maps
from merging.engine.layer_inputs import CapturedInputs, OnDetail, ignore_detail
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods.method import Adapt, Merge
from merging.methods.moments import Moments
from merging.models.families import WEIGHT_ROLES, Parameter
from merging.study.previews.preview_memory import count_bytes
from merging.study.runs.opened_recipe import OpenedRecipe

MAX_BYTES = 1 << 29  # of moments


class MomentsInMemory:
    """The moments of the exemplars that a recipe samples: captured on first use, then cached.

    Raises:
        NeedsError: they would take more than ``MAX_BYTES`` bytes, or a method needs gradients, which are not cached.
    """

    def __init__(self, opened: OpenedRecipe, benchmark: Benchmark, device: str) -> None:
        refuse_uncacheable(opened)
        recipe = opened.recipe
        assert recipe.exemplars is not None
        images = benchmark.exemplars(recipe.exemplars.per_task, recipe.exemplars.seed)
        self._captured = CapturedInputs(opened.experts, images, choose_device(device), like=opened.pretrained)
        self._cached: dict[str, tuple[Moments, ...] | None] = {}

    def moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of this parameter's inputs in each expert, None if it has none."""
        if parameter.name not in self._cached:
            self._cached[parameter.name] = self._captured.moments(parameter, on_detail)
        return self._cached[parameter.name]

    @property
    def nbytes(self) -> int:
        """Bytes in memory: moments, and the tensors that capturing more of them needs."""
        tensors = (moments.stored_tensors for by_expert in self._cached.values() for moments in by_expert or ())
        return count_bytes([*self._captured.stored_tensors, *itertools.chain.from_iterable(tensors)])


def estimate_bytes(opened: OpenedRecipe) -> int:
    """The most bytes that the moments of a recipe's exemplars can take."""
    tower, exemplars = find_tower(opened.pretrained), opened.recipe.exemplars
    if tower is None or exemplars is None:
        return 0
    rows = exemplars.per_task * count_tokens(tower)
    widths = [linear_map.inputs for linear_map in list_linear_maps(opened.pretrained, 1, WEIGHT_ROLES)]
    return len(opened.experts) * sum(min(4 * rows * width, 8 * width**2) for width in widths)


def refuse_learning(opened: OpenedRecipe) -> None:
    """Raise NeedsError if a method learns step by step, since the recipe then has no preview."""
    for method, step in opened.recipe.stages:
        if isinstance(method, Adapt) or method.learns(step.params):
            raise NeedsError(f"{method.title} learns from images, which takes longer than a preview. Run it instead.")


def refuse_uncacheable(opened: OpenedRecipe) -> None:
    """Raise NeedsError if the data of a recipe's exemplars cannot be cached, since the recipe then has no preview."""
    methods: Mapping[str, bool] = {method.title: bool(method.gradients) for method, _ in opened.recipe.data_methods}
    merge = opened.recipe.methods[-1]
    advice = "Run it instead; changes after its merge can then be previewed against the run."
    for title, gradients in methods.items():
        if gradients:
            raise NeedsError(f"{title} needs gradients of exemplars, which take longer than a preview. {advice}")
    if isinstance(merge, Merge) and merge.through_merged:
        raise NeedsError(
            f"{merge.title} runs the exemplars through every layer that it merges, so nothing can be cached. {advice}"
        )
    if methods and (size := estimate_bytes(opened)) > MAX_BYTES:
        raise NeedsError(
            f"{next(iter(methods))} needs layer inputs of "
            f"{opened.recipe.exemplars.per_task if opened.recipe.exemplars else 0} exemplars per task, which take "
            f"{size_text(size)}, too much for a preview. {advice}"
        )
