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
PINNED = {"cuda"}  # kinds of devices that copy from pinned memory while they compute
SHARE = 2  # one of so many parts of the free memory is for a piece of work, the rest for what is not foreseen
ROUNDS, QUARTER = 3, 2  # how often work is begun anew with pieces of a quarter of the size, as a shift of bits
BY_CPU = ", so the CPU computed this."  # how the sentence ends that ``retry_on_oom`` gives then
_ran_out = Counter[str]()  # by kind of device: how often its memory ran out in the work that is going on
_counting = Lock()  # of what was counted there


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


def describe_used_device(device: torch.device, words: Iterable[str]) -> str:
    """The name of what computed something: a device, or the CPU if one of the sentences of ``retry_on_oom`` says so."""
    return describe_device(HOST if any(sentence.endswith(BY_CPU) for sentence in words) else device)


def describe_machine() -> str:
    """'Linux on x86_64, 2 cores': what is recorded with times, without the machine's name."""
    cores = psutil.cpu_count() or 1
    return f"{platform.system()} on {platform.machine()}, {cores} {'core' if cores == 1 else 'cores'}"


def is_host(device: torch.device) -> bool:
    """Whether a device is the CPU."""
    return device.type == HOST.type


def move_tensor(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of the host on a device, in a dtype; through pinned memory the host need not wait for the copy."""
    if device.type in PINNED:
        tensor = tensor.contiguous().pin_memory().to(device, non_blocking=True)  # an expanded one cannot be pinned
    return tensor.to(device, dtype)


def free_bytes(device: torch.device) -> int:
    """Bytes of an accelerator's memory that this process can still take."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    free = int(torch.get_device_module(device).mem_get_info(device)[0])
    if device.type == "cuda":  # what torch holds and does not use counts as taken
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free


def free_for_models(device: torch.device) -> int:
    """Bytes of memory that models which are evaluated together may take."""
    return (int(psutil.virtual_memory().available) if is_host(device) else free_bytes(device)) // SHARE


def limit_bytes(device: torch.device, size: int) -> int:
    """The bytes of an accelerator's memory that a piece of work may take, which would like to take ``size``."""
    return min(size, free_bytes(device) // SHARE) >> QUARTER * _ran_out[device.type]


def retry_on_oom(device: torch.device, compute: Callable[[torch.device], R]) -> tuple[R, tuple[str, ...]]:
    """What ``compute`` gives on a device, and a sentence if the device's memory did not suffice at once.

    Where memory runs out, it begins anew with pieces of a quarter of the size, three times, and then on the CPU. The
    pieces of work inside work that was begun anew are as small, and smaller where they run out of memory themselves.
    """
    words: tuple[str, ...] = ()
    counted = 0
    try:
        while counted <= ROUNDS:
            try:
                return compute(device), words
            except RuntimeError as error:
                if is_host(device) or not _is_out_of_memory(error):
                    raise
            # Out of the except block, where nothing refers to the tensors of the round that failed.
            torch.get_device_module(device).empty_cache()
            counted += _count_oom(device, 1)
            size = 1 << QUARTER * counted
            words = (f"{describe_device(device)} ran out of memory, so pieces were 1/{size} of the usual size.",)
    finally:
        _count_oom(device, -counted)
    words = (f"{describe_device(device)} ran out of memory even with small pieces{BY_CPU}",)
    return compute(HOST), words


def _count_oom(device: torch.device, times: int) -> int:
    """Count that so often more the memory of this kind of device ran out."""
    with _counting:
        _ran_out[device.type] += times
    return times


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)
