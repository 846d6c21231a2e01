"""Requests of points to workers: the files of every recipe that a point combines."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import recipe, sweep

from merging.base.errors import WorkerError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import open_checkpoint
from merging.study.sweeps import point_task
from merging.study.sweeps.sweep import LINE, Axis
from merging.study.sweeps.sweep_session import SweepSession


def test_a_request_covers_the_files_of_all_merges(tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: Any) -> None:
    first = recipe(tiny_benchmark)
    copy = Path(shutil.copy(tiny_benchmark.experts["digits"], tmp_path))
    second = replace(recipe(tiny_benchmark, "ties"), experts=(("circles", first.experts[0][1]), ("copy", str(copy))))
    made = sweep(
        tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.0, 0.5)),), through=("merged", "merged 2"),
        recipes=(first, second), images=4,
    )  # fmt: skip
    session, received = SweepSession(tiny_benchmark, made.sample), dict[str, str]()
    requests = [session.request(planned) for planned in session.plan_sweep(made)]
    monkeypatch.setattr(point_task, "remember_received_digest",
                        lambda checkpoint, digest: received.update({checkpoint.name: digest["digest"]}))  # fmt: skip
    assert point_task.name_point(point_task.open_session(requests[1]), requests[1]) == requests[1]["name"]
    references = {"pretrained": first.pretrained, **dict(first.experts), "copy": str(copy)}
    assert received == {name: open_checkpoint(reference).digest for name, reference in references.items()}
    copy.unlink()
    assert point_task.name_point(point_task.open_session(requests[0]), requests[0]) == requests[0]["name"]
    with pytest.raises(WorkerError, match=r"does not see .*digits"):
        point_task.name_point(point_task.open_session(requests[1]), requests[1])
