"""The merged model as a network that is differentiated: its weights and one gradient of their size, nothing else."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from merging.base.devices import is_host, limit_bytes
from merging.engine.run_inputs import RunInputs
from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture
from merging.models.tower_names import assemble

ACTIVATIONS_CPU = 1 << 29  # bytes that the images of one backward pass may keep, unless one image alone keeps more
ACTIVATIONS_GPU = 1 << 33
KEPT = 24  # numbers of the size of a token that a block keeps for the backward pass, beside attention's own


class LearnedNetwork:
    """A tower in the compute dtype whose ``live`` tensors change and have gradients; the others stay pretrained."""

    def __init__(self, inputs: RunInputs, live: Collection[str]) -> None:
        self._encoder = Encoder.from_checkpoint(inputs.pretrained, inputs.device, on_demand=True)
        self._device, self._dtype = inputs.device, inputs.dtype
        stored = [name for parts in self._encoder.names.values() for name in parts]
        self.weights: dict[str, Tensor] = {}
        for name in stored:
            weight = inputs.pretrained.read(name).to(inputs.device, inputs.dtype, copy=True)
            self.weights[name] = weight.requires_grad_(name in live)

    @property
    def architecture(self) -> Architecture:
        """The tower's architecture."""
        return self._encoder.architecture

    def write(self, name: str, values: Tensor) -> None:
        """Put new values into a live tensor; what is not part of the tower is left out."""
        if name in self.weights:
            with torch.no_grad():
                self.weights[name].copy_(values)

    def take_gradient(self, name: str) -> Tensor | None:
        """The gradient of a live tensor since it was last taken; None if no loss was differentiated since."""
        weight = self.weights.get(name)
        if weight is None or weight.grad is None:
            return None
        gradient, weight.grad = weight.grad, None
        return gradient

    def with_own_gradients(self) -> Self:
        """The same weights, in the same memory, whose gradients are kept apart until ``add`` takes them."""
        other = copy(self)
        other.weights = {n: weight.detach().requires_grad_(weight.requires_grad) for n, weight in self.weights.items()}
        return other

    def add_gradients(self, other: Self) -> None:
        """Add the gradients of what ``aside`` gave to those that are held."""
        for name, weight in other.weights.items():
            own, gradient, weight.grad = self.weights[name], weight.grad, None
            if gradient is not None:
                own.grad = gradient if own.grad is None else own.grad.add_(gradient)

    def features(self, images: Tensor) -> Tensor:
        """Features (n, e) of images (n, 3, h, w), with a graph for a backward pass."""
        stored = self._encoder.names.items()
        tensors = {name: assemble(name, parts, [self.weights[part] for part in parts]) for name, parts in stored}
        features: Tensor = replace(self._encoder, tensors=tensors)(self.to_device(images))
        return features

    def to_device(self, tensor: Tensor) -> Tensor:
        """A tensor in the compute dtype, on the device of the network."""
        return tensor.to(self._device, self._dtype)

    @property
    def micro_batch(self) -> int:
        """Images that run forward and backward together: as many as memory for their activations allows."""
        budget = ACTIVATIONS_CPU if is_host(self._device) else limit_bytes(self._device, ACTIVATIONS_GPU)
        return max(1, budget // self._activations)

    def nbytes(self, images: int) -> int:
        """Bytes that so many images take forward and backward, with gradients of their own."""
        live = sum(weight.nbytes for weight in self.weights.values() if weight.requires_grad)
        return live + min(images, self.micro_batch) * self._activations

    @property
    def _activations(self) -> int:
        """Bytes that one image keeps for the backward pass."""
        shape = self.architecture
        tokens = (shape.image_size // shape.patch_size) ** 2 + 1
        return shape.layers * tokens * (KEPT * shape.width + shape.heads * tokens) * self._dtype.itemsize
