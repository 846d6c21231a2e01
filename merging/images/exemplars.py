"""Images of a task that methods may use: labeled training images or unlabeled test images, with the task's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from merging.base.errors import NeedsError


@dataclass(frozen=True, eq=False)
class TaskExemplars:
    """Images of one task and, for methods that use its loss, the labels and the head for that loss.

    The images are training images (exemplars), or test images (test data), which have no labels.

    ``images`` (n, 3, h, w) are preprocessed, ``labels`` (n,) count classes from 0, ``head`` (classes, embed_dim) is the
    task's frozen zero-shot classifier with unit rows, and cosines times ``logit_scale`` are logits.

    Raises:
        NeedsError: a tensor has the wrong type or shape, or the tensors do not belong together.
    """

    images: Tensor
    labels: Tensor | None = None
    head: Tensor | None = None
    logit_scale: float = 100.0

    def __post_init__(self) -> None:
        if not isinstance(self.images, Tensor) or self.images.ndim != 4:
            raise NeedsError(f"Exemplars are a tensor of images (n, 3, h, w); got {describe_value(self.images)}.")
        if not self.images.is_floating_point():
            raise NeedsError(
                f"Exemplars are preprocessed images of floating-point numbers; got {describe_value(self.images)}."
            )
        if self.head is not None and (not isinstance(self.head, Tensor) or self.head.ndim != 2):
            raise NeedsError(f"A head is a tensor (classes, embed_dim); got {describe_value(self.head)}.")
        if self.labels is None:
            return
        count = len(self.images)
        if not isinstance(self.labels, Tensor) or self.labels.shape != (count,) or self.labels.is_floating_point():
            raise NeedsError(
                f"Labels are a tensor ({count},) of whole numbers, one per image; got {describe_value(self.labels)}."
            )
        if self.head is not None and count and not 0 <= self.labels.min() <= self.labels.max() < len(self.head):
            raise NeedsError(f"Labels are in 0 … {len(self.head) - 1}, as the head has {len(self.head)} classes.")


def describe_value(value: Any) -> str:
    """Dtype and shape of a tensor, or the type of anything else, for messages."""
    return f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
