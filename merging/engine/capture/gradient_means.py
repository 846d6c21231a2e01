"""The sensitivity of a loss to every weight of any torch module: gradients of single examples, averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from merging.base.errors import NeedsError
from merging.engine.capture.capture import open_like
from merging.engine.capture.data_files import KINDS, GradientMeans
from merging.engine.capture.plain_module import check_batches, check_plain, evaluation_mode
from merging.engine.capture.weight_names import match_weights
from merging.models.digest_cache import DIGESTS
from merging.models.families import Role

if TYPE_CHECKING:
    from merging.models.formats.model_sources import Source

Loss = Callable[[torch.nn.Module, Any], Tensor]


def gradient_means(
    model: torch.nn.Module, batches: Iterable[Any], loss: Loss, kind: str = "fisher", like: Source | None = None
) -> GradientMeans:
    """The means over examples of squared or absolute gradients, {parameter name: (*S) float32}, for ``merge``.

    Every example is differentiated by itself; small batches are the fastest.

    Args:
        model: any torch module; for "fisher" the expert, for "sensitivity" the pretrained model.
        batches: an iterable of tensors (n, ...), or of mappings.
        loss: ``loss(model, batch)`` returns one number per example, (n,). For "fisher" it is the negative log
            probability of a label sampled from the model's prediction, for "sensitivity" the loss of the true label.
        kind: "fisher" squares the gradients (Fisher merging); "sensitivity" takes their absolute values (TATR).
        like: the checkpoint whose tensor names the gradients get.

    Raises:
        NeedsError: as ``capture``, or the loss returns something else.
        CheckpointError: ``like`` is not a checkpoint.
    """
    check_plain(model, "gradient_means")
    if kind not in KINDS:
        raise NeedsError(f"kind is {' or '.join(KINDS)}; got {kind!r}.")
    expert = open_like(like)
    weights = match_weights(model, expert, "", [role for role in Role if role != Role.BUFFER])
    required_grad = {name: weight.requires_grad for name, weight in weights.items()}
    sums = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
    count = 0
    try:
        for weight in weights.values():
            weight.requires_grad_(True)
        with evaluation_mode(model), torch.enable_grad():
            for batch in check_batches(model, batches):
                losses = _check_losses(loss(model, batch))
                for i, example_loss in enumerate(losses):
                    is_last = i + 1 == len(losses)
                    gradients = torch.autograd.grad(
                        example_loss, list(weights.values()), retain_graph=not is_last, allow_unused=True
                    )
                    for total, gradient in zip(sums.values(), gradients, strict=True):
                        if gradient is not None:
                            total.add_(gradient.double().square() if kind == "fisher" else gradient.double().abs())
                count += len(losses)
    finally:
        for name, weight in weights.items():
            weight.requires_grad_(required_grad[name])
    if not count:
        raise NeedsError("There are no batches; pass some of the expert's own data.")
    means = {name: (total / count).float().cpu() for name, total in sums.items()}
    if not_finite := [name for name, mean in means.items() if not torch.isfinite(mean).all()]:
        raise NeedsError(f"The gradients of {not_finite[0]!r} are not finite.")
    return GradientMeans(means, kind, count, DIGESTS.digest(expert) if expert is not None else "")


def _check_losses(losses: Any) -> Tensor:
    """The losses (n,), one per example. Raises NeedsError for anything else."""
    if not isinstance(losses, Tensor) or losses.ndim != 1 or losses.grad_fn is None:
        shape_or_type = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise NeedsError(
            f"loss(model, batch) returns one differentiable number per example, (n,); got {shape_or_type}."
        )
    return losses
