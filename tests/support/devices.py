"""The devices of this machine, on which exact cases and common checks run: the CPU, and every accelerator."""

from __future__ import annotations

from typing import Any

import torch

ACCELERATORS = [*["cuda"] * torch.cuda.is_available(), *["mps"] * torch.backends.mps.is_available()]
DEVICES = ["cpu", *ACCELERATORS]
WITH_FLOAT64 = [device for device in DEVICES if device != "mps"]


def cross_with_devices(*cases: tuple[Any, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    """Every device with every case, whose first entry is a dtype; MPS has no float64."""
    return [(device, case) for device in DEVICES for case in cases if (device, case[0]) != ("mps", torch.float64)]
