"""The merged model that a method learns on: it writes task vectors into it and asks for losses and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.base.progress import Meter
from merging.base.threads import parallel_pieces, run_in_threads
from merging.engine.learning.edited_vectors import EditedVectors, MaskFile
from merging.engine.learning.learned_network import LearnedNetwork
from merging.engine.learning.learning_state import LearningState
from merging.engine.needs import check_fits
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stage, Stream
from merging.images.exemplars import TaskExemplars
from merging.methods.learning import Change, batch_order, entropies, log_predictions
from merging.methods.slot import SlotStream

Batch = tuple[TaskExemplars, Tensor]  # a task, and the indices (n,) of its images
Loss = Callable[[Tensor, TaskExemplars, Tensor], Tensor]  # features (n, e), task, indices (n,) -> losses (n,)
PART = "merge"  # of what is kept
PHASE = "Learning"


class EngineBlend:
    """See ``merging.methods.learning.Blend``.

    Temporary files last as long as the stack ``files``. ``work`` is counted by the meter: images times scalars.

    The same numbers come out whatever the threads: each batch has one, and gradients are added up in the tasks' order.
    """

    def __init__(
        self,
        inputs: RunInputs,
        edits: tuple[Stage, ...],
        slots: Stream,
        tasks: Mapping[str, TaskExemplars],
        kept: LearningState,
        meter: Meter,
        files: ExitStack,
        work: int,
    ) -> None:
        self._inputs, self._slots, self._tasks, self._files = inputs, slots, tasks, files
        self._kept, self._meter, self._work, self._detail = kept, meter, work, ""
        meter.total += work
        self.live_parameters = tuple(p for p in inputs.parameters if not any(stage.drops(p) for stage in edits))
        self._vectors = EditedVectors(inputs, edits, self.live_parameters, meter.silent())
        files.callback(self._vectors.close)

    @property
    def slots(self) -> SlotStream:
        """All tensors, as surveys see them."""
        return self._slots

    @cached_property
    def _network(self) -> LearnedNetwork:
        network = LearnedNetwork(self._inputs, {parameter.name for parameter in self.live_parameters})
        for name, task in self._tasks.items():
            check_fits(name, task, network.architecture)
        return network

    def update_each(self, change: Change, expert: str | None = None) -> None:
        """Go through the live tensors once, write what ``change`` gives, and drop gradients."""
        network = self._network
        for slot in self._vectors.slots(expert):
            merged = change(slot, network.take_gradient(slot.name))
            if merged is not None:
                network.write(slot.name, slot.pretrained + merged)

    def entropies(self, seed: int, batch: int, step: int) -> tuple[float, ...]:
        """Every task's mean entropy over its batch of this step, whose gradients are added up."""
        orders = [batch_order(seed, name, len(task.images), batch, step) for name, task in self._tasks.items()]
        chosen = [(task, torch.from_numpy(order)) for task, order in zip(self._tasks.values(), orders, strict=True)]
        return tuple(self._losses(chosen, self._entropy))

    def cross_entropy(self, expert: str) -> float:
        """The mean cross-entropy over all labeled exemplars of one task, whose gradient is added up."""
        task = self._tasks[expert]
        return self._losses([(task, torch.arange(len(task.images)))], self._surprise)[0]

    def masks(self) -> MaskFile:
        """Masks of every expert, which last until the model is merged."""
        numels = zip(self._inputs.parameters, self._inputs.numels, strict=True)
        masks = MaskFile({parameter.name: numel for parameter, numel in numels}, self._inputs.device)
        self._files.callback(masks.close)
        return masks

    def report_detail(self, detail: str) -> None:
        """What the progress shows from now on."""
        self._detail = detail

    def restore_state(self) -> dict[str, Tensor]:
        """What an interrupted run of the same recipe kept; empty for a new one."""
        return self._kept.restore(PART)

    def skip_share(self, share: float) -> None:
        """Count this share of all steps as done, which an interrupted run has made."""
        self._meter.done += round(share * self._work)

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer what a later run would go on from."""
        self._kept.offer(PART, state)

    def _losses(self, batches: Sequence[Batch], loss: Loss) -> list[float]:
        """The mean loss over every batch, whose gradients are added to what the network holds, in order."""
        network, sums = self._network, list[list[Tensor]]([] for _ in batches)
        nbytes = network.nbytes(max(len(order) for _, order in batches))
        parts = [
            (number, task, chosen, len(order))
            for number, (task, order) in enumerate(batches)
            for chosen in order.split(network.micro_batch)
        ]
        apart = len(parts) > 1 and parallel_pieces(self._inputs.device) > 1
        passes = (
            partial(self._backward, network.with_own_gradients() if apart else network, loss, *part[1:])
            for part in parts
        )
        with run_in_threads(passes, self._inputs.device, nbytes) as results:
            for (number, _, chosen, _), (total, own) in zip(parts, results, strict=True):
                if own is not network:
                    network.add_gradients(own)
                sums[number].append(total)
                self._meter.advance(len(chosen) * sum(self._inputs.numels), PHASE, self._detail)
                self._kept.check()
        return [sum(to_numbers(*own)) / len(order) for own, (_, order) in zip(sums, batches, strict=True)]

    def _backward(
        self, network: LearnedNetwork, loss: Loss, task: TaskExemplars, chosen: Tensor, count: int
    ) -> tuple[Tensor, LearnedNetwork]:
        """The sum of losses over these images, and the network, which holds the gradient of their ``count``-th part."""
        each = loss(network.features(task.images[chosen]), task, chosen)
        (each.sum() / count).backward()
        return to_float64(each.detach()).sum(), network

    def _entropy(self, features: Tensor, task: TaskExemplars, chosen: Tensor) -> Tensor:
        assert task.head is not None  # as the needs were checked
        return entropies(features, self._network.to_device(task.head), task.logit_scale)

    def _surprise(self, features: Tensor, task: TaskExemplars, chosen: Tensor) -> Tensor:
        assert task.head is not None  # as the needs were checked
        assert task.labels is not None
        log_shares = log_predictions(features, self._network.to_device(task.head), task.logit_scale)
        labels = task.labels[chosen].long().to(log_shares.device)
        return -log_shares.gather(1, labels[:, None])[:, 0]
