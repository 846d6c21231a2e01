"""Checks that a caller gives the exemplars that a recipe needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.errors import NeedsError
from merging.methods.exemplars import TaskExemplars, described
from merging.methods.method import Method, Needs
from merging.text import first_few

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

HOW_TO_PASS = {
    Needs.EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, head=head)}",
    Needs.LABELED_EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, labels, head)}",
}


def checked_exemplars(exemplars: Mapping[str, Any] | None) -> dict[str, TaskExemplars] | None:
    """A caller's exemplars, images alone or more per expert, with every part checked; errors name the expert."""
    if exemplars is not None and not isinstance(exemplars, Mapping):
        raise NeedsError(f"Exemplars are a mapping {{expert: images}}; got {described(exemplars)}.")
    checked = {}
    for name, images in (exemplars or {}).items():
        try:
            checked[name] = images if isinstance(images, TaskExemplars) else TaskExemplars(images)
        except NeedsError as error:
            raise NeedsError(f"Exemplars of {name!r}: {error}") from None
    return None if exemplars is None else checked


def check_needs(
    recipe: Recipe, experts: Mapping[str, Any], layer_inputs: Any, exemplars: Mapping[str, TaskExemplars] | None
) -> None:
    """Raise NeedsError if a method of the chain lacks something; names the method and what it lacks."""
    for method, need in recipe.data_methods:
        if method.gradients is not None:
            _check_parts(method, need, experts, exemplars or {})
        elif need != Needs.EXEMPLARS or (layer_inputs is None and exemplars is None):
            raise NeedsError(
                f"{method.key} needs {need}: pass layer_inputs={{expert: {{parameter: rows}}}} "
                "or exemplars={expert: images}."
            )


def _check_parts(method: Method, need: Needs, experts: Mapping[str, Any], tasks: Mapping[str, TaskExemplars]) -> None:
    """Raise NeedsError if an expert lacks images, a head or (where they are needed) labels."""
    with_images = [name for name in experts if name in tasks and len(tasks[name].images)]
    lacking = {"images": [name for name in experts if name not in with_images]}
    if need == Needs.LABELED_EXEMPLARS:
        lacking["labels"] = [name for name in with_images if tasks[name].labels is None]
    lacking["a head"] = [name for name in with_images if tasks[name].head is None]
    missing = [f"{what} for {first_few(names)}" for what, names in lacking.items() if names]
    if missing:
        what = f"{method.key} needs {need} and each task's zero-shot head"
        raise NeedsError(f"{what}. Missing: {'; '.join(missing)}. Pass {HOW_TO_PASS[need]}.")
