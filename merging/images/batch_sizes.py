"""How many images run through a tower at a time."""

from __future__ import annotations

import torch

from merging.base.devices import is_host, limit_bytes
from merging.models.architecture import Architecture

CPU_TOKENS, GPU_TOKENS = 1 << 12, 1 << 16  # tokens in a forward pass, on a CPU and on an accelerator
SHORT_BATCH_TOKENS = 1 << 10  # tokens in a forward pass on one core of a CPU
VECTORS_PER_TOKEN = 24  # vectors (width,) in memory for each token, not counting attention weights


def limit_batch(image_count: int, architecture: Architecture, device: torch.device) -> int:
    """The number of images per forward pass: all on a CPU, at most ``batch_size`` on an accelerator."""
    return image_count if is_host(device) else min(image_count, batch_size(architecture, device))


def forward_bytes(image_count: int, architecture: Architecture) -> int:
    """Bytes of memory that a forward pass of ``image_count`` images takes."""
    tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
    return (
        image_count
        * tokens
        * (VECTORS_PER_TOKEN * architecture.width + architecture.heads * tokens)
        * torch.float32.itemsize
    )


def batch_size(architecture: Architecture, device: torch.device) -> int:
    """The number of images per forward pass: fewer on an accelerator with little free memory."""
    tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
    if is_host(device):
        return max(1, CPU_TOKENS // tokens)
    image_bytes = forward_bytes(1, architecture)
    return max(1, limit_bytes(device, image_bytes * max(1, GPU_TOKENS // tokens)) // image_bytes)


def short_batch(architecture: Architecture) -> int:
    """The number of images per forward pass on one core of a CPU.

    It takes about a second, so that cancelling is fast and little memory is in use.
    """
    return max(1, SHORT_BATCH_TOKENS // ((architecture.image_size // architecture.patch_size) ** 2 + 1))
