"""A merged model whose MLPs are mixtures while routers learn.

The mixture for a task's batch is a matrix that exists for that batch in that block only. The derivative of the loss by
task k's weight is the inner product of the gradient by that matrix with task k's vector. Task vectors therefore never
enter the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from merging.base.devices import is_host, limit_bytes
from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.base.threads import parallel_pieces, run_in_threads
from merging.engine.modules.mixed_tower import MixedEncoder, ModuleTower
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder, Record
from merging.methods.adapted_network import Route, Router
from merging.methods.learning import batch_order, entropies

ACTIVATIONS_CPU, ACTIVATIONS_GPU = 1 << 30, 1 << 34  # bytes above which the backward pass recomputes blocks
SAVED_WIDTHS = 24  # numbers, in tower widths, that a block saves per token for the backward pass, without attention
MLP = ("c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias")
Use = tuple[int, str]  # the use of a router's tensor: the number of the block that uses it, and the tensor's name
LossAndGradients = tuple[Tensor, dict[Use, Tensor | None]]  # a loss (scalar), and its gradient (*S) for every use
CheckCancel = Callable[[], None]  # called between two pieces of work; may raise Cancelled


class _Mixture(torch.autograd.Function):
    """A tensor (*S) plus Σ_k w_k Δ_k, differentiated with respect to the weights w (K,) only."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, base: Tensor, *changes: Tensor | None) -> Tensor:
        ctx.save_for_backward(*changes)  # lets recomputed blocks free the changes until the backward pass
        out = base.clone()
        for weight, change in zip(weights.cpu().tolist(), changes, strict=True):
            if change is not None:
                out.add_(change, alpha=weight)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), changes = gradients, ctx.saved_tensors
        sums = [0.0 if change is None else to_float64(gradient * change).sum() for change in changes]
        slope = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=gradient.device) for value in sums])
        return slope.to(gradient.dtype), None, *(None for _ in changes)


