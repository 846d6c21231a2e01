"""What methods that learn share: the order of images, Adam, the loss without labels, and what the engine hands them.

A method that learns stays pure: it sees slots, losses and gradients, never a state dict, a file or a label. The engine
owns the network, the images, the device, progress, cancel, and the file from which an interrupted run goes on.
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

BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's, as in every paper whose method is here


def batch_order(seed: int, task: str, n: int, batch: int, step: int) -> NDArray[np.int64]:
    """Indices of the images of a task's batch number ``step`` (from 0), of ``n`` images in stored order.

    A task's images come in an endless stream of permutations, each drawn from the seed, the task's name and its own
    number alone, and batch after batch is cut from it. So a step needs nothing of the steps before it. A batch that is
    not smaller than the task is all its images in stored order.
    """
    if batch >= n:
        return np.arange(n, dtype=np.int64)
    positions = np.arange(step * batch, (step + 1) * batch)
    permutations = {p: _permutation(seed, task, n, p) for p in {int(first) for first in positions[[0, -1]] // n}}
    return np.array([permutations[int(at // n)][at % n] for at in positions], dtype=np.int64)


def _permutation(seed: int, task: str, n: int, number: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, crc32(task.encode()), number]).permutation(n)


class Adam:
    """Adam on named tensors, which it changes in place: bias-corrected, without decay and without a schedule."""

    def __init__(self, values: Mapping[str, Tensor], lr: float) -> None:
        self.values, self.lr, self.steps = dict(values), lr, 0
        self.means = {name: torch.zeros_like(value) for name, value in values.items()}
        self.squares = {name: torch.zeros_like(value) for name, value in values.items()}

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step of every tensor."""
        self.begin()
        for name, gradient in gradients.items():
            self.move(name, gradient)

    def begin(self) -> None:
        """Begin a step, in which every tensor is then moved once, in any order."""
        self.steps += 1

    def move(self, name: str, gradient: Tensor) -> None:
        """The step of one tensor."""
        mean, square = self.means[name], self.squares[name]
        mean.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        size = (square / (1 - BETAS[1] ** self.steps)).sqrt_().add_(EPS)
        self.values[name].addcdiv_(mean, size, value=-self.lr / (1 - BETAS[0] ** self.steps))

    def state(self) -> dict[str, Tensor]:
        """Values, moments and the number of steps, as named tensors from which ``restore`` goes on."""
        groups = {"value": self.values, "mean": self.means, "square": self.squares}
        named = {f"{group}.{name}": value for group, tensors in groups.items() for name, value in tensors.items()}
        return {**named, "steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what ``state`` gave."""
        for group, tensors in {"value": self.values, "mean": self.means, "square": self.squares}.items():
            for name, value in tensors.items():
                value.copy_(state[f"{group}.{name}"])
        self.steps = int(state["steps"])


def entropies(features: Tensor, head: Tensor, logit_scale: float) -> Tensor:
    """The entropy in nats of every prediction (n,), from features (n, e) and a head (classes, e) of unit rows."""
    log_shares = log_predictions(features, head, logit_scale)
    return -(log_shares.exp() * log_shares).sum(dim=1)


def log_predictions(features: Tensor, head: Tensor, logit_scale: float) -> Tensor:
    """Logarithms of the predicted shares (n, classes)."""
    return (logit_scale * nnf.normalize(features, dim=1) @ head.T).log_softmax(dim=1)


def require_finite(
    values: Sequence[float], step: int, tasks: Sequence[str], loss: str, learned: Callable[[], Iterable[Tensor]]
) -> None:
    """Raise MergingError for a loss, one value a task, that is NaN or infinite in a step (counted from 0).

    ``learned`` gives what is learned, of which the error names the largest size.
    """
    for task, value in zip(tasks, values, strict=True):
        if not math.isfinite(value):
            raise MergingError(
                f"Learning stopped at step {step + 1}: the {loss} of {task!r} is {value}, with learned numbers of at "
                f"most {_largest_magnitude(learned()):g} in size. Nothing was kept. A smaller learning rate may "
                f"help; so may "
                "checking its images."
            )


def _largest_magnitude(tensors: Iterable[Tensor]) -> float:
    return max((float(tensor.abs().max()) for tensor in tensors if tensor.numel()), default=0.0)


Change = Callable[[Slot, "Tensor | None"], "Tensor | None"]


class Masks(Protocol):
    """Yes-or-no masks of every expert over all tensors, one bit a scalar, outside of memory."""

    def append(self, kept: Mapping[str, Tensor]) -> None:
        """Add the next expert's mask: booleans of any shape by tensor; tensors that are left out are not kept."""
        ...

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, booleans (experts so far, stop - start)."""
        ...

    def pack(self) -> Tensor:
        """All bits as bytes (experts so far, bytes of one)."""
        ...

    def unpack(self, rows: Tensor) -> None:
        """Add the masks that ``packed`` gave."""
        ...


class Blend(Protocol):
    """The pretrained model plus a merged task vector that a method writes, and the losses of that model.

    One merged model and one gradient of its size are in memory, never a model per expert. Tensors that an edit drops
    for every expert are not part of it: they stay pretrained.
    """

    @property
    def slots(self) -> SlotStream:
        """All tensors with the task vectors as the edits leave them, as surveys see them."""
        ...

    @property
    def live_parameters(self) -> tuple[Parameter, ...]:
        """The tensors that are learned on, in forward order: those that no edit drops for every expert."""
        ...

    def update_each(self, change: Change, expert: str | None = None) -> None:
        """Go through the live tensors once: ``change(slot, gradient)`` gives a merged task vector (*S) to write.

        ``gradient`` (*S) is that of all losses since the last visit, None if there were none; it is dropped. None for a
        merged task vector leaves the tensor as it is. With ``expert``, slots hold that one's task vector alone.
        """
        ...

    def entropies(self, seed: int, batch: int, step: int) -> tuple[float, ...]:
        """Every task's mean entropy over its batch of this step, whose gradients are added up."""
        ...

    def cross_entropy(self, expert: str) -> float:
        """The mean cross-entropy over all labeled exemplars of one task, whose gradient is added up."""
        ...

    def masks(self) -> Masks:
        """Masks of every expert, which last until the model is merged."""
        ...

    def report_detail(self, detail: str) -> None:
        """What the progress shows from now on."""
        ...

    def restore_state(self) -> dict[str, Tensor]:
        """What an interrupted run of the same recipe kept; empty for a new one."""
        ...

    def skip_share(self, share: float) -> None:
        """Count this share of all steps as done, which an interrupted run has made."""
        ...

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer what a later run would go on from; called between steps, written from time to time.

        Raises:
            Paused: the caller asked for a pause; the state is written.
        """
        ...
