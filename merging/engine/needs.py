"""Checks that a caller passes the data that a recipe needs: exemplars, test data, layer inputs, gradients."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch

from merging.base.errors import FamilyError, NeedsError
from merging.base.numerics.flops import LinearMap
from merging.base.text import first_few, plural
from merging.images.exemplars import TaskExemplars, describe_value
from merging.methods.method import Method, Needs
from merging.methods.params import Params
from merging.models.families import UNMERGED, WEIGHT_ROLES, Role
from merging.models.network_facts import title_of
from merging.recipes.chain_rules import describe_unused

if TYPE_CHECKING:
    from merging.models.architecture import Architecture
    from merging.models.checkpoint import Checkpoint
    from merging.recipes.recipe import Recipe

EXAMPLE_ARGUMENTS = {
    Needs.EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, head=head)}",
    Needs.LABELED_EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, labels, head)}",
    Needs.TEST_DATA: "test_data={expert: merging.TaskExemplars(images, head=head)}",
}
MATRIX_ROLES = WEIGHT_ROLES | {Role.EMBEDDING}
MIN_MATRIX_SHARE = 0.5  # share of all scalars in matrices, below which a warning states it
TaskImages = Mapping[str, TaskExemplars]  # by expert


class DataBeyondClip(StrEnum):
    """The data that a step needs on a network that no images run through."""

    NOTHING = "nothing"
    LAYER_INPUTS = "layer inputs"
    GRADIENTS = "gradients"
    IMPOSSIBLE = "not possible"


def check_exemplars(exemplars: Mapping[str, Any] | None) -> dict[str, TaskExemplars] | None:
    """A caller's exemplars, {expert: images (n, 3, h, w) or TaskExemplars}, checked; errors name the expert."""
    return _check_task_images(exemplars, "Exemplars")


def check_test_data(test_data: Mapping[str, Any] | None) -> dict[str, TaskExemplars] | None:
    """A caller's test data, checked like exemplars.

    Raises:
        NeedsError: a task's images are invalid, or have labels, which no method that learns from test data may see.
    """
    checked = _check_task_images(test_data, "Test data")
    if labeled := [name for name, task in (checked or {}).items() if task.labels is not None]:
        raise NeedsError(
            f"Test data must not have labels, which no method may learn from; those of {first_few(labeled)} do."
        )
    return checked


def _check_task_images(images: Mapping[str, Any] | None, argument: str) -> dict[str, TaskExemplars] | None:
    if images is not None and not isinstance(images, Mapping):
        raise NeedsError(f"{argument} are a mapping {{expert: images}}; got {describe_value(images)}.")
    checked = {}
    for name, task_images in (images or {}).items():
        try:
            is_checked = isinstance(task_images, TaskExemplars)
            checked[name] = task_images if is_checked else TaskExemplars(task_images)
        except NeedsError as error:
            raise NeedsError(f"{argument} of {name!r}: {error}") from None
    return None if images is None else checked


def check_kind(recipe: Recipe, pretrained: Checkpoint, layer_inputs: Any = None, gradients: Any = None) -> None:
    """Check that a network other than CLIP has the data of every step that would run images through CLIP towers.

    Raises:
        NeedsError: layer inputs or gradients are missing, which a caller can pass for any network.
        FamilyError: the step is impossible with any data.
    """
    if not pretrained.is_inferred:  # CLIP
        return
    network = title_of(pretrained.infos) or "another network"
    caller_data = {DataBeyondClip.LAYER_INPUTS: layer_inputs, DataBeyondClip.GRADIENTS: gradients}
    for method, step in recipe.stages:
        needed = needs_beyond_clip(method, step.params)
        if needed == DataBeyondClip.NOTHING or caller_data.get(needed) is not None:
            continue
        if needed == DataBeyondClip.GRADIENTS:
            raise NeedsError(
                f"{method.title} runs images through CLIP towers; this is {network}. Give gradients, from "
                "merging.gradient_means. On the command line: --gradients NAME=FILE for each expert."
            )
        if needed == DataBeyondClip.IMPOSSIBLE:
            raise FamilyError(
                f"{method.title} runs images through CLIP towers; this is {network}. Choose a method that needs no "
                "data, or one that reads layer inputs, such as lot or regmean."
            )
        raise NeedsError(
            f"Exemplars run through CLIP towers; this is {network}. Give layer_inputs, from merging.capture. "
            "On the command line: --layer-inputs NAME=FILE for each expert."
        )


def needs_beyond_clip(method: Method, params: Params) -> DataBeyondClip:
    """The data that a method needs on networks other than CLIP, through which no images run."""
    if method.needs_for(params) == Needs.NOTHING and method.role != "adapt":
        return DataBeyondClip.NOTHING
    if method.gradients is not None:
        return DataBeyondClip.GRADIENTS
    return DataBeyondClip.LAYER_INPUTS if method.reads_layer_inputs else DataBeyondClip.IMPOSSIBLE


