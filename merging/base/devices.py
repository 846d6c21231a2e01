"""Which device computes, how much of its memory a piece of work may take, and its name as results show it."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeVar

import psutil
import torch
from torch import Tensor

from merging.base.errors import MergingError

R = TypeVar("R")

HOST = torch.device("cpu")
PINNED_MEMORY_DEVICES = {"cuda"}  # kinds of devices that copy from pinned memory while they compute
FREE_MEMORY_DIVISOR = 2  # a piece of work may take 1/2 of the free memory; the remainder is a reserve
# Retries with smaller pieces, and the bits by which each retry shifts the size: a quarter.
MAX_RETRIES, SHRINK_BITS = 3, 2
# The end of the sentence that ``retry_on_oom`` returns if it used the CPU instead.
CPU_FALLBACK_ENDING = ", so the CPU computed this."
_oom_counts = Counter[str]()  # by kind of device: how often memory ran out in the current work
_oom_lock = Lock()  # protects ``_oom_counts``


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
    """'CPU' or the accelerator's name; it is recorded with every result."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return device.type.upper()


def describe_used_device(device: torch.device, sentences: Iterable[str]) -> str:
    """The name of the device that computed a result: the CPU if ``sentences`` of ``retry_on_oom`` say so."""
    return describe_device(HOST if any(sentence.endswith(CPU_FALLBACK_ENDING) for sentence in sentences) else device)


def describe_machine() -> str:
    """The system, processor and number of cores: 'Linux on x86_64, 2 cores'. The name of the machine is left out."""
    cores = psutil.cpu_count() or 1
    return f"{platform.system()} on {platform.machine()}, {cores} {'core' if cores == 1 else 'cores'}"


def is_host(device: torch.device) -> bool:
    """Whether a device is the CPU."""
    return device.type == HOST.type


def move_tensor(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Copy a host tensor (*S), of any shape, to ``device`` in ``dtype``; with pinned memory the host does not wait."""
    if device.type in PINNED_MEMORY_DEVICES:
        tensor = tensor.contiguous().pin_memory().to(device, non_blocking=True)  # an expanded tensor cannot be pinned
    return tensor.to(device, dtype)


def free_bytes(device: torch.device) -> int:
    """Bytes of an accelerator's memory that this process can still allocate."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    free = int(torch.get_device_module(device).mem_get_info(device)[0])
    if device.type == "cuda":  # the driver counts memory that torch has reserved but does not use as taken
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free


def bytes_for_models(device: torch.device) -> int:
    """Bytes of a device's memory that models evaluated together may take."""
    return (int(psutil.virtual_memory().available) if is_host(device) else free_bytes(device)) // FREE_MEMORY_DIVISOR


def limit_bytes(device: torch.device, size: int) -> int:
    """Bytes of an accelerator's memory that a piece of work may take, at most the requested ``size``."""
    return min(size, free_bytes(device) // FREE_MEMORY_DIVISOR) >> SHRINK_BITS * _oom_counts[device.type]


def retry_on_oom(device: torch.device, compute: Callable[[torch.device], R]) -> tuple[R, tuple[str, ...]]:
    """The result of ``compute`` on a device, and a sentence if the device ran out of memory at least once.

    When memory runs out, ``compute`` starts again with pieces of a quarter of the size, up to three times, and then on
    the CPU. Nested calls start with the smaller pieces and shrink them further if they also run out of memory.
    """
    sentences: tuple[str, ...] = ()
    failures = 0
    try:
        while failures <= MAX_RETRIES:
            try:
                return compute(device), sentences
            except RuntimeError as error:
                if is_host(device) or not _is_out_of_memory(error):
                    raise
            # After the except block, the tensors of the failed round are no longer referenced.
            torch.get_device_module(device).empty_cache()
            failures += _count_oom(device, 1)
            size = 1 << SHRINK_BITS * failures
            sentences = (f"{describe_device(device)} ran out of memory, so pieces were 1/{size} of the usual size.",)
    finally:
        _count_oom(device, -failures)
    sentences = (f"{describe_device(device)} ran out of memory even with small pieces{CPU_FALLBACK_ENDING}",)
    return compute(HOST), sentences


def _count_oom(device: torch.device, times: int) -> int:
    """Add ``times`` to how often this kind of device ran out of memory."""
    with _oom_lock:
        _oom_counts[device.type] += times
    return times


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)
