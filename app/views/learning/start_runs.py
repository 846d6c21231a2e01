"""What a run started to learn from, as another stored run."""

from __future__ import annotations

from collections.abc import Sequence

from app.session.draft import Draft
from merging.base.errors import MergingError
from merging.methods import registry
from merging.recipes.learning_start import start_of
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run, merge_same_models


def start_recipe(run: Run) -> Recipe | None:
    """The recipe of the model that a run started from; None if it learned nothing, or if its method is gone."""
    try:
        return start_of(run.recipe) if run.recipe is not None else None
    except MergingError:
        return None


def find_start(run: Run, stored: Sequence[Run]) -> Run | None:
    """The stored and evaluated run of that recipe on the same models and benchmark."""
    start = start_recipe(run)
    if start is None:
        return None
    same = [one for one in stored if merge_same_models(run, one) and one.benchmark == run.benchmark and one.has_scores]
    return next((one for one in same if _digest(one) == start.chain_digest), None)


def _digest(run: Run) -> str:
    try:
        return run.recipe.chain_digest if run.recipe is not None else ""
    except MergingError:  # of a method that this version does not know
        return ""


def start_chain(start: Recipe) -> str:
    """The recipe as links write it."""
    return Draft.from_recipe(start).chain()


def loss_in_words(run: Run, last: bool = True) -> str:
    """What the last method of a run that learns made small, with its unit, or the first one."""
    try:
        stages = list(run.recipe.stages) if run.recipe is not None else []
    except MergingError:
        stages = []
    return next((method.loss for method, _ in (stages[::-1] if last else stages) if method.loss), "Loss")


def learning_method() -> str:
    """The key of a registered merge that learns without labels, for a link to the builder; empty if there is none."""
    return next((one.key for one in registry.list_methods() if getattr(one, "learn", None) is not None), "")
