"""What a task shows to the methods that look at data, and whether it is all that a chain asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from merging.errors import NeedsError, first_few
from merging.method import Method, Needs

if TYPE_CHECKING:
    from merging.recipe import Recipe

HOW = {
    Needs.EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, head=head)}",
    Needs.LABELED_EXEMPLARS: "exemplars={expert: merging.TaskExemplars(images, labels, head)}",
}


@dataclass(frozen=True, eq=False)
class TaskExemplars:
    """Training images of one task and, for methods that use its loss, what gives that loss.

    ``images`` (n, 3, h, w) are preprocessed, ``labels`` (n,) count classes from 0, ``head`` (classes, embed_dim) is the
    task's frozen zero-shot classifier with unit rows, and cosines times ``logit_scale`` are logits.

    Raises:
        NeedsError: one of them is not of that kind, or they do not belong together.
    """

    images: Tensor
    labels: Tensor | None = None
    head: Tensor | None = None
    logit_scale: float = 100.0

    def __post_init__(self) -> None:
        if not isinstance(self.images, Tensor) or self.images.ndim != 4:
            raise NeedsError(f"Exemplars are a tensor of images (n, 3, h, w); got {described(self.images)}.")
        if not self.images.is_floating_point():
            raise NeedsError(
                f"Exemplars are preprocessed images of floating-point numbers; got {described(self.images)}."
            )
        if self.head is not None and (not isinstance(self.head, Tensor) or self.head.ndim != 2):
            raise NeedsError(f"A head is a tensor (classes, embed_dim); got {described(self.head)}.")
        if self.labels is None:
            return
        count = len(self.images)
        if not isinstance(self.labels, Tensor) or self.labels.shape != (count,) or self.labels.is_floating_point():
            raise NeedsError(
                f"Labels are a tensor ({count},) of whole numbers, one per image; got {described(self.labels)}."
            )
        if self.head is not None and count and not 0 <= self.labels.min() <= self.labels.max() < len(self.head):
            raise NeedsError(f"Labels lie in 0 … {len(self.head) - 1}, as the head has {len(self.head)} classes.")


def described(value: Any) -> str:
    """Dtype and shape of a tensor, or the type of anything else, for messages."""
    return f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


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
