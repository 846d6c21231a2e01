"""The merged model that a method learns on: the method writes merged tensors to it and reads losses and gradients.

Live tensors are those that no edit drops for every expert; the others stay pretrained.
"""

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
from merging.methods.learning import SlotUpdate, batch_order, entropies, log_predictions
from merging.methods.slot import SlotStream

Batch = tuple[TaskExemplars, Tensor]  # a task, and the indices (n,) of its images
Loss = Callable[[Tensor, TaskExemplars, Tensor], Tensor]  # features (n, e), task, indices (n,) -> losses (n,)
STATE_PART = "merge"  # the name of the merge's part of the learning state
PHASE = "Learning"


class EngineBlend:
    """See ``merging.methods.learning.Blend``.

    Temporary files last as long as the stack ``files``. ``work``, in progress units (images × scalars), is added
    to the meter.

    Results do not depend on the number of threads: each batch runs on one thread, and gradients are added in the order
    of the tasks.
    """

    def __init__(
        self,
        inputs: RunInputs,
        edits: tuple[Stage, ...],
        slots: Stream,
        tasks: Mapping[str, TaskExemplars],
        learning_state: LearningState,
        meter: Meter,
        files: ExitStack,
        work: int,
    ) -> None:
        self._inputs, self._slots, self._tasks, self._files = inputs, slots, tasks, files
        self._learning_state, self._meter, self._work, self._detail = learning_state, meter, work, ""
        meter.total += work
        self.live_parameters = tuple(p for p in inputs.parameters if not any(stage.drops(p) for stage in edits))
        self._vectors = EditedVectors(inputs, edits, self.live_parameters, meter.silent())
        files.callback(self._vectors.close)

    @property
    def slots(self) -> SlotStream:
        """The slots as a method's statistics pass (its survey) gets them: every tensor, with edited task vectors."""
        return self._slots

    @cached_property
    def _network(self) -> LearnedNetwork:
        network = LearnedNetwork(self._inputs, {parameter.name for parameter in self.live_parameters})
        for name, task in self._tasks.items():
            check_fits(name, task, network.architecture)  # images and head
        return network

    def update_tensors(self, update: SlotUpdate, expert: str | None = None) -> None:
        """Write the result (*S) of ``update`` for every live tensor, and clear the gradients."""
        network = self._network
        for slot in self._vectors.slots(expert):
            merged = update(slot, network.take_gradient(slot.name))
            if merged is not None:
                network.write(slot.name, slot.pretrained + merged)

    def compute_entropies(self, seed: int, batch: int, step: int) -> tuple[float, ...]:
        """Every task's mean entropy over its batch of this step; adds the gradients to those of the network."""
        orders = [batch_order(seed, name, len(task.images), batch, step) for name, task in self._tasks.items()]
        batches = [(task, torch.from_numpy(order)) for task, order in zip(self._tasks.values(), orders, strict=True)]
        return tuple(self._compute_losses(batches, self._entropies))

    def compute_cross_entropy(self, expert: str) -> float:
        """The mean cross-entropy over all labeled exemplars of one task; adds the gradient to that of the network."""
        task = self._tasks[expert]
        batch = task, torch.arange(len(task.images))
        return self._compute_losses([batch], self._cross_entropies)[0]

    def create_masks(self) -> MaskFile:
        """An empty file for the masks of every expert, which lasts until the model is merged."""
        numels = zip(self._inputs.parameters, self._inputs.numels, strict=True)
        masks = MaskFile({parameter.name: numel for parameter, numel in numels}, self._inputs.device)
        self._files.callback(masks.close)
        return masks

    def report_detail(self, detail: str) -> None:
        """Set the detail that the progress shows from now on."""
        self._detail = detail

    def load_state(self) -> dict[str, Tensor]:
        """The state of an interrupted run of the same recipe, tensors of any shape by name; empty for a new run."""
        return self._learning_state.load(STATE_PART)

    def skip_share(self, share: float) -> None:
        """Count this share of all steps as done: the steps of an interrupted run."""
        self._meter.done += round(share * self._work)

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer a state to continue from: ``state()`` gives tensors of any shape by name."""
        self._learning_state.offer(STATE_PART, state)

    def _compute_losses(self, batches: Sequence[Batch], loss: Loss) -> list[float]:
        """The mean loss over every batch; adds the gradients to those of the network, in the order of the batches."""
        network, sums = self._network, list[list[Tensor]]([] for _ in batches)
        nbytes = network.nbytes(max(len(order) for _, order in batches))
        micro_batches = [
            (number, task, indices, len(order))
            for number, (task, order) in enumerate(batches)
            for indices in order.split(network.micro_batch)
        ]
        parallel = len(micro_batches) > 1 and parallel_pieces(self._inputs.device) > 1
        passes = (
            partial(
                self._run_backward, network.share_weights() if parallel else network, loss, task, indices, batch_size
            )
            for _, task, indices, batch_size in micro_batches
        )
        with run_in_threads(passes, self._inputs.device, nbytes) as results:
            for (number, _, indices, _), (loss_sum, used_network) in zip(micro_batches, results, strict=True):
                if used_network is not network:
                    network.add_gradients(used_network)
                sums[number].append(loss_sum)
                self._meter.advance(len(indices) * sum(self._inputs.numels), PHASE, self._detail)
                self._learning_state.check()
        return [sum(to_numbers(*batch)) / len(order) for batch, (_, order) in zip(sums, batches, strict=True)]

    def _run_backward(
        self, network: LearnedNetwork, loss: Loss, task: TaskExemplars, indices: Tensor, batch_size: int
    ) -> tuple[Tensor, LearnedNetwork]:
        """The sum, a scalar, of the losses of the images ``indices`` (n,), and the network.

        The network then has the gradient of the sum divided by ``batch_size``.
        """
        losses = loss(network.features(task.images[indices]), task, indices)
        (losses.sum() / batch_size).backward()
        return to_float64(losses.detach()).sum(), network

    def _entropies(self, features: Tensor, task: TaskExemplars, indices: Tensor) -> Tensor:
        """The entropies (n,) of the predictions from features (n, e)."""
        assert task.head is not None  # ensured by check_needs
        return entropies(features, self._network.to_device(task.head), task.logit_scale)

    def _cross_entropies(self, features: Tensor, task: TaskExemplars, indices: Tensor) -> Tensor:
        """The cross-entropies (n,) of the predictions from features (n, e) of the images ``indices`` (n,)."""
        assert task.head is not None  # ensured by check_needs
        assert task.labels is not None
        log_shares = log_predictions(features, self._network.to_device(task.head), task.logit_scale)
        labels = task.labels[indices].long().to(log_shares.device)
        return -log_shares.gather(1, labels[:, None])[:, 0]
