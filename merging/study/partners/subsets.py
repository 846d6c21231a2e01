"""The measurement: a chain on subsets of its experts, each evaluated on the same images of every data set.

It is a sweep of kind "subsets", so that it can pause, run on workers, and use again what is stored. A subset of the
experts is a number whose bit j (from 0) says whether expert j is in it; v[S][i] is the accuracy of the chain on the
subset S on task i, and v[0] that of the pretrained model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from merging.images.benchmarks.image_draws import CHOOSING
from merging.images.benchmarks.paired_scores import IN_DOMAIN, OUT_OF_DOMAIN, Correctness, group_tasks
from merging.recipes.recipe import Recipe
from merging.study.sweeps.sweep import SUBSETS, Axis, Sweep
from merging.study.sweeps.sweep_target import SUBSET, list_members

MOST_EXACT = 8  # experts up to which every subset is merged
FEW = 3  # experts of the largest teams that predictors are judged on
PERMUTATIONS = 24  # orders of larger teams, whose first experts are the merged subsets
DEFAULT_IMAGES = 64  # of each data set
Subset = tuple[str, ...]  # names of experts, in the order of the team


def list_orders(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Seeded orders of the ``count`` experts of a team, as indices (P, K)."""
    generator = np.random.default_rng([seed, count])
    return np.stack([generator.permutation(count) for _ in range(PERMUTATIONS)])


def list_subsets(count: int, seed: int = 0) -> list[int]:
    """The subsets to measure: all of up to ``MOST_EXACT`` experts.

    Of more experts: those of at most two or all but at most one, and the first experts of each of ``list_orders``.
    """
    everyone = (1 << count) - 1
    if count <= MOST_EXACT:
        return list(range(everyone + 1))
    single = [1 << index for index in range(count)]
    few = {0, *(first | second for first in single for second in single)}
    prefixes = {int(sum(1 << int(index) for index in order[:size])) for order in list_orders(count, seed)
                for size in range(count)}  # fmt: skip
    return sorted(few | prefixes | {everyone} | {everyone ^ one for one in single})


def list_few(count: int) -> list[int]:
    """The subsets of at most ``FEW`` experts; of teams larger than ``MOST_EXACT``, those of at most two."""
    most = FEW if count <= MOST_EXACT else 2
    return sorted(sum(1 << one for one in few) for size in range(most + 1) for few in combinations(range(count), size))


def plan_subsets(
    recipe: Recipe,
    images: int = DEFAULT_IMAGES,
    seed: int = 0,
    split: str = CHOOSING,
    subsets: Iterable[int] | None = None,
    title: str = "",
) -> Sweep:
    """The sweep that measures ``subsets``, by default ``list_subsets``, on ``images`` of every data set (0: all).

    Raises:
        RecipeError: fewer than two experts, or too many.
    """
    chosen = list_subsets(len(recipe.experts), seed) if subsets is None else subsets
    axis = Axis(SUBSET, tuple(map(float, chosen)))
    return Sweep(recipes=(recipe,), axes=(axis,), kind=SUBSETS, split=split, images=images, seed=seed, title=title)


@dataclass(frozen=True)
class MeasuredSubsets:
    """The answers of every measured subset of the ``experts``: ``right`` is {subset: {data set: (n,)}}.

    An answer is 1 if the image is right and 0 if not, or the share of models that are right if the chain gives several.
    All subsets answer the same images. ``total`` is the number of subsets to measure, ``seed`` that of sampled images
    and orders, ``device`` names what computed them.
    """

    experts: tuple[str, ...]
    right: Mapping[int, Correctness]
    total: int
    seed: int = 0
    device: str = ""

    @property
    def complete(self) -> bool:
        """Whether every subset is measured."""
        return len(self.right) == self.total

    @property
    def is_pretrained_alone(self) -> bool:
        """Whether the chain gives the pretrained model for every single expert, as far as its answers tell."""
        alone = [1 << index for index in range(len(self.experts))]
        return {0, *alone} <= self.right.keys() and all(
            (self.right[one][task] == self.right[0][task]).all() for one in alone for task in self.tasks
        )

    @property
    def everyone(self) -> int:
        """The subset with all experts."""
        return (1 << len(self.experts)) - 1

    @cached_property
    def accuracy(self) -> dict[Subset, dict[str, float]]:
        """v[subset][data set]: accuracies (fractions) by the names of the subset's experts; () is pretrained."""
        return {
            list_members(self.experts, subset): {task: float(right.mean()) for task, right in by_task.items()}
            for subset, by_task in self.right.items()
        }

    @property
    def tasks(self) -> list[str]:
        """The data sets that all subsets answer."""
        return list(next(iter(self.right.values()), {}))

    @property
    def groups(self) -> dict[str, list[str]]:
        """{"in domain": the experts' tasks, in their order, "out of domain": the other data sets}."""
        groups = group_tasks(self.tasks, self.experts)
        groups[IN_DOMAIN].sort(key=self.experts.index)
        return {name: groups[name] for name in (IN_DOMAIN, OUT_OF_DOMAIN)}

    def stack(self, task: str, subsets: Collection[int]) -> NDArray[np.float64]:
        """The answers (subsets, n) to the images of a task."""
        return np.stack([self.right[subset][task] for subset in subsets]).astype(np.float64)

    def count_images(self, task: str) -> int:
        """The number of images of a data set."""
        return len(next(iter(self.right.values()))[task])