def warn_of_few_matrices(recipe: Recipe, pretrained: Checkpoint) -> tuple[str, ...]:
    """A sentence if the merge works on matrices, and these hold less than half of another network's scalars."""
    method, params = recipe.methods[-1], recipe.steps[-1].params
    # A method without ``algebra``, operations on a matrix of whatever size, does not work on matrices.
    if not pretrained.is_inferred or method.is_elementwise(params) or not method.algebra(params, LinearMap(2, 8, 8)):
        return ()
    sizes = {p: pretrained.infos[p.name].numel for p in pretrained.parameters if p.role not in UNMERGED}
    matrices = [p for p in sizes if p.role in MATRIX_ROLES and not method.elementwise(params, p)]
    share = sum(sizes[p] for p in matrices) / max(sum(sizes.values()), 1)
    if share >= MIN_MATRIX_SHARE:
        return ()
    # Merges with the parameter ``others`` leave the rest pretrained or average it; those without it average it.
    others = "stay pretrained" if params.effective_values().get("others") == "pretrained" else "take the mean"
    return (
        f"{method.title} treats {len(matrices)} of {plural(len(sizes), 'tensor')} ({share:.0%} of the numbers) as "
        f"matrices here; the others {others}.",
    )


def check_needs(
    recipe: Recipe,
    experts: Mapping[str, Any],
    layer_inputs: Any,
    exemplars: TaskImages | None,
    test_data: TaskImages | None = None,
    gradients: Any = None,
) -> None:
    """Raise NeedsError if a method of the chain lacks data; the message names the method and the missing parts."""
    for method, need in recipe.data_methods:
        if method.gradients is not None and gradients is not None:
            continue  # gradients are checked when they are opened
        if not method.reads_layer_inputs:
            _check_parts(method, need, experts, (test_data if need == Needs.TEST_DATA else exemplars) or {})
        elif layer_inputs is None and exemplars is None:
            raise NeedsError(
                f"{method.key} needs {need}: pass layer_inputs={{expert: {{parameter: rows}}}} "
                "or exemplars={expert: images}."
            )


def warn_of_unused_images(
    recipe: Recipe, exemplars: TaskImages | None, test_data: TaskImages | None
) -> tuple[str, ...]:
    """A sentence for each kind of images that a caller passes and no step of the chain, adapt included, needs."""
    return describe_unused({"exemplars": exemplars, "test_data": test_data}, recipe.image_needs)


def _check_parts(method: Method, need: Needs, experts: Mapping[str, Any], tasks: TaskImages) -> None:
    """Raise NeedsError if experts lack images, a head or (if needed) labels; the message names all of them."""
    with_images = [name for name in experts if name in tasks and len(tasks[name].images)]
    lacking = {"images": [name for name in experts if name not in with_images]}
    if need == Needs.LABELED_EXEMPLARS:
        lacking["labels"] = [name for name in with_images if tasks[name].labels is None]
    needs_head = method.heads or method.gradients is not None
    heads = {name: tasks[name].head for name in with_images if needs_head}
    lacking["a head"] = [name for name, head in heads.items() if head is None]
    if need == Needs.TEST_DATA:  # the entropy of one class is always 0
        lacking["a head with more than one class"] = [
            name for name, head in heads.items() if head is not None and len(head) < 2
        ]
    missing = [f"{part} for {first_few(names)}" for part, names in lacking.items() if names]
    if missing:
        needed = f"{method.key} needs {need}" + (" and each task's zero-shot head" if needs_head else "")
        others = [name for name in tasks if name not in experts]
        unmatched = f" There are images of {first_few(others)}, but no such expert." if others else ""
        raise NeedsError(f"{needed}. Missing: {'; '.join(missing)}.{unmatched} Pass {EXAMPLE_ARGUMENTS[need]}.")


def check_fits(name: str, task: TaskExemplars, architecture: Architecture, noun: str = "images") -> None:
    """Raise NeedsError if images or a head do not fit the tower."""
    check_images(f"The {noun} of {name!r}", task.images, architecture.image_size)
    width = architecture.embed_dim
    if task.head is not None and task.head.shape[1] != width:
        shape = tuple(task.head.shape)
        raise NeedsError(f"The head of {name!r} must be a tensor (classes, {width}); got {shape}.")


def check_images(description: str, images: Any, side: int) -> None:
    """Raise NeedsError unless the images are a tensor (n, 3, side, side) of finite numbers."""
    if not isinstance(images, torch.Tensor) or images.shape[1:] != (3, side, side):
        shape_or_type = tuple(images.shape) if isinstance(images, torch.Tensor) else type(images).__name__
        raise NeedsError(f"{description} must be a tensor (n, 3, {side}, {side}); got {shape_or_type}.")
    if not torch.isfinite(images).all():
        raise NeedsError(f"{description} hold NaN or infinity.")
