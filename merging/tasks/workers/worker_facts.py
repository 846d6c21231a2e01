"""The task "about": which program a worker runs, on what, and what it sees.

Workers of one ``kind`` give the same bytes: a digest over the program and what it computes on. ``program`` is without.
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

from merging.base import devices
from merging.base.errors import MergingError
from merging.base.files.short_digest import short_digest
from merging.base.free_memory import free_memory
from merging.base.version import __version__
from merging.tasks.kinds import TaskKind
from merging.tasks.store_mark import sees_mark

GPUS = "CUDA_VISIBLE_DEVICES"
LIMIT = "MERGESCOPE_WORKER_MEMORY"  # bytes that a worker on this machine may take, where that was said
SAME = ("version", "sources", "torch", "numpy")  # what must not differ between programs that compute the same
DEVICES = ("auto", "cpu", "cuda", "cuda:0", "mps")  # what a worker may be asked to compute on


def describe_worker(request: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, the sha-256 of our sources, what computes, free memory in bytes and the worker's limit, 0 for none.

    ``request`` may hold a "device", and a "probe": the path of a file in the store and the text that it holds;
    "sees_store" says whether this worker reads the same there. A "pause" in seconds lets other workers answer, too.
    """
    import numpy as np
    import torch

    time.sleep(float(request.get("pause", 0)))
    gpu, device = os.environ.get(GPUS, ""), str(request.get("device", "auto"))
    said = {
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
        "limit": int(os.environ.get(LIMIT, "0")),
        "sees_store": sees_mark(request.get("probe")),
    }
    return said | {"kind": _digest(said, *SAME, "hardware"), "program": _digest(said, *SAME)}


def local_kinds() -> set[str]:
    """What ``describe_worker`` here may call its kind, whichever device it is asked for, and its program."""
    found = set()
    for device in DEVICES:
        with contextlib.suppress(MergingError):
            said = describe_worker({"device": device})
            found |= {str(said["kind"]), str(said["program"])}
    return found


def machine_name(said: Mapping[str, Any]) -> str:
    """The machine of a worker that said this of itself."""
    return str(said["name"]).partition(" GPU ")[0]


def hardware_name(device: str = "auto") -> str:
    """What the bytes of a result depend on: the GPU's model, or the instructions of the CPU that torch uses."""
    import torch

    chosen = devices.choose_device(device)
    name = devices.describe_device(chosen)
    return f"{name} {torch.backends.cpu.get_cpu_capability()}" if devices.is_host(chosen) else name


@cache
def sources_digest() -> str:
    """sha-256 over the names and the text of every Python file of this package."""
    root, total = Path(__file__).resolve().parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def _digest(said: Mapping[str, Any], *keys: str) -> str:
    return short_digest(repr([said[key] for key in keys]))


KIND = TaskKind("question", lambda _request: None, lambda _inputs, request, _context: describe_worker(request))
