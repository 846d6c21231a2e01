"""A visual tower whose weights differ from image to image, without a matrix for any image.

A linear map with the weight W + Σ_k w_k Δ_k is computed as x Wᵀ + Σ_k w_k (x Δ_kᵀ): K products beside the first, which
are thin where Δ_k is stored as two thin factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.images.image_encoder import EPS, Encoder, Record
from merging.models.checkpoint import Checkpoint
from merging.models.tower_names import VISUAL, assemble, tower_names

CACHED_BYTES = 1 << 28  # of what is stored of all tasks, below which it stays in memory once it is read
Combine = Callable[[list[Mapping[str, Tensor]]], Tensor]
LEFT, RIGHT = ".left", ".right"  # of a matrix that is stored as the product of two


def tower_tensors(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """A tower's tensors in memory, under open_clip's names without prefix.

    They are copies, in memory that is aligned as torch aligns it: equal towers then give equal features, bit for bit.
    """
    return {
        name: assemble(name, stored, [checkpoint.read(n).to(device, dtype, copy=True) for n in stored])
        for name, stored in tower_names(checkpoint).items()
    }


@dataclass(frozen=True)
class TensorChange:
    """How one task changes a tensor: as it is, or as the product of two thin factors."""

    whole: Tensor | None
    left: Tensor | None = None
    right: Tensor | None = None

    @property
    def matrix(self) -> Tensor:
        """The change itself."""
        if self.whole is not None:
            return self.whole
        assert self.left is not None and self.right is not None
        return self.left @ self.right

    @property
    def parts(self) -> dict[str, Tensor]:
        """What is stored, by suffix."""
        named = {"": self.whole, LEFT: self.left, RIGHT: self.right}
        return {suffix: part for suffix, part in named.items() if part is not None}

    @property
    def transposed(self) -> TensorChange:
        """The change of the transposed matrix."""
        whole, left, right = (None if part is None else part.T for part in (self.whole, self.right, self.left))
        return TensorChange(whole, left, right)

    def rows(self, x: Tensor) -> Tensor:
        """Rows (..., d_in) through the change of a weight (d_out, d_in)."""
        if self.whole is not None:
            return x @ self.whole.flatten(1).T
        assert self.left is not None and self.right is not None
        return (x @ self.right.T) @ self.left.T


class StoredChanges:
    """What is stored of every task, read when it is used.

    All of it stays in memory if it is small, and otherwise that of the block that was used last.
    """

    def __init__(self, stored: Sequence[Checkpoint], device: torch.device, dtype: torch.dtype) -> None:
        self._stored, self._device, self._dtype = stored, device, dtype
        self._small = sum(checkpoint.nbytes for checkpoint in stored) <= CACHED_BYTES
        self._kept: dict[str, list[TensorChange | None]] = {}
        self._block = ""
        self._reading = Lock()  # several batches may be on their way

    def changes_of(self, name: str) -> list[TensorChange | None]:
        """Every task's change of a tensor, None where nothing is stored of it."""
        with self._reading:
            if name not in self._kept:
                block = name.partition("resblocks.")[2].partition(".")[0]
                if not self._small and block != self._block:
                    self._kept.clear()
                self._block = block
                self._kept[name] = [self._change(checkpoint, VISUAL + name) for checkpoint in self._stored]
            return self._kept[name]

    def changed_tasks(self, name: str) -> Iterator[tuple[int, TensorChange]]:
        """The tasks, by number, of which something is stored, with it."""
        return ((k, change) for k, change in enumerate(self.changes_of(name)) if change is not None)

    def _change(self, checkpoint: Checkpoint, name: str) -> TensorChange | None:
        if name in checkpoint.infos:
            return TensorChange(self._read(checkpoint, name))
        if name + LEFT in checkpoint.infos:
            return TensorChange(None, self._read(checkpoint, name + LEFT), self._read(checkpoint, name + RIGHT))
        return None

    def _read(self, checkpoint: Checkpoint, name: str) -> Tensor:
        return checkpoint.read(name).to(self._device, self._dtype)


