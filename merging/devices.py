"""Which device computes, and its name as it is shown with results."""

from __future__ import annotations

import platform

import psutil
import torch

from merging.errors import MergingError


def choose_device(name: str = "auto") -> torch.device:
    """The device to compute on: "auto" takes CUDA, then MPS, then the CPU.

    Raises:
        MergingError: that device is not available.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise MergingError(f"Device {name!r} is not available here: {str(error).splitlines()[0]}") from None
    return device


def describe_device(device: torch.device) -> str:
    """'CPU' or the accelerator's name, which is recorded with every result."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return device.type.upper()


def describe_machine() -> str:
    """'Linux on x86_64, 2 cores': what is recorded with times, without the machine's name."""
    cores = psutil.cpu_count() or 1
    return f"{platform.system()} on {platform.machine()}, {cores} {'core' if cores == 1 else 'cores'}"
