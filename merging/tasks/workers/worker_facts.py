"""The task "about": which program a worker runs, on which hardware, and whether it sees the store.

Workers of one "kind", a digest over the program and the hardware, produce the same bytes. "program" is the digest over
the program alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from merging.base import devices, outside_code
from merging.base.errors import MergingError
from merging.base.files.short_digest import short_digest
from merging.base.free_memory import free_memory
from merging.base.version import __version__
from merging.tasks.kinds import TaskKind
from merging.tasks.store_mark import sees_mark

GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
MEMORY_VARIABLE = "MERGESCOPE_WORKER_MEMORY"  # the variable with the bytes that a worker may take
PROGRAM_FACTS = ("version", "sources", "torch", "numpy")  # facts in which programs that compute equal results agree
DEVICE_NAMES = ("auto", "cpu", "cuda", "cuda:0", "mps")  # the devices that a request to a worker may name


def describe_worker(request: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of this worker: versions, sha-256 of the sources, hardware, free memory and limit in bytes (0: none).

    ``request`` may have a "device", and a "probe", the path and the text of a file in the store (a mark, see
    ``store_mark``); "sees_store" is whether this worker reads that text there. A "pause" in seconds lets other workers
    answer, too.
    """
    import numpy as np
    import torch

    time.sleep(float(request.get("pause", 0)))
    gpu, device = os.environ.get(GPUS_VARIABLE, ""), str(request.get("device", "auto"))
    facts = {
        "name": f"{platform.node()} GPU {gpu}" if gpu else platform.node(),
        "pid": os.getpid(),
        "version": __version__,
        "sources": sources_digest(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "hardware": hardware_name(device),
        "gpu": gpu,
        "memory": free_memory(),
        "limit": int(os.environ.get(MEMORY_VARIABLE, "0")),
        "sees_store": sees_mark(request.get("probe")),
    }
    return facts | {"kind": _digest(facts, *PROGRAM_FACTS, "hardware"), "program": _digest(facts, *PROGRAM_FACTS)}


def local_kinds() -> set[str]:
    """Every "kind" and "program" that ``describe_worker`` can return in this process, over all devices."""
    kinds = set()
    for device in DEVICE_NAMES:
        with contextlib.suppress(MergingError):
            facts = describe_worker({"device": device})
            kinds |= {str(facts["kind"]), str(facts["program"])}
    return kinds


def machine_name(facts: Mapping[str, Any]) -> str:
    """The machine of the worker with these facts."""
    return str(facts["name"]).partition(" GPU ")[0]


def hardware_name(device: str = "auto") -> str:
    """The hardware that the bytes of a result depend on: the GPU's model, or the CPU's instruction set in torch."""
    import torch

    torch_device = devices.choose_device(device)
    name = devices.describe_device(torch_device)
    return f"{name} {torch.backends.cpu.get_cpu_capability()}" if devices.is_host(torch_device) else name


def sources_digest() -> str:
    """The sha-256 over the Python files of this package, and over the methods of others, which can change meanwhile."""
    sources = "\0".join([_package_sources(), *outside_code.own_sources()])
    return hashlib.sha256(sources.encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _package_sources() -> str:
    """The sha-256 over the paths and contents of all Python files of this package."""
    root, digest = Path(__file__).resolve().parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(facts: Mapping[str, Any], *keys: str) -> str:
    return short_digest(repr([facts[key] for key in keys]))


KIND = TaskKind("question", lambda _request: None, lambda _inputs, request, _context: describe_worker(request))
