"""A visual tower whose weights differ from image to image, computed without a matrix per image.

A linear map with the weight W + Σ_k w_k Δ_k is computed as x Wᵀ + Σ_k w_k (x Δ_kᵀ), with K further products, which are
cheap if Δ_k is stored as two thin factors.
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

CACHED_BYTES = 1 << 28  # most bytes of stored tensors, and of combined models, that stay in memory
Combine = Callable[[list[Mapping[str, Tensor]]], Tensor]  # the stored parts of some tasks -> a change (*S)
LEFT, RIGHT = ".left", ".right"  # suffixes of the factors of a matrix that is stored as a product


def tower_tensors(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """A tower's tensors {name: tensor of any shape (*S)} in memory, under open_clip's names without prefix.

    They are copies in memory that torch aligned, so that equal towers give equal features, bit for bit.
    """
    return {
        name: assemble(name, stored, [checkpoint.read(n).to(device, dtype, copy=True) for n in stored])
        for name, stored in tower_names(checkpoint).items()
    }


@dataclass(frozen=True)
class TensorChange:
    """The change of a tensor by one task: a whole tensor, or the product of two thin factors."""

    whole: Tensor | None  # (*S)
    left: Tensor | None = None  # (d_out, rank)
    right: Tensor | None = None  # (rank, d_in)

    @property
    def matrix(self) -> Tensor:
        """The change as one tensor, (*S) or (d_out, d_in)."""
        if self.whole is not None:
            return self.whole
        assert self.left is not None and self.right is not None
        return self.left @ self.right

    @property
    def parts(self) -> dict[str, Tensor]:
        """The stored tensors by suffix: the whole change (*S), or its factors (d_out, rank) and (rank, d_in)."""
        named = {"": self.whole, LEFT: self.left, RIGHT: self.right}
        return {suffix: part for suffix, part in named.items() if part is not None}

    @property
    def transposed(self) -> TensorChange:
        """The change of the transposed matrix."""
        whole, left, right = (None if part is None else part.T for part in (self.whole, self.right, self.left))
        return TensorChange(whole, left, right)

    def apply(self, x: Tensor) -> Tensor:
        """The products (..., d_out) of rows ``x`` (..., d_in) with the change (d_out, d_in) of a weight."""
        if self.whole is not None:
            return x @ self.whole.flatten(1).T
        assert self.left is not None and self.right is not None
        return (x @ self.right.T) @ self.left.T


class StoredChanges:
    """The stored changes of every task, read on demand.

    If all changes together are small, they stay in memory once they are read, otherwise only those of the last block.
    """

    def __init__(self, stored: Sequence[Checkpoint], device: torch.device, dtype: torch.dtype) -> None:
        self._stored, self._device, self._dtype = stored, device, dtype
        self._fits_in_memory = sum(checkpoint.nbytes for checkpoint in stored) <= CACHED_BYTES
        self._cached: dict[str, list[TensorChange | None]] = {}
        self._block = ""
        self._lock = Lock()  # several batches may run at once

    def changes_of(self, name: str) -> list[TensorChange | None]:
        """Every task's change of a tensor; None for tasks that do not change it."""
        with self._lock:
            if name not in self._cached:
                block = name.partition("resblocks.")[2].partition(".")[0]  # empty outside the blocks
                if not self._fits_in_memory and block != self._block:
                    self._cached.clear()
                self._block = block
                self._cached[name] = [self._read_change(checkpoint, VISUAL + name) for checkpoint in self._stored]
            return self._cached[name]

    def changed_tasks(self, name: str) -> Iterator[tuple[int, TensorChange]]:
        """The numbers of the tasks that change a tensor, each with its change."""
        return ((k, change) for k, change in enumerate(self.changes_of(name)) if change is not None)

    def _read_change(self, checkpoint: Checkpoint, name: str) -> TensorChange | None:
        """One task's change of a tensor; None if the task does not change it."""
        if name in checkpoint.infos:
            return TensorChange(self._read(checkpoint, name))
        if name + LEFT in checkpoint.infos:
            return TensorChange(None, self._read(checkpoint, name + LEFT), self._read(checkpoint, name + RIGHT))
        return None

    def _read(self, checkpoint: Checkpoint, name: str) -> Tensor:
        return checkpoint.read(name).to(self._device, self._dtype)


