"""Shared code of methods that learn: the order of images, Adam, the loss without labels, and the engine's interface.

A method that learns is pure: it sees slots, losses and gradients, never a state dict, a file or a label. The engine
owns the network, the images, the device, progress, cancellation, and the file from which an interrupted run continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as nnf
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import MergingError
from merging.methods.slot import Slot, SlotStream

if TYPE_CHECKING:
    from merging.models.families import Parameter

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8  # as in the papers of all methods here that learn


def batch_order(seed: int, task: str, n: int, batch: int, step: int) -> NDArray[np.int64]:
    """Indices (batch,) of the images in a task's batch number ``step`` (from 0), of ``n`` images in stored order.

    Batches are consecutive pieces of an endless stream of permutations of the task's images. Each permutation depends
    only on the seed, the task's name and its own number, so a step does not depend on earlier steps. If the batch is
    not smaller than the task, it is all images (n,) in stored order.
    """
    if batch >= n:
        return np.arange(n, dtype=np.int64)
    positions = np.arange(step * batch, (step + 1) * batch)
    numbers = {int(number) for number in positions[[0, -1]] // n}  # a batch smaller than the task touches at most two
    permutations = {number: _permutation(seed, task, n, number) for number in numbers}
    return np.array([permutations[int(p // n)][p % n] for p in positions], dtype=np.int64)


def _permutation(seed: int, task: str, n: int, number: int) -> NDArray[np.int64]:
    """Permutation ``number`` (n,) of the indices of a task's images."""
    return np.random.default_rng([seed, crc32(task.encode()), number]).permutation(n)