@dataclass(frozen=True, kw_only=True)
class BatchEncoder(MixedEncoder):
    """A tower whose MLPs are mixed once per batch, or with ``per_image`` once per image.

    With ``lean``, the backward pass recomputes the blocks, which takes less memory.
    """

    per_image: bool = False
    lean: bool = False

    def block(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """The output (n, T, w) of a block for tokens ``x`` (n, T, w)."""
        if not self.lean:
            return super().block(x, index, record)
        out: Tensor = checkpoint(super().block, x, index, use_reentrant=False, preserve_rng_state=False)
        return out

    def mlp(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """The output (n, T, w) of a block's mixed MLP for tokens ``x`` (n, T, w)."""
        if self.per_image or self.route is None:
            return super().mlp(x, index, record)
        weights = self.route(index, x).mean(dim=0)
        names = [f"transformer.resblocks.{index}.mlp.{part}" for part in MLP]
        changes = {
            name: [None if change is None else change.matrix for change in self.changes.changes_of(name)]
            for name in names
        }
        mix: Callable[..., Tensor] = _Mixture.apply
        mixed = {name: mix(weights, self.tensors[name], *changes[name]) for name in names}
        return Encoder(self.architecture, mixed).mlp(x, index)


class TensorUses(Mapping[str, Tensor]):
    """The routers' tensors as one block uses them for one task: a leaf (*S) per tensor that shares its memory.

    Every task and block therefore has separate gradients, which are added in a fixed order on any number of threads.
    """

    def __init__(self, values: Router) -> None:
        self._values = values
        self.leaves: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.leaves:
            self.leaves[name] = self._values[name].detach().requires_grad_()
        return self.leaves[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class RoutedNetwork:
    """The network on which routers learn; all tasks' batches pass through a block before the next block runs."""

    tower: ModuleTower
    tasks: Mapping[str, TaskExemplars]
    device: torch.device
    dtype: torch.dtype
    check_cancel: CheckCancel

    def compute_entropies(
        self, router: Router, route: Route, *, per_image: bool, seed: int, batch: int, step: int
    ) -> tuple[tuple[float, ...], dict[str, Tensor]]:
        """Every task's mean entropy, and the gradient of their sum by router tensor, of its shape (*S).

        See ``merging.methods.adapted_network.MergedNetwork.compute_entropies``.
        """
        values = {name: value.detach().to(self.device, self.dtype) for name, value in router.items()}
        orders = [batch_order(seed, name, len(task.images), batch, step) for name, task in self.tasks.items()]
        lean = self._count_bytes(sum(map(len, orders)), len(orders), per_image) > self._activation_limit
        batches = [
            self._build_batch(task, torch.from_numpy(order), route, values, per_image=per_image, lean=lean)
            for task, order in zip(self.tasks.values(), orders, strict=True)
        ]
        nbytes = self._count_bytes(max(map(len, orders)), 1, per_image)
        if lean:
            layers = self.tower.merged.architecture.layers
            # One block's activations, and one block's mixtures for all tasks.
            nbytes = nbytes // layers + self._count_bytes(0, len(orders), per_image=False) // layers
        several_threads = parallel_pieces(self.device) > 1
        outcomes = self._run_by_task(batches, nbytes) if several_threads else self._run_by_section(batches)
        losses = to_numbers(*(loss for loss, _ in outcomes))
        return tuple(losses), _sum_gradients(values, [gradients for _, gradients in outcomes])

    def _build_batch(
        self, task: TaskExemplars, order: Tensor, route: Route, values: Router, *, per_image: bool, lean: bool
    ) -> _TaskBatch:
        """A task's images ``order`` (n,), with an encoder whose MLPs are mixed by ``route``."""
        merged, uses = self.tower.merged, defaultdict[int, TensorUses](lambda: TensorUses(values))
        encoder = BatchEncoder(
            merged.architecture, {**merged.tensors, **self.tower.base}, changes=merged.changes,
            route=lambda block, tokens: route(uses[block], block, tokens), per_image=per_image, lean=lean,
        )  # fmt: skip
        return _TaskBatch(task, task.images[order].to(self.device, self.dtype), encoder, uses)

    def _run_by_task(self, batches: Sequence[_TaskBatch], nbytes: int) -> list[LossAndGradients]:
        """Every batch's loss and gradients; several batches run at once."""
        outcomes = []
        with run_in_threads((batch.run for batch in batches), self.device, nbytes) as results:
            for outcome in results:
                outcomes.append(outcome)
                self.check_cancel()
        return outcomes

    def _run_by_section(self, batches: Sequence[_TaskBatch]) -> list[LossAndGradients]:
        """Every batch's loss and gradients, section by section: the stored tensors of a block are read once."""
        rows = [batch.images for batch in batches]
        for section in range(batches[0].encoder.sections):  # all batches share one architecture
            for k, batch in enumerate(batches):
                rows[k] = batch.encoder.run_section(section, rows[k])
                self.check_cancel()
        losses = [batch.compute_loss(features) for batch, features in zip(batches, rows, strict=True)]
        leaves = [leaf for batch in batches for leaf in batch.leaves.values()]
        flat_gradients: Iterator[Tensor | None] = iter(
            torch.autograd.grad(torch.stack(losses).sum(), leaves, allow_unused=True)
        )
        gradients = [{use: next(flat_gradients) for use in batch.leaves} for batch in batches]
        return [(loss.detach(), by_use) for loss, by_use in zip(losses, gradients, strict=True)]

    @property
    def _activation_limit(self) -> int:
        """Bytes that activations may take before blocks are recomputed in the backward pass."""
        return ACTIVATIONS_CPU if is_host(self.device) else limit_bytes(self.device, ACTIVATIONS_GPU)

    def _count_bytes(self, image_count: int, task_count: int, per_image: bool) -> int:
        """Bytes of the activations of ``image_count`` images and of the mixtures of ``task_count`` tasks."""
        tower = self.tower.merged.architecture
        tokens = (tower.image_size // tower.patch_size) ** 2 + 1  # patches and the class token
        activations = tower.layers * tokens * (SAVED_WIDTHS * tower.width + tower.heads * tokens)  # of one image
        if per_image:  # every task's changes run on every image; no mixture is stored
            return image_count * activations * len(self.tasks) * self.dtype.itemsize
        mixtures = task_count * sum(tensor.numel() for tensor in self.tower.base.values())
        return (image_count * activations + mixtures) * self.dtype.itemsize


@dataclass(frozen=True)
class _TaskBatch:
    """One task's batch and its encoder, with a leaf for each use of a router's tensor."""

    task: TaskExemplars
    images: Tensor  # (n, 3, h, w)
    encoder: BatchEncoder
    uses: Mapping[int, TensorUses]  # by block

    @property
    def leaves(self) -> dict[Use, Tensor]:
        """The leaf (*S) of every use of a router's tensor."""
        return {(block, name): leaf for block, use in self.uses.items() for name, leaf in use.leaves.items()}

    def compute_loss(self, features: Tensor) -> Tensor:
        """The mean entropy, a scalar, of the predictions from features (n, e)."""
        assert self.task.head is not None  # ensured by check_needs
        return entropies(features, self.task.head.to(features), self.task.logit_scale).mean()

    def run(self) -> LossAndGradients:
        """The loss and its gradient for every use of a router's tensor."""
        loss = self.compute_loss(self.encoder(self.images))
        leaves = self.leaves  # those of the pass that has just run
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return loss.detach(), dict(zip(leaves, gradients, strict=True))


def _sum_gradients(values: Router, gradients: Sequence[Mapping[Use, Tensor | None]]) -> dict[str, Tensor]:
    """The gradient (*S) by every tensor of the routers, added in a fixed order: from the last block and task on."""
    totals: dict[str, Tensor] = {}
    for block in sorted({block for by_use in gradients for block, _ in by_use}, reverse=True):
        for by_use in reversed(gradients):
            for name in values:
                if (gradient := by_use.get((block, name))) is not None:
                    totals[name] = totals[name] + gradient if name in totals else gradient
    return {name: totals.get(name, torch.zeros_like(value)) for name, value in values.items()}
