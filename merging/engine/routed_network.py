"""A merged model whose MLPs are mixed while routers learn.

One mixture for a task's batch is a matrix that lives for that batch in that block alone. Its gradient by the weights is
a contraction of the gradient by that matrix with every task's vector, so the task vectors never enter the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from merging.clip.image_encoder import Encoder, Record
from merging.devices import fitting, is_host
from merging.methods.adapting import Route, Router
from merging.methods.exemplars import TaskExemplars
from merging.methods.learning import batch_order, entropies
from merging.modules.mixed_tower import MixedEncoder, ModuleTower
from merging.numerics.linear_algebra import double, numbers

ACTIVATIONS_CPU, ACTIVATIONS_GPU = 1 << 30, 1 << 34  # bytes above which blocks are computed again going backward
KEPT = 24  # numbers of the size of a token that a block keeps for the backward pass, beside attention's own
MLP = ("c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias")
OnWork = Callable[[], None]  # called between two pieces of work; may raise Cancelled


class _Mixture(torch.autograd.Function):
    """A tensor plus Σ_k w_k Δ_k, differentiated with respect to the weights (K,) alone."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, base: Tensor, *changes: Tensor | None) -> Tensor:
        ctx.save_for_backward(*changes)  # which lets blocks that are computed again drop them meanwhile
        out = base.clone()
        for weight, change in zip(weights.cpu().tolist(), changes, strict=True):
            if change is not None:
                out.add_(change, alpha=weight)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), changes = gradients, ctx.saved_tensors
        sums = [0.0 if change is None else double(gradient * change).sum() for change in changes]
        slope = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=gradient.device) for value in sums])
        return slope.to(gradient.dtype), None, *(None for _ in changes)


@dataclass(frozen=True, kw_only=True)
class BatchEncoder(MixedEncoder):
    """A tower whose MLPs are mixed once for all images that run together; it computes blocks again if ``lean``."""

    each: bool = False
    lean: bool = False

    def block(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        if not self.lean:
            return super().block(x, index, record)
        again: Tensor = checkpoint(super().block, x, index, use_reentrant=False)
        return again

    def mlp(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        if self.each or self.route is None:
            return super().mlp(x, index, record)
        weights = self.route(index, x).mean(dim=0)
        names = [f"transformer.resblocks.{index}.mlp.{part}" for part in MLP]
        changes = {name: [None if c is None else c.matrix for c in self.changes.of(name)] for name in names}
        mix: Callable[..., Tensor] = _Mixture.apply
        mixed = {name: mix(weights, self.tensors[name], *changes[name]) for name in names}
        return Encoder(self.architecture, mixed).mlp(x, index)


@dataclass(frozen=True)
class RoutedNetwork:
    """The network on which routers learn: every task's batch goes through a block before the next block does."""

    tower: ModuleTower
    tasks: Mapping[str, TaskExemplars]
    device: torch.device
    dtype: torch.dtype
    on_work: OnWork

    def entropies(
        self, router: Router, route: Route, *, each: bool, seed: int, batch: int, step: int
    ) -> tuple[tuple[float, ...], dict[str, Tensor]]:
        """See ``merging.methods.adapting.MergedNetwork.entropies``."""
        leaves = {name: value.detach().to(self.device, self.dtype).requires_grad_() for name, value in router.items()}
        merged, groups = self.tower.merged, []
        for name, task in self.tasks.items():
            order = torch.from_numpy(batch_order(seed, name, len(task.images), batch, step))
            groups.append(task.images[order].to(self.device, self.dtype))
        encoder = BatchEncoder(
            merged.architecture, {**merged.tensors, **self.tower.base}, changes=merged.changes,
            route=partial(route, leaves), each=each, lean=self._lean(sum(map(len, groups)), each),
        )  # fmt: skip
        losses = []
        for task, features in zip(self.tasks.values(), self._features(encoder, groups), strict=True):
            assert task.head is not None  # as the needs were checked
            head = task.head.to(self.device, self.dtype)
            losses.append(entropies(features, head, task.logit_scale).mean())
        slopes = torch.autograd.grad(torch.stack(losses).sum(), list(leaves.values()))
        return tuple(numbers(*(loss.detach() for loss in losses))), dict(zip(leaves, slopes, strict=True))

    def _features(self, encoder: Encoder, groups: Sequence[Tensor]) -> list[Tensor]:
        """Every group's features, section by section: what is stored of a block is read once."""
        rows = list(groups)
        for section in range(encoder.sections):
            for k, row in enumerate(rows):
                rows[k] = encoder.run(section, row)
                self.on_work()
        return rows

    def _lean(self, images: int, each: bool) -> bool:
        """Whether the activations of so many images, and the mixtures, take too much memory to be kept."""
        a = self.tower.merged.architecture
        tokens = (a.image_size // a.patch_size) ** 2 + 1
        one = a.layers * tokens * (KEPT * a.width + a.heads * tokens) * (len(self.tasks) if each else 1)
        mixtures = 0 if each else len(self.tasks) * sum(tensor.numel() for tensor in self.tower.base.values())
        budget = ACTIVATIONS_CPU if is_host(self.device) else fitting(self.device, ACTIVATIONS_GPU)
        return (images * one + mixtures) * self.dtype.itemsize > budget
