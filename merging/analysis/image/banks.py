"""The images among which neighbors are looked for, by their stored features, measured where they are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from merging.analysis import stored
from merging.analysis.image import neighbors
from merging.analysis.image.neighbors import FeatureBank, listed
from merging.analysis.measure import measure
from merging.checkpoints.references import EXPERTS, PRETRAINED
from merging.errors import StoreError
from merging.runs.reference_models import reference_id

if TYPE_CHECKING:
    from merging.analysis.image.towers import Towers
    from merging.analysis.stored import Measured
    from merging.benchmarks.benchmark import Benchmark

BANK = "feature_bank"  # the measurement


def kept_bank(towers: Towers, key: str, tasks: Sequence[str]) -> FeatureBank:
    """The features of these data sets by a model of ``towers``.

    Those of a stored run, or of a reference model that was evaluated, are measured once and kept; those of a draft, of
    one of several models of a run, or with a store that cannot be written to, are read from the images each time.
    """
    run_id = _stored_run(towers, key)
    if run_id:
        measured: Measured | None
        try:
            measured = measure(
                BANK, towers.store, towers.benchmark, run_id, device=towers.device, progress=towers.progress,
                cancel=towers.cancel,
            )  # fmt: skip
        except StoreError:
            measured = stored.find(BANK, towers.store, towers.benchmark, run_id)
        if measured is not None:
            return of_data_sets(measured, towers.benchmark, tasks)
    return neighbors.bank(towers(key).encoder, towers.benchmark, tasks)


def _stored_run(towers: Towers, key: str) -> str:
    """The id under which features of a model are kept; empty if they are not."""
    if key in towers.drafts:
        return ""
    if key == PRETRAINED or key.startswith(EXPERTS):
        run_id = reference_id(towers.benchmark, key.removeprefix(EXPERTS))
        return run_id if towers.store.find(run_id) else ""
    return "" if "/" in key else towers.store.full_id(key)


def of_data_sets(measured: Measured, benchmark: Benchmark, tasks: Sequence[str]) -> FeatureBank:
    """The stored features of some data sets. Raises StoreError if the measurement is damaged."""
    rows, table = measured.array("features"), measured.table("images").set_index("task")
    parts = [slice(int(first), int(first) + int(n)) for first, n in table.loc[list(tasks), ["first", "n"]].to_numpy()]
    return FeatureBank(np.concatenate([rows[part] for part in parts]), listed(benchmark, tasks))
