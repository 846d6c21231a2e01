"""The start of a run that learned: the model before learning, as another stored run."""

from __future__ import annotations

from collections.abc import Sequence

from merging.base.errors import MergingError
from merging.methods import registry
from merging.recipes.learning_start import start_of
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run, have_same_models


def find_start_recipe(run: Run) -> Recipe | None:
    """The recipe of the model that a run started from; None if it learned nothing or has an unknown method."""
    try:
        return start_of(run.recipe) if run.recipe is not None else None
    except MergingError:
        return None


def find_start(run: Run, stored_runs: Sequence[Run]) -> Run | None:
    """The stored, evaluated run of the start's recipe on the same models and benchmark; None without one."""
    start = find_start_recipe(run)
    if start is None:
        return None
    scored_runs = [
        other_run for other_run in stored_runs if other_run.benchmark == run.benchmark and other_run.has_scores
    ]
    same_model_runs = [other_run for other_run in scored_runs if have_same_models(run, other_run)]
    return next((other_run for other_run in same_model_runs if _chain_digest(other_run) == start.chain_digest), None)


def _chain_digest(run: Run) -> str:
    try:
        return run.recipe.chain_digest if run.recipe is not None else ""
    except MergingError:  # this version does not know a method of the run
        return ""


def loss_in_words(run: Run, is_last: bool = True) -> str:
    """The loss, with its unit, of the last method of the run's recipe that learns, or of the first such method."""
    try:
        stages = list(run.recipe.stages) if run.recipe is not None else []
    except MergingError:
        stages = []
    return next((method.loss for method, _ in (stages[::-1] if is_last else stages) if method.loss), "Loss")


def find_learning_method() -> str:
    """The key of a registered merge that learns without labels, for a link to the builder; empty if there is none."""
    return next((method.key for method in registry.list_methods() if getattr(method, "learn", None) is not None), "")
