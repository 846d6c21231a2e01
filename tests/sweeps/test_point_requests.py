"""Points that combine several merges: requests to workers cover the files of all, checks of memory the weights."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_sweeps import recipe, sweep

from merging.base.errors import MergingError, WorkerError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import open_checkpoint
from merging.study.runs.run_store import Store
from merging.study.sweeps import point_task, sweep_session
from merging.study.sweeps.sweep import LINE, PLANE, Axis
from merging.study.sweeps.sweep_session import SweepSession
from merging.tasks.context import Context


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


def test_the_memory_of_a_point_is_that_of_all_its_merges(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = (recipe(tiny_benchmark), recipe(tiny_benchmark, "ties"))
    axes = (Axis("alpha", (0.0, 0.5)), Axis("beta", (0.0, 0.5)))
    made = sweep(
        tiny_benchmark, kind=PLANE, axes=axes, through=("pretrained", "merged", "merged 2"), recipes=recipes, images=4
    )
    session = SweepSession(tiny_benchmark, made.sample)
    opened = [session.open_checkpoints(one) for one in recipes]
    needed = max(session.estimate_memory(one) for one in opened) + opened[0].pretrained.nbytes
    checked: list[int] = []
    pool = SimpleNamespace(check_memory=lambda bytes_, _: checked.append(bytes_))
    monkeypatch.setattr(sweep_session, "open_workers", lambda *_, **__: contextlib.nullcontext(pool))
    monkeypatch.setattr(sweep_session, "compute_points", lambda *_: {})
    sweep_session.run_sweep(made, store, tiny_benchmark)
    assert max(checked) == needed

    (both,) = (planned for planned in session.plan_sweep(made) if planned.point.values == (0.5, 0.5))
    first = session.estimate_memory(opened[0]) + opened[0].pretrained.nbytes
    merged: list[object] = []
    monkeypatch.setattr(sweep_session.engine, "run_recipe", lambda *_, **__: merged.append(0))
    monkeypatch.setattr(sweep_session, "free_memory", lambda: first - 1)
    with pytest.raises(MergingError, match="A point needs about"):
        session.compute(both, Context("cpu"))
    assert not merged
