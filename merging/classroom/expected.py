"""Seconds of computing that a job should take on this machine when it is quiet: what a class's limit is compared with.

Times that were measured while sixty sessions were served would refuse tomorrow what was allowed today.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from merging.analysis import registry
from merging.analysis.stored import FACTS
from merging.analysis.subject import own_folder

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark
    from merging.runs.inputs import OpenedRecipe
    from merging.runs.run import Run
    from merging.runs.store import Store

LEAST = 0.25  # of the stated guess


def of_merge(opened: OpenedRecipe, benchmark: Benchmark | None, runs: Sequence[Run], device: str) -> float:
    """Seconds of a merge with its evaluation, from the fastest own runs, else from a guess for a slow core."""
    from merging.runs.estimate import estimate  # loads torch

    return estimate(opened, benchmark, runs, device, quiet=True).seconds


def of_job(key: str, store: Store) -> float | None:
    """Seconds of a measurement, from the fastest own one of its kind, else from the guess that its kind states.

    A record counts for no less than a share of the guess: it may be of a smaller benchmark. None for other jobs.
    """
    if key not in registry.MEASURES:
        return None
    took = []
    for path in own_folder(store).glob(f"*/{FACTS}"):
        try:
            facts = json.loads(path.read_bytes())
            took += [float(facts["seconds"])] if facts["key"] == key else []
        except (OSError, ValueError, KeyError, TypeError):  # being replaced, damaged, or without a time
            continue
    stated = registry.MEASURES[key].seconds
    return max(min(took, default=stated), LEAST * stated)