@dataclass(frozen=True, kw_only=True)
class MixedEncoder(Encoder):
    """A tower plus mixtures of ``changes``: by ``weights`` (n, K) everywhere, or in MLPs by what ``route`` gives.

    With neither it is the tower itself.
    """

    changes: StoredChanges
    weights: Tensor | None = None
    route: Callable[[int, Tensor], Tensor] | None = None  # (block, tokens (n, T, w)) -> weights (n, K)

    def mlp(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        if self.route is None:
            return super().mlp(x, index, record)
        return replace(self, weights=self.route(index, x), route=None).mlp(x, index, record)

    def linear(self, weight: str, bias: str | None, x: Tensor, record: Record | None = None) -> Tensor:
        out = super().linear(weight, bias, x, record)
        if self.weights is None:
            return out
        for k, change in self.changes.changed_tasks(weight):
            out = out + self.weights[:, k, None, None] * change.rows(x)
        return out if bias is None else out + self._mixture(bias)[:, None]

    def norm(self, name: str, x: Tensor) -> Tensor:
        if self.weights is None:
            return super().norm(name, x)
        scale, shift = self.embedding(name + ".weight"), self.embedding(name + ".bias")
        if x.ndim == 2:
            scale, shift = scale[:, 0], shift[:, 0]
        return nnf.layer_norm(x, x.shape[-1:], eps=EPS) * scale + shift

    def embedding(self, name: str) -> Tensor:
        """An embedding (n, rows, width) of every image, or a vector as one row."""
        own = super().embedding(name)
        if self.weights is None:
            return own
        mixed = own + self._mixture(name)
        return mixed if own.ndim > 1 else mixed[:, None]

    def project(self, x: Tensor) -> Tensor:
        out = super().project(x)
        if self.weights is None:
            return out
        for k, change in self.changes.changed_tasks("proj"):
            out = out + self.weights[:, k, None] * change.transposed.rows(x)
        return out

    def _mixture(self, name: str) -> Tensor:
        """Every image's mixture (n, *S) of the changes of one tensor."""
        assert self.weights is not None
        own = self.tensors[name]
        total = own.new_zeros((len(self.weights), *own.shape))
        for k, change in self.changes.changed_tasks(name):
            total = total + self.weights[:, k].reshape(-1, *[1] * own.ndim) * change.matrix
        return total


@dataclass(frozen=True)
class ModuleTower:
    """The merged model with what is stored beside it, as ``merging.methods.adapted_network.AdaptedTower``.

    ``base`` has the pretrained model's MLPs, for towers whose MLPs are routed, or all of its tensors.
    """

    merged: MixedEncoder
    base: Mapping[str, Tensor] = field(default_factory=dict)
    _groups: dict[tuple[bool, ...], Encoder] = field(default_factory=dict)  # the models that were used last
    _making: Lock = field(default_factory=Lock)  # several batches may be on their way

    @property
    def blocks(self) -> int:
        """How many blocks the tower has."""
        return self.merged.architecture.layers

    def features(self, images: Tensor) -> Tensor:
        """The merged model's features (n, e)."""
        return self.merged(images)

    def capture_class_tokens(self, images: Tensor, weight: str) -> Tensor:
        """The class tokens (n, d) that enter a linear map of a block of the merged model."""
        seen: dict[str, Tensor] = {}
        x = images
        for section in range(self.merged.section_of(weight) + 1):
            x = self.merged.run(section, x, lambda name, rows: seen.update({name: rows} if name == weight else {}))
        return seen[weight][:: x.shape[1]]  # the class token is the first of each image

    def stored_parts(self, name: str) -> list[Mapping[str, Tensor]]:
        """What is stored of one tensor for every task; empty where nothing is."""
        return [{} if change is None else change.parts for change in self.merged.changes.changes_of(name)]

    def features_by_tasks(self, images: Tensor, chosen: Tensor, combine: Combine) -> Tensor:
        """Features (n, e), each image through the pretrained model plus what is stored of its tasks, combined."""
        keys = [tuple(row) for row in chosen.cpu().tolist()]
        rows = {key: [i for i, other in enumerate(keys) if other == key] for key in dict.fromkeys(keys)}
        if not rows:
            return self.merged(images)
        parts = [self._model_of_tasks(key, combine)(images[own]) for key, own in rows.items()]
        order = torch.tensor([i for own in rows.values() for i in own], device=images.device)
        return torch.cat(parts)[order.argsort()]

    def _model_of_tasks(self, key: tuple[bool, ...], combine: Combine) -> Encoder:
        """The model of some tasks; those that were used last are kept while there is room."""
        with self._making:
            if key not in self._groups:
                size = sum(tensor.nbytes for tensor in self.base.values())
                while self._groups and (len(self._groups) + 1) * size > CACHED_BYTES:
                    del self._groups[next(iter(self._groups))]
                tensors = dict(self.base)
                for name, value in self.base.items():
                    own = [parts for parts, used in zip(self.stored_parts(name), key, strict=True) if used and parts]
                    tensors[name] = value + combine(own).reshape(value.shape) if own else value
                self._groups[key] = Encoder(self.merged.architecture, tensors)
            self._groups[key] = self._groups.pop(key)
            return self._groups[key]

    def features_by_mixture(self, images: Tensor, weights: Tensor) -> Tensor:
        """Features (n, e) through every image's own mixture, weights (n, K)."""
        return replace(self.merged, weights=weights)(images)

    def features_by_router(self, images: Tensor, route: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Features (n, e) where MLPs are the pretrained ones plus mixtures by what ``route`` gives."""
        return replace(self.merged, tensors={**self.merged.tensors, **self.base}, route=route)(images)
