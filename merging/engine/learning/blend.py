"""The merged model that a method learns on: it writes task vectors into it and asks for losses and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property

import torch
from torch import Tensor

from merging.engine.inputs import Inputs
from merging.engine.learning.kept import Kept
from merging.engine.learning.network import Network
from merging.engine.learning.vectors import MaskFile, Vectors
from merging.engine.needs import check_fits
from merging.engine.stream import Stage, Stream
from merging.methods.exemplars import TaskExemplars
from merging.methods.learning import Change, batch_order, entropies, log_predictions
from merging.methods.slot import SlotStream
from merging.numerics.linear_algebra import double, numbers
from merging.progress import Meter

Loss = Callable[[Tensor, TaskExemplars, Tensor], Tensor]  # features (n, e), task, indices (n,) -> losses (n,)
PART = "merge"  # of what is kept
PHASE = "Learning"


class EngineBlend:
    """See ``merging.methods.learning.Blend``.

    Temporary files last as long as the stack ``files``. ``work`` is counted by the meter: images times scalars.

    The same numbers come out of every run with as many threads. With another number of threads torch adds up products
    in another order, so that the last digits differ.
    """

    def __init__(
        self,
        inputs: Inputs,
        edits: tuple[Stage, ...],
        slots: Stream,
        tasks: Mapping[str, TaskExemplars],
        kept: Kept,
        meter: Meter,
        files: ExitStack,
        work: int,
    ) -> None:
        self._inputs, self._slots, self._tasks, self._files = inputs, slots, tasks, files
        self._kept, self._meter, self._work, self._detail = kept, meter, work, ""
        meter.total += work
        self.live = tuple(p for p in inputs.parameters if not any(stage.drops(p) for stage in edits))
        self._vectors = Vectors(inputs, edits, self.live, meter.silent())
        files.callback(self._vectors.close)

    @property
    def slots(self) -> SlotStream:
        """All tensors, as surveys see them."""
        return self._slots

    @cached_property
    def _network(self) -> Network:
        network = Network(self._inputs, {parameter.name for parameter in self.live})
        for name, task in self._tasks.items():
            check_fits(name, task, network.architecture)
        return network

    def visit(self, change: Change, expert: str | None = None) -> None:
        """Go through the live tensors once, write what ``change`` gives, and drop gradients."""
        network = self._network
        for slot in self._vectors.slots(expert):
            merged = change(slot, network.take_gradient(slot.name))
            if merged is not None:
                network.write(slot.name, slot.pretrained + merged)

    def entropies(self, seed: int, batch: int, step: int) -> tuple[float, ...]:
        """Every task's mean entropy over its batch of this step, whose gradients are added up."""
        losses = []
        for name, task in self._tasks.items():
            order = torch.from_numpy(batch_order(seed, name, len(task.images), batch, step))
            losses.append(self._backward(task, order, self._entropy))
        return tuple(losses)

    def cross_entropy(self, expert: str) -> float:
        """The mean cross-entropy over all labeled exemplars of one task, whose gradient is added up."""
        task = self._tasks[expert]
        return self._backward(task, torch.arange(len(task.images)), self._surprise)

    def masks(self) -> MaskFile:
        """Masks of every expert, which last until the model is merged."""
        numels = zip(self._inputs.parameters, self._inputs.numels, strict=True)
        masks = MaskFile({parameter.name: numel for parameter, numel in numels}, self._inputs.device)
        self._files.callback(masks.close)
        return masks

    def say(self, detail: str) -> None:
        """What the progress shows from now on."""
        self._detail = detail

    def restored(self) -> dict[str, Tensor]:
        """What an interrupted run of the same recipe kept; empty for a new one."""
        return self._kept.restored(PART)

    def skip(self, share: float) -> None:
        """Count this share of all steps as done, which an interrupted run has made."""
        self._meter.done += round(share * self._work)

    def keep(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer what a later run would go on from."""
        self._kept.keep(PART, state)

    def _backward(self, task: TaskExemplars, order: Tensor, loss: Loss) -> float:
        """The mean loss over these images, whose gradient is added to what the network holds."""
        network, losses = self._network, list[Tensor]()
        for chosen in order.split(network.micro_batch):
            each = loss(network.features(task.images[chosen]), task, chosen)
            (each.sum() / len(order)).backward()
            losses.append(double(each.detach()).sum())
            self._meter.advance(len(chosen) * sum(self._inputs.numels), PHASE, self._detail)
            self._kept.check()
        return sum(numbers(*losses)) / len(order)

    def _entropy(self, features: Tensor, task: TaskExemplars, chosen: Tensor) -> Tensor:
        assert task.head is not None  # as the needs were checked
        return entropies(features, self._network.moved(task.head), task.logit_scale)

    def _surprise(self, features: Tensor, task: TaskExemplars, chosen: Tensor) -> Tensor:
        assert task.head is not None  # as the needs were checked
        assert task.labels is not None
        log_shares = log_predictions(features, self._network.moved(task.head), task.logit_scale)
        labels = task.labels[chosen].long().to(log_shares.device)
        return -log_shares.gather(1, labels[:, None])[:, 0]
