"""Plans of sweeps from packs: the names of all points, for which other sweeps need their checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from merging.base.errors import StoreError
from merging.base.files.short_digest import SHORT_DIGEST
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import NamedPoint, Sweep
from merging.study.sweeps.sweep_session import plan_sweep


def plan_facts(benchmark_digest: str, planned: Sequence[NamedPoint]) -> dict[str, Any]:
    """A plan as plain data: a name and the id of a run for every point of the sweep, in its order."""
    return {"benchmark": benchmark_digest, "points": [[point.name, point.run_id] for point in planned]}


def plan_or_read(sweep: Sweep, store: Store, benchmark: Benchmark) -> list[NamedPoint]:
    """Every point of a sweep with its name, from the plan in its pack if it is from one.

    Raises:
        MergingError: as ``plan_sweep``. StoreError: the plan in the pack is damaged.
    """
    path = sweep_storage.find_file(store, sweep.id)
    if path is None or not sweep_storage.find_pack(store, sweep.id):
        return plan_sweep(sweep, benchmark)
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
        named, digest = facts["points"], facts["benchmark"]
        if digest != benchmark.digest:
            return plan_sweep(sweep, benchmark)
        return [
            NamedPoint(point, _check_id(name), run_id and _check_id(run_id))
            for point, (name, run_id) in zip(sweep.points, named, strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"The plan of sweep {sweep.id} in its pack cannot be read: {error!r}.") from None


def _check_id(text: Any) -> str:
    if not isinstance(text, str) or not SHORT_DIGEST.fullmatch(text):
        raise ValueError(f"{text!r:.40} is not the name of a point or a run")
    return text