class Adam:
    """Adam on named tensors (*S), changed in place: with bias correction, without weight decay or schedule."""

    def __init__(self, values: Mapping[str, Tensor], lr: float) -> None:
        self.values, self.lr, self.steps = dict(values), lr, 0
        self.means = {name: torch.zeros_like(value) for name, value in values.items()}
        self.squares = {name: torch.zeros_like(value) for name, value in values.items()}

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """Move every tensor by one step, with its gradient of the same shape, by name."""
        self.begin_step()
        for name, gradient in gradients.items():
            self.move(name, gradient)

    def begin_step(self) -> None:
        """Begin a step, in which ``move`` is called once for every tensor, in any order."""
        self.steps += 1

    def move(self, name: str, gradient: Tensor) -> None:
        """Move one tensor by the current step, with its gradient of the same shape."""
        mean, square = self.means[name], self.squares[name]
        mean.mul_(ADAM_BETAS[0]).add_(gradient, alpha=1 - ADAM_BETAS[0])
        square.mul_(ADAM_BETAS[1]).addcmul_(gradient, gradient, value=1 - ADAM_BETAS[1])
        size = (square / (1 - ADAM_BETAS[1] ** self.steps)).sqrt_().add_(ADAM_EPS)
        self.values[name].addcdiv_(mean, size, value=-self.lr / (1 - ADAM_BETAS[0] ** self.steps))

    def state(self) -> dict[str, Tensor]:
        """Values and moments, tensors (*S) by name, and the number of steps, a scalar: the input of ``restore``."""
        groups = {"value": self.values, "mean": self.means, "square": self.squares}
        named = {f"{group}.{name}": value for group, tensors in groups.items() for name, value in tensors.items()}
        return {**named, "steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the tensors (*S) and the scalar that ``state`` returned."""
        for group, tensors in {"value": self.values, "mean": self.means, "square": self.squares}.items():
            for name, value in tensors.items():
                value.copy_(state[f"{group}.{name}"])
        self.steps = int(state["steps"])


def entropies(features: Tensor, head: Tensor, logit_scale: float) -> Tensor:
    """The entropy (n,), in nats, of every prediction, from features (n, e) and a head (classes, e) of unit rows."""
    log_shares = log_predictions(features, head, logit_scale)
    return -(log_shares.exp() * log_shares).sum(dim=1)


def log_predictions(features: Tensor, head: Tensor, logit_scale: float) -> Tensor:
    """Logarithms of the predicted shares (n, classes), from features (n, e) and a head (classes, e) of unit rows."""
    return (logit_scale * nnf.normalize(features, dim=1) @ head.T).log_softmax(dim=1)


def require_finite(
    values: Sequence[float], step: int, tasks: Sequence[str], loss: str, learned: Callable[[], Iterable[Tensor]]
) -> None:
    """Raise MergingError if the loss of a task, one value per task, is NaN or infinite in a step (counted from 0).

    ``learned`` returns the learned tensors, of any shape; the error reports their largest absolute value.
    """
    for task, value in zip(tasks, values, strict=True):
        if not math.isfinite(value):
            raise MergingError(
                f"Learning stopped at step {step + 1}: the {loss} of {task!r} is {value}, with learned numbers of at "
                f"most {_largest_magnitude(learned()):g} in size. Nothing was stored. A smaller learning rate may "
                "help; so may checking its images."
            )


def _largest_magnitude(tensors: Iterable[Tensor]) -> float:
    return max((float(tensor.abs().max()) for tensor in tensors if tensor.numel()), default=0.0)


SlotUpdate = Callable[[Slot, "Tensor | None"], "Tensor | None"]  # (slot, gradient) -> merged task vector, see Blend


class Masks(Protocol):
    """Boolean masks of the experts over all tensors, one bit per scalar, stored on disk."""

    def append(self, kept: Mapping[str, Tensor]) -> None:
        """Add the next expert's mask: booleans of the tensor's shape, by name; missing tensors are not kept."""
        ...

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, booleans (experts so far, stop - start)."""
        ...

    def pack(self) -> Tensor:
        """All bits as bytes, (experts so far, bytes per expert)."""
        ...

    def unpack(self, rows: Tensor) -> None:
        """Add the masks (experts, bytes per expert) that ``pack`` returned."""
        ...


class Blend(Protocol):
    """The pretrained model plus a merged task vector that a method writes, and the losses of that model.

    One merged model and one gradient of its size are in memory, never a model per expert. Tensors that an edit drops
    for every expert are excluded: they stay pretrained. The others are called live.
    """

    @property
    def slots(self) -> SlotStream:
        """All tensors with the edited task vectors, as surveys see them."""
        ...

    @property
    def live_parameters(self) -> tuple[Parameter, ...]:
        """The tensors on which the method learns, in forward order: those that no edit drops for every expert."""
        ...

    def update_tensors(self, update: SlotUpdate, expert: str | None = None) -> None:
        """Call ``update(slot, gradient)`` once for every live tensor and write the merged task vector (*S) it returns.

        ``gradient`` (*S) is the sum of the gradients of all losses since the last call, which clears it; None if no
        loss was computed. If ``update`` returns None, the tensor keeps its values. With ``expert``, slots hold only
        that expert's task vector.
        """
        ...

    def compute_entropies(self, seed: int, batch: int, step: int) -> tuple[float, ...]:
        """Every task's mean entropy (nats) over its batch of this step, of ``batch`` images.

        Adds the gradient of each entropy to every tensor's sum.
        """
        ...

    def compute_cross_entropy(self, expert: str) -> float:
        """The mean cross-entropy (nats) over a task's labeled exemplars; adds its gradient to each tensor's sum."""
        ...

    def create_masks(self) -> Masks:
        """An empty store for every expert's masks, deleted after the model is merged."""
        ...

    def report_detail(self, detail: str) -> None:
        """Set the text that the progress shows."""
        ...

    def load_state(self) -> dict[str, Tensor]:
        """The state that an interrupted run of the same recipe stored: tensors of any shape, by name; else empty."""
        ...

    def skip_share(self, share: float) -> None:
        """Count this share of all steps, in [0, 1], as done by an interrupted run."""
        ...

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer the state, tensors of any shape by name, from which a later run continues; written periodically.

        Call it between steps.

        Raises:
            Paused: the caller asked for a pause; the state is written.
        """
        ...
