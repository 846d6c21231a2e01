"""Whether exemplars are given as a recipe needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.errors import NeedsError
from merging.methods.exemplars import TaskExemplars, described
from merging.methods.method import Method, Needs
from merging.text import first_few

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

HOW = {
    Needs.EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, head=head)}",
    Needs.LABELED_EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, labels, head)}",
}


def take(given: Mapping[str, Any] | None) -> dict[str, TaskExemplars] | None:
    """What a caller gave, images alone or more, with every part checked; errors name the expert."""
    if given is not None and not isinstance(given, Mapping):
        raise NeedsError(f"Exemplars are a mapping {{expert: images}}; got {described(given)}.")
    found = {}
    for name, shown in (given or {}).items():
        try:
            found[name] = shown if isinstance(shown, TaskExemplars) else TaskExemplars(shown)
        except NeedsError as error:
            raise NeedsError(f"Exemplars of {name!r}: {error}") from None
    return None if given is None else found


def check_needs(
    recipe: Recipe, experts: Mapping[str, Any], layer_inputs: Any, exemplars: Mapping[str, TaskExemplars] | None
) -> None:
    """Raise NeedsError if a method of the chain lacks something; says which method and what."""
    for method, need in recipe.data_methods:
        if method.gradients is not None:
            _check_scored(method, need, experts, exemplars or {})
        elif need != Needs.EXEMPLARS or (layer_inputs is None and exemplars is None):
            raise NeedsError(
                f"{method.key} needs {need}: pass layer_inputs={{expert: {{parameter: rows}}}} "
                "or exemplars={expert: images}."
            )


def _check_scored(method: Method, need: Needs, experts: Mapping[str, Any], shown: Mapping[str, TaskExemplars]) -> None:
    """Refuse if an expert lacks images, a head or (where they are needed) labels."""
    there = [name for name in experts if name in shown and len(shown[name].images)]
    lacking = {"images": [name for name in experts if name not in there]}
    if need == Needs.LABELED_EXEMPLARS:
        lacking["labels"] = [name for name in there if shown[name].labels is None]
    lacking["a head"] = [name for name in there if shown[name].head is None]
    missing = [f"{what} for {first_few(names)}" for what, names in lacking.items() if names]
    if missing:
        what = f"{method.key} needs {need} and each task's zero-shot head"
        raise NeedsError(f"{what}. Missing: {'; '.join(missing)}. Pass {HOW[need]}.")
