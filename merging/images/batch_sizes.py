"""How many images run through a tower at a time."""

from __future__ import annotations

import torch

from merging.base.devices import is_host, limit_bytes
from merging.models.architecture import Architecture

BATCH_CPU, BATCH_GPU = 1 << 12, 1 << 16  # tokens in a forward pass
SHORT_CPU = 1 << 10  # tokens in a forward pass on one core of a CPU
TOKENS_IN_MEMORY = 24  # vectors (width,) that a forward pass holds per token, without attention weights


def limit_batch(images: int, architecture: Architecture, device: torch.device) -> int:
    """The number of images per forward pass: ``images``, or fewer on an accelerator with little free memory."""
    return images if is_host(device) else min(images, batch_size(architecture, device))


def forward_bytes(images: int, architecture: Architecture) -> int:
    """Bytes of memory that a forward pass of ``images`` images takes."""
    tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
    return (
        images * tokens * (TOKENS_IN_MEMORY * architecture.width + architecture.heads * tokens) * torch.float32.itemsize
    )


def batch_size(architecture: Architecture, device: torch.device) -> int:
    """The number of images per forward pass: fewer on an accelerator with little free memory."""
    tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
    if is_host(device):
        return max(1, BATCH_CPU // tokens)
    one = forward_bytes(1, architecture)
    return max(1, limit_bytes(device, one * max(1, BATCH_GPU // tokens)) // one)


def short_batch(architecture: Architecture) -> int:
    """The number of images per forward pass on one core of a CPU.

    It takes about a second, so that cancelling is fast and little memory is in use.
    """
    return max(1, SHORT_CPU // ((architecture.image_size // architecture.patch_size) ** 2 + 1))
