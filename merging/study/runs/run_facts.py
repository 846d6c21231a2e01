"""The facts about a run in run.json."""

from __future__ import annotations

import datetime
import platform
from typing import Any

import numpy as np
import torch

from merging.base.threads import parallel_pieces
from merging.base.version import __version__
from merging.study.runs.run import FORMAT_VERSION


def run_facts(*, run_id: str, is_dated: bool, device: str, network: str = "", **other_facts: Any) -> dict[str, Any]:
    """The contents of run.json: small facts, no paths and no names of users or machines."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "format": FORMAT_VERSION,
        "id": run_id,
        "device": device,
        "created": now if is_dated else None,
        "versions": list_versions(),
        **hardware_facts(),
        **({"network": network} if network else {}),
        **other_facts,
    }


def hardware_facts() -> dict[str, str | int]:
    """Facts on which equal bytes depend besides versions: the CPU's capability, and the number of threads."""
    return {"capability": torch.backends.cpu.get_cpu_capability(), "threads": parallel_pieces()}


def list_versions() -> dict[str, str]:
    """The versions of the programs on which results depend."""
    return {
        "mergescope": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
