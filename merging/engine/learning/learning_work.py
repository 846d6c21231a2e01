"""The work of methods that learn: images that run forward and backward, and models' worth of tensors that are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merging.methods.method import Needs

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

FORWARD_AND_BACKWARD = 3  # forward passes that take as many operations as one image forward and backward


@dataclass(frozen=True, slots=True)
class LearningWork:
    """``images`` run forward and backward through the merged model; ``models`` are read from files, in whole models."""

    images: int = 0
    models: int = 0


def learning_work(recipe: Recipe, experts: int, test_images: Sequence[int] = ()) -> LearningWork:
    """The work of the merge of a recipe while it learns; nothing for merges that do not.

    ``test_images`` are the numbers of unlabeled images, by task. Where they are not known, a task has as many as the
    recipe says, or as every batch takes. What an edit drops is counted, though it is not read.
    """
    method, params = recipe.methods[-1], recipe.merge.params
    if not method.learns(params):
        return LearningWork()
    if method.needs_for(params) == Needs.TEST_DATA:
        known = recipe.test_data.per_task if recipe.test_data else None
        images = list(test_images) or [known or sys.maxsize] * experts
    else:
        images = [recipe.exemplars.per_task if recipe.exemplars else 0] * experts
    return LearningWork(method.learns_on(params, images), method.learn_reads(params, experts))
