"""What a class's limit is compared with."""

from __future__ import annotations

import json

import pytest

from merging.study.analysis import measurement_registry
from merging.study.analysis.measurement_store import FACTS
from merging.study.analysis.measurement_subject import measurements_folder
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_kinds import find_job_kind

COUNTS = "task_counts"  # a measurement that takes minutes


@pytest.mark.parametrize(("took", "share"), [(0.4, 0.25), (None, 1.0)])
def test_a_record_of_a_smaller_benchmark_does_not_open_the_limit(tmp_path, took, share):
    store, stated = Store(tmp_path), measurement_registry.MEASUREMENTS[COUNTS].seconds
    if took is not None:
        folder = measurements_folder(store) / "0123456789ab"
        folder.mkdir(parents=True)
        (folder / FACTS).write_text(json.dumps({"key": COUNTS, "seconds": took}), "utf-8")
    assert find_job_kind(COUNTS).estimate(COUNTS, store.root) == share * stated
    assert find_job_kind("merge").estimate("merge", store.root) is None
