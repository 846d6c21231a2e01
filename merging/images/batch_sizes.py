"""How many images run through a tower at a time."""

from __future__ import annotations

import torch

from merging.base.devices import is_host, limit_bytes
from merging.models.architecture import Architecture

BATCH_CPU, BATCH_GPU = 1 << 12, 1 << 16  # tokens that run at a time
SHORT_CPU = 1 << 10  # tokens that run on one core of a CPU
TOKENS_IN_MEMORY = 24  # numbers of the size of a token that are in memory for each of them, beside attention's own


def limit_batch(images: int, architecture: Architecture, device: torch.device) -> int:
    """So many images at a time, or fewer on an accelerator that has little memory free."""
    return images if is_host(device) else min(images, batch_size(architecture, device))


def forward_bytes(images: int, architecture: Architecture) -> int:
    """Bytes of memory that so many images take on their way through a tower."""
    tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
    return (
        images * tokens * (TOKENS_IN_MEMORY * architecture.width + architecture.heads * tokens) * torch.float32.itemsize
    )


def batch_size(architecture: Architecture, device: torch.device) -> int:
    """Images that run forward at a time: fewer on an accelerator that has little memory free."""
    a = architecture
    tokens = (a.image_size // a.patch_size) ** 2 + 1
    if is_host(device):
        return max(1, BATCH_CPU // tokens)
    one = forward_bytes(1, a)
    return max(1, limit_bytes(device, one * max(1, BATCH_GPU // tokens)) // one)


def short_batch(architecture: Architecture) -> int:
    """Images that run forward at a time on one core of a CPU: about a second, so that a request to stop is heeded soon
    and little is in memory."""
    return max(1, SHORT_CPU // ((architecture.image_size // architecture.patch_size) ** 2 + 1))