@dataclass(frozen=True, kw_only=True)
class MixedEncoder(Encoder):
    """A tower plus mixtures of ``changes``: of all tensors by ``weights`` (n, K), or of MLPs by ``route``'s.

    Without ``weights`` and ``route`` it is the tower itself.
    """

    changes: StoredChanges
    weights: Tensor | None = None
    route: Callable[[int, Tensor], Tensor] | None = None  # (block, tokens (n, T, w)) -> weights (n, K)

    def mlp(self, x: Tensor, index: int, record: Record | None = None) -> Tensor:
        """The output (n, T, w) of a block's MLP for tokens ``x`` (n, T, w)."""
        if self.route is None:
            return super().mlp(x, index, record)
        return replace(self, weights=self.route(index, x), route=None).mlp(x, index, record)

    def linear(self, weight: str, bias: str | None, x: Tensor, record: Record | None = None) -> Tensor:
        """The outputs (n, T, d_out) of every image's mixed linear map for rows ``x`` (n, T, d_in)."""
        out = super().linear(weight, bias, x, record)
        if self.weights is None:
            return out
        for k, change in self.changes.changed_tasks(weight):
            out = out + self.weights[:, k, None, None] * change.apply(x)
        return out if bias is None else out + self._mixture(bias)[:, None]

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Normalized rows ``x``, (n, T, w) or (n, w), with every image's mixed scale and shift."""
        if self.weights is None:
            return super().norm(name, x)
        scale, shift = self.embedding(name + ".weight"), self.embedding(name + ".bias")
        if x.ndim == 2:
            scale, shift = scale[:, 0], shift[:, 0]  # one row per image
        return nnf.layer_norm(x, x.shape[-1:], eps=EPS) * scale + shift

    def embedding(self, name: str) -> Tensor:
        """Every image's mixed embedding (n, rows, w), a vector as one row; without weights the tower's own."""
        embedding = super().embedding(name)
        if self.weights is None:
            return embedding
        mixed = embedding + self._mixture(name)
        return mixed if embedding.ndim > 1 else mixed[:, None]

    def project(self, x: Tensor) -> Tensor:
        """Features (n, e) of the last rows (n, w)."""
        out = super().project(x)
        if self.weights is None:
            return out
        for k, change in self.changes.changed_tasks("proj"):  # stored (w, e), the transpose of a weight
            out = out + self.weights[:, k, None] * change.transposed.apply(x)
        return out

    def _mixture(self, name: str) -> Tensor:
        """Every image's mixture (n, *S) of the changes of one tensor (*S)."""
        assert self.weights is not None
        tensor = self.tensors[name]
        total = tensor.new_zeros((len(self.weights), *tensor.shape))
        for k, change in self.changes.changed_tasks(name):
            total = total + self.weights[:, k].reshape(-1, *[1] * tensor.ndim) * change.matrix
        return total


@dataclass(frozen=True)
class ModuleTower:
    """The merged model and the stored changes, as ``merging.methods.adapted_network.AdaptedTower``.

    ``base`` has tensors (*S) of the pretrained model: the MLPs' for towers whose MLPs are routed, or all.
    """

    merged: MixedEncoder
    base: Mapping[str, Tensor] = field(default_factory=dict)
    # The models that were used last, by the tasks that are combined in them; the latest comes last.
    _combined_models: dict[tuple[bool, ...], Encoder] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # several batches may run at once

    @property
    def blocks(self) -> int:
        """The number of blocks of the tower."""
        return self.merged.architecture.layers

    def features(self, images: Tensor) -> Tensor:
        """The merged model's features (n, e) of images (n, 3, h, w)."""
        return self.merged(images)

    def capture_class_tokens(self, images: Tensor, weight: str) -> Tensor:
        """The class tokens (n, d) of images (n, 3, h, w) that enter a linear map in a block of the merged model."""
        captured: dict[str, Tensor] = {}

        def record(name: str, rows: Tensor) -> None:
            if name == weight:
                captured[name] = rows

        x = images
        for section in range(self.merged.find_section(weight) + 1):
            x = self.merged.run_section(section, x, record)
        return captured[weight][:: x.shape[1]]  # the first of each image's tokens

    def stored_parts(self, name: str) -> list[Mapping[str, Tensor]]:
        """Every task's stored parts of one tensor by suffix: the change, of the tensor's shape (*S), or two factors.

        A mapping is empty if the task does not change the tensor.
        """
        return [{} if change is None else change.parts for change in self.merged.changes.changes_of(name)]

    def features_by_tasks(self, images: Tensor, selected: Tensor, combine: Combine) -> Tensor:
        """Features (n, e) of images (n, 3, h, w), each by the pretrained model plus the combined changes of its tasks.

        ``selected`` (n, K) is true for the tasks of an image.
        """
        tasks_by_image = [tuple(row) for row in selected.cpu().tolist()]
        indices_by_tasks: dict[tuple[bool, ...], list[int]] = {}
        for i, tasks in enumerate(tasks_by_image):
            indices_by_tasks.setdefault(tasks, []).append(i)
        if not indices_by_tasks:
            return self.merged(images)
        parts = [self._combine_model(tasks, combine)(images[indices]) for tasks, indices in indices_by_tasks.items()]
        order = torch.tensor([i for indices in indices_by_tasks.values() for i in indices], device=images.device)
        return torch.cat(parts)[order.argsort()]

    def _combine_model(self, tasks: tuple[bool, ...], combine: Combine) -> Encoder:
        """The model of the tasks whose flag is true; models used last are cached, up to ``CACHED_BYTES``."""
        with self._lock:
            if tasks not in self._combined_models:
                size = sum(tensor.nbytes for tensor in self.base.values())
                while self._combined_models and (len(self._combined_models) + 1) * size > CACHED_BYTES:
                    del self._combined_models[next(iter(self._combined_models))]
                tensors = dict(self.base)
                for name, value in self.base.items():
                    parts = [part for part, used in zip(self.stored_parts(name), tasks, strict=True) if used and part]
                    tensors[name] = value + combine(parts).reshape(value.shape) if parts else value
                self._combined_models[tasks] = Encoder(self.merged.architecture, tensors)
            self._combined_models[tasks] = self._combined_models.pop(tasks)  # moves it to the end
            return self._combined_models[tasks]

    def features_by_mixture(self, images: Tensor, weights: Tensor) -> Tensor:
        """Features (n, e) of images (n, 3, h, w) by every image's mixture, with weights (n, K)."""
        return replace(self.merged, weights=weights)(images)

    def features_by_router(self, images: Tensor, route: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Features (n, e) of images (n, 3, h, w), where MLPs are pretrained MLPs plus mixtures.

        ``route`` maps a block's number and its tokens (n, T, w) to weights (n, K).
        """
        return replace(self.merged, tensors={**self.merged.tensors, **self.base}, route=route)(images)
