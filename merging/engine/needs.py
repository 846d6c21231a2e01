"""Checks that a caller gives the exemplars and test data that a recipe needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from merging.checkpoints.kinds.facts import title_of
from merging.errors import FamilyError, NeedsError
from merging.methods.exemplars import TaskExemplars, described
from merging.methods.method import Method, Needs
from merging.recipes.chain_rules import not_used
from merging.text import first_few

if TYPE_CHECKING:
    from merging.checkpoints.architecture import Architecture
    from merging.checkpoints.checkpoint import Checkpoint
    from merging.recipes.recipe import Recipe

HOW_TO_PASS = {
    Needs.EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, head=head)}",
    Needs.LABELED_EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, labels, head)}",
    Needs.TEST_DATA: "test_data={expert: merging.TaskExemplars(images, head=head)}",
}
TaskImages = Mapping[str, TaskExemplars]  # by expert


def checked_exemplars(exemplars: Mapping[str, Any] | None) -> dict[str, TaskExemplars] | None:
    """A caller's exemplars, images alone or more per expert, with every part checked; errors name the expert."""
    return _checked(exemplars, "Exemplars")


def checked_test_data(test_data: Mapping[str, Any] | None) -> dict[str, TaskExemplars] | None:
    """A caller's test data, checked in the same way.

    Raises:
        NeedsError: a part is not as it should be, or carries labels, which no method here may see.
    """
    checked = _checked(test_data, "Test data")
    if labeled := [name for name, task in (checked or {}).items() if task.labels is not None]:
        raise NeedsError(
            f"Test data come without labels, so that nothing learns from them; those of {first_few(labeled)} have some."
        )
    return checked


def _checked(images: Mapping[str, Any] | None, what: str) -> dict[str, TaskExemplars] | None:
    if images is not None and not isinstance(images, Mapping):
        raise NeedsError(f"{what} are a mapping {{expert: images}}; got {described(images)}.")
    checked = {}
    for name, given in (images or {}).items():
        try:
            checked[name] = given if isinstance(given, TaskExemplars) else TaskExemplars(given)
        except NeedsError as error:
            raise NeedsError(f"{what} of {name!r}: {error}") from None
    return None if images is None else checked


def check_kind(recipe: Recipe, pretrained: Checkpoint) -> None:
    """Raise FamilyError if a step of the chain works on CLIP image encoders only, and these are another network.

    Of a network whose tensors are inferred, nothing says yet which matrices have a joint space, and images cannot be
    run through it.
    """
    if not pretrained.inferred:
        return
    for method, step in recipe.stages:
        if not method.elementwise(step.params) or method.needed(step.params) != Needs.NOTHING:
            raise FamilyError(
                f"{method.title} works on CLIP image encoders only, and {pretrained.name} is another network"
                f"{f' ({title})' if (title := title_of(pretrained.infos)) else ''}. Choose methods that treat every "
                "number by itself and need no data, such as task_arithmetic, ties, pcb or weight_averaging."
            )


def check_needs(
    recipe: Recipe,
    experts: Mapping[str, Any],
    layer_inputs: Any,
    exemplars: TaskImages | None,
    test_data: TaskImages | None = None,
    gradients: Any = None,
) -> None:
    """Raise NeedsError if a method of the chain lacks something; names the method and what it lacks."""
    for method, need in recipe.data_methods:
        if method.gradients is not None and gradients is not None:
            continue  # they are checked when they are opened
        if not method.reads_layer_inputs:
            _check_parts(method, need, experts, (test_data if need == Needs.TEST_DATA else exemplars) or {})
        elif layer_inputs is None and exemplars is None:
            raise NeedsError(
                f"{method.key} needs {need}: pass layer_inputs={{expert: {{parameter: rows}}}} "
                "or exemplars={expert: images}."
            )


def not_looked_at(recipe: Recipe, exemplars: TaskImages | None, test_data: TaskImages | None) -> tuple[str, ...]:
    """A sentence for each kind of images that a caller gives and no step of the chain, the adapt included, needs."""
    return not_used({"exemplars": exemplars, "test_data": test_data}, recipe.looks_at)


def _check_parts(method: Method, need: Needs, experts: Mapping[str, Any], tasks: TaskImages) -> None:
    """Raise NeedsError if an expert lacks images, a head or (where they are needed) labels; all of them are named."""
    with_images = [name for name in experts if name in tasks and len(tasks[name].images)]
    lacking = {"images": [name for name in experts if name not in with_images]}
    if need == Needs.LABELED_EXEMPLARS:
        lacking["labels"] = [name for name in with_images if tasks[name].labels is None]
    needs_head = method.heads or method.gradients is not None
    heads = {name: tasks[name].head for name in with_images if needs_head}
    lacking["a head"] = [name for name, head in heads.items() if head is None]
    if need == Needs.TEST_DATA:  # the entropy of one class is 0, whatever a model says
        lacking["a head of more than one class"] = [
            name for name, head in heads.items() if head is not None and len(head) < 2
        ]
    missing = [f"{part} for {first_few(names)}" for part, names in lacking.items() if names]
    if missing:
        needed = f"{method.key} needs {need}" + (" and each task's zero-shot head" if needs_head else "")
        others = [name for name in tasks if name not in experts]
        strange = f" There are images of {first_few(others)}, but no such expert." if others else ""
        raise NeedsError(f"{needed}. Missing: {'; '.join(missing)}.{strange} Pass {HOW_TO_PASS[need]}.")


def check_fits(name: str, task: TaskExemplars, architecture: Architecture) -> None:
    """Raise NeedsError for images or a head that do not fit the tower."""
    side, width = architecture.image_size, architecture.embed_dim
    if task.images.shape[1:] != (3, side, side):
        shape = tuple(task.images.shape)
        raise NeedsError(f"The images of {name!r} must be a tensor (n, 3, {side}, {side}); got {shape}.")
    if not torch.isfinite(task.images).all():
        raise NeedsError(f"The images of {name!r} hold NaN or infinity.")
    if task.head is not None and task.head.shape[1] != width:
        shape = tuple(task.head.shape)
        raise NeedsError(f"The head of {name!r} must be a tensor (classes, {width}); got {shape}.")
