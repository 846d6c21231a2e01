"""What a class's limit is compared with."""

from __future__ import annotations

import json

import pytest

from merging.study.analysis import registry
from merging.study.analysis.stored import FACTS
from merging.study.analysis.subject import own_folder
from merging.study.runs.store import Store
from merging.tasks.queue.kinds import find_job_kind

COUNTS = "task_counts"  # a measurement that takes minutes


@pytest.mark.parametrize(("took", "share"), [(0.4, 0.25), (None, 1.0)])
def test_a_record_of_a_smaller_benchmark_does_not_open_the_limit(tmp_path, took, share):
    store, stated = Store(tmp_path), registry.MEASURES[COUNTS].seconds
    if took is not None:
        folder = own_folder(store) / "0123456789ab"
        folder.mkdir(parents=True)
        (folder / FACTS).write_text(json.dumps({"key": COUNTS, "seconds": took}), "utf-8")
    assert find_job_kind(COUNTS).estimate(COUNTS, store.root) == share * stated
    assert find_job_kind("merge").estimate("merge", store.root) is None
