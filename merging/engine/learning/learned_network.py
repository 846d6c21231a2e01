"""The merged model as a differentiable network; memory holds its weights and one gradient of their size."""

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

ACTIVATIONS_CPU = 1 << 29  # bytes that the activations of one backward pass may take; at least one image runs
ACTIVATIONS_GPU = 1 << 33
SAVED_WIDTHS = 24  # numbers, in tower widths, that a block saves per token for the backward pass, without attention


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
        """Write new values of any shape (*S) to a live tensor; tensors outside the tower are ignored."""
        if name in self.weights:
            with torch.no_grad():
                self.weights[name].copy_(values)

    def take_gradient(self, name: str) -> Tensor | None:
        """Return and clear the gradient of a live tensor, of its shape (*S); None if there is no gradient."""
        weight = self.weights.get(name)
        if weight is None or weight.grad is None:
            return None
        gradient, weight.grad = weight.grad, None
        return gradient

    def share_weights(self) -> Self:
        """A network that shares the memory of these weights but has its own gradients, for ``add_gradients``."""
        other = copy(self)
        other.weights = {n: weight.detach().requires_grad_(weight.requires_grad) for n, weight in self.weights.items()}
        return other

    def add_gradients(self, other: Self) -> None:
        """Add the gradients of a network from ``share_weights`` to those of this network, and clear the former."""
        for name, weight in other.weights.items():
            target, gradient, weight.grad = self.weights[name], weight.grad, None
            if gradient is not None:
                target.grad = gradient if target.grad is None else target.grad.add_(gradient)

    def features(self, images: Tensor) -> Tensor:
        """Features (n, e) of images (n, 3, h, w), with a graph for a backward pass."""
        stored = self._encoder.names.items()
        tensors = {name: assemble(name, parts, [self.weights[part] for part in parts]) for name, parts in stored}
        features: Tensor = replace(self._encoder, tensors=tensors)(self.to_device(images))
        return features

    def to_device(self, tensor: Tensor) -> Tensor:
        """A tensor of any shape (*S) in the compute dtype, on the device of the network."""
        return tensor.to(self._device, self._dtype)

    @property
    def micro_batch(self) -> int:
        """The number of images that run forward and backward together, as the memory for activations allows."""
        budget = ACTIVATIONS_CPU if is_host(self._device) else limit_bytes(self._device, ACTIVATIONS_GPU)
        return max(1, budget // self._activation_bytes)

    def nbytes(self, image_count: int) -> int:
        """Bytes that a forward and backward pass of ``image_count`` images takes, with separate gradients."""
        live = sum(weight.nbytes for weight in self.weights.values() if weight.requires_grad)
        return live + min(image_count, self.micro_batch) * self._activation_bytes

    @property
    def _activation_bytes(self) -> int:
        """Bytes that one image saves for the backward pass."""
        tower = self.architecture
        tokens = (tower.image_size // tower.patch_size) ** 2 + 1  # patches and the class token
        return tower.layers * tokens * (SAVED_WIDTHS * tower.width + tower.heads * tokens) * self._dtype.itemsize
