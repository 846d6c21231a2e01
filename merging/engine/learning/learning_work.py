"""The work of methods that learn: forward and backward passes of images, and tensors read, in whole models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merging.methods.method import Needs

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

FORWARD_AND_BACKWARD = 3  # a backward pass takes as many operations as two forward passes


@dataclass(frozen=True, slots=True)
class LearningWork:
    """``images`` run forward and backward through the merged model; ``models`` counts reads of a whole model."""

    images: int = 0
    models: int = 0


def learning_work(recipe: Recipe, experts: int, test_images: Sequence[int] = ()) -> LearningWork:
    """The work of a recipe's merge while it learns; zero for merges that do not learn.

    ``test_images`` are the numbers of unlabeled images by task. If they are not known, each task counts with the
    recipe's number, or with enough images for full batches. Tensors that an edit drops are counted, too, although they
    are not read.
    """
    method, params = recipe.methods[-1], recipe.merge.params
    if not method.learns(params):
        return LearningWork()
    if method.needs_for(params) == Needs.TEST_DATA:
        per_task = recipe.test_data.per_task if recipe.test_data else None
        image_counts = list(test_images) or [per_task or sys.maxsize] * experts
    else:
        image_counts = [recipe.exemplars.per_task if recipe.exemplars else 0] * experts
    return LearningWork(method.count_images_processed(params, image_counts), method.learn_reads(params, experts))
