"""A merged model whose MLPs are mixtures while routers learn.

The mixture for a task's batch is a matrix that exists for that batch in that block only. Its gradient with respect to
the weights is the gradient with respect to that matrix, contracted with every task's vector; task vectors therefore
never enter the graph.
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
SAVED_WIDTHS = 24  # numbers per token, in widths, that a block saves for the backward pass, besides attention's
MLP = ("c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias")
Use = tuple[int, str]  # of a router's tensor: the block that uses it, and its name
Outcome = tuple[Tensor, dict[Use, Tensor | None]]  # a loss (scalar), and its gradient (*S) for every use
OnWork = Callable[[], None]  # called between two pieces of work; may raise Cancelled


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
    """A tower whose MLPs are mixed once per batch, or per image with ``each``; ``lean`` recomputes blocks backward."""

    each: bool = False
    lean: bool = False

    def block(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """The output (n, T, w) of a block for tokens ``x`` (n, T, w)."""
        if not self.lean:
            return super().block(x, index, record)
        out: Tensor = checkpoint(super().block, x, index, use_reentrant=False, preserve_rng_state=False)
        return out

    def mlp(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """The output (n, T, w) of a block's mixed MLP for tokens ``x`` (n, T, w)."""
        if self.each or self.route is None:
            return super().mlp(x, index, record)
        weights = self.route(index, x).mean(dim=0)
        names = [f"transformer.resblocks.{index}.mlp.{part}" for part in MLP]
        changes = {name: [None if c is None else c.matrix for c in self.changes.changes_of(name)] for name in names}
        mix: Callable[..., Tensor] = _Mixture.apply
        mixed = {name: mix(weights, self.tensors[name], *changes[name]) for name in names}
        return Encoder(self.architecture, mixed).mlp(x, index)


class TensorUses(Mapping[str, Tensor]):
    """The routers' tensors as one block uses them for one task: a leaf (*S) per tensor, which shares its memory.

    Every task and block thus has gradients of its own, which can be added in a fixed order on any number of threads.
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
    on_work: OnWork

    def entropies(
        self, router: Router, route: Route, *, each: bool, seed: int, batch: int, step: int
    ) -> tuple[tuple[float, ...], dict[str, Tensor]]:
        """Every task's mean entropy, and the gradient of their sum by router tensor, of its shape (*S).

        See ``merging.methods.adapted_network.MergedNetwork.entropies``.
        """
        values = {name: value.detach().to(self.device, self.dtype) for name, value in router.items()}
        orders = [batch_order(seed, name, len(task.images), batch, step) for name, task in self.tasks.items()]
        lean = self._bytes(sum(map(len, orders)), len(orders), each) > self._activation_limit
        groups = [
            self._group(task, torch.from_numpy(order), route, values, each=each, lean=lean)
            for task, order in zip(self.tasks.values(), orders, strict=True)
        ]
        nbytes = self._bytes(max(map(len, orders)), 1, each)
        if lean:
            layers = self.tower.merged.architecture.layers
            nbytes = nbytes // layers + self._bytes(0, len(orders), each=False) // layers
        several_threads = parallel_pieces(self.device) > 1
        outcomes = self._outcomes_by_task(groups, nbytes) if several_threads else self._outcomes_by_section(groups)
        return tuple(to_numbers(*(loss for loss, _ in outcomes))), _sum_gradients(
            values, [slopes for _, slopes in outcomes]
        )

    def _group(
        self, task: TaskExemplars, order: Tensor, route: Route, values: Router, *, each: bool, lean: bool
    ) -> _Group:
        merged, uses = self.tower.merged, defaultdict[int, TensorUses](lambda: TensorUses(values))
        encoder = BatchEncoder(
            merged.architecture, {**merged.tensors, **self.tower.base}, changes=merged.changes,
            route=lambda block, tokens: route(uses[block], block, tokens), each=each, lean=lean,
        )  # fmt: skip
        return _Group(task, task.images[order].to(self.device, self.dtype), encoder, uses)

    def _outcomes_by_task(self, groups: Sequence[_Group], nbytes: int) -> list[Outcome]:
        """Every group's loss and gradients; several groups run at once."""
        outcomes = []
        with run_in_threads((group.outcome for group in groups), self.device, nbytes) as results:
            for outcome in results:
                outcomes.append(outcome)
                self.on_work()
        return outcomes

    def _outcomes_by_section(self, groups: Sequence[_Group]) -> list[Outcome]:
        """Every group's loss and gradients, section by section: the stored tensors of a block are read once."""
        rows = [group.images for group in groups]
        for section in range(groups[0].encoder.sections):
            for k, group in enumerate(groups):
                rows[k] = group.encoder.run(section, rows[k])
                self.on_work()
        losses = [group.loss(features) for group, features in zip(groups, rows, strict=True)]
        leaves = [leaf for group in groups for leaf in group.leaves.values()]
        slopes: Iterator[Tensor | None] = iter(
            torch.autograd.grad(torch.stack(losses).sum(), leaves, allow_unused=True)
        )
        each = [{use: next(slopes) for use in group.leaves} for group in groups]
        return [(loss.detach(), own) for loss, own in zip(losses, each, strict=True)]

    @property
    def _activation_limit(self) -> int:
        """Bytes that activations may take before blocks are recomputed in the backward pass."""
        return ACTIVATIONS_CPU if is_host(self.device) else limit_bytes(self.device, ACTIVATIONS_GPU)

    def _bytes(self, images: int, tasks: int, each: bool) -> int:
        """Bytes of the activations of ``images`` images and of the mixtures of ``tasks`` tasks."""
        a = self.tower.merged.architecture
        tokens = (a.image_size // a.patch_size) ** 2 + 1
        one = a.layers * tokens * (SAVED_WIDTHS * a.width + a.heads * tokens) * (len(self.tasks) if each else 1)
        mixtures = 0 if each else tasks * sum(tensor.numel() for tensor in self.tower.base.values())
        return (images * one + mixtures) * self.dtype.itemsize


@dataclass(frozen=True)
class _Group:
    """One task's batch and its encoder, with leaves of its own for each use of the routers."""

    task: TaskExemplars
    images: Tensor  # (n, 3, h, w)
    encoder: BatchEncoder
    uses: Mapping[int, TensorUses]  # by block

    @property
    def leaves(self) -> dict[Use, Tensor]:
        """The leaf (*S) of every use of a router's tensor."""
        return {(block, name): leaf for block, use in self.uses.items() for name, leaf in use.leaves.items()}

    def loss(self, features: Tensor) -> Tensor:
        """The mean entropy, a scalar, of the predictions from features (n, e)."""
        assert self.task.head is not None  # ensured by check_needs
        return entropies(features, self.task.head.to(features), self.task.logit_scale).mean()

    def outcome(self) -> Outcome:
        """The loss and its gradient for every use of a router's tensor."""
        loss = self.loss(self.encoder(self.images))
        leaves = self.leaves
        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return loss.detach(), dict(zip(leaves, slopes, strict=True))


def _sum_gradients(values: Router, slopes: Sequence[Mapping[Use, Tensor | None]]) -> dict[str, Tensor]:
    """The gradient (*S) by every tensor of the routers, added in a fixed order: from the last block and task on."""
    totals: dict[str, Tensor] = {}
    for block in sorted({block for own in slopes for block, _ in own}, reverse=True):
        for own in reversed(slopes):
            for name in values:
                if (slope := own.get((block, name))) is not None:
                    totals[name] = totals[name] + slope if name in totals else slope
    return {name: totals.get(name, torch.zeros_like(value)) for name, value in values.items()}
