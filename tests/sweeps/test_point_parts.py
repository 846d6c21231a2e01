"""What the name of a point depends on, scores that a run already has, and buffers in weighted sums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import tiny
import torch

from merging.images.benchmarks.benchmark import Benchmark
from merging.models.checkpoint import MappingCheckpoint
from merging.study.sweeps import points
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.weighted_sum import CombinedCheckpoint


def test_a_points_name_depends_on_the_model_and_on_all_of_its_sample(
    tiny_benchmark: Benchmark, other_benchmark: Benchmark
) -> None:
    sample = PointSample("choosing", 5, 0, ("flags",))
    others = [
        PointSample("reporting", 5, 0, ("flags",)), PointSample("choosing", 6, 0, ("flags",)),
        PointSample("choosing", 5, 1, ("flags",)), PointSample("choosing", 5, 0, ("leaves",)),
    ]  # fmt: skip
    names = [points.name_point(["m"], tiny_benchmark, each) for each in (sample, *others)]
    names += [points.name_point(["n"], tiny_benchmark, sample), points.name_point(["m"], other_benchmark, sample)]
    assert len(set(names)) == len(names) == 7
    assert points.name_point(["m"], tiny_benchmark, sample) == names[0]


def test_a_runs_scores_are_a_point_of_the_same_split_and_tasks(tiny_benchmark: Benchmark) -> None:
    rows = [(split, task) for split in ("choosing", "reporting") for task in ("flags", "leaves")]
    scores = pd.DataFrame(rows, columns=["split", "task"]).assign(n=1)
    run = SimpleNamespace(
        benchmark=tiny_benchmark.digest, scores=scores, device="CPU", provenance="p", versions={},
        result=SimpleNamespace(schemas={}),
    )  # fmt: skip
    store: Any = SimpleNamespace(list_copies=lambda run_id: [run])

    def rows_of(sample: PointSample) -> list[tuple[str, str]] | None:
        point = points.read_point_of_run(store, "0" * 12, "name", tiny_benchmark, sample)
        return None if point is None else list(zip(point.scores["split"], point.scores["task"], strict=True))

    assert rows_of(PointSample("choosing")) == rows[:2] and rows_of(PointSample("reporting")) == rows[2:]
    assert rows_of(PointSample("reporting", tasks=("leaves",))) == [("reporting", "leaves")]
    assert rows_of(PointSample("choosing", images=1)) is None
    run.benchmark = "another"
    assert rows_of(PointSample("choosing")) is None


@pytest.mark.parametrize("coefficient", [0.5, 1.0])
def test_buffers_of_a_weighted_sum_are_the_bases(coefficient: float) -> None:
    base, experts = tiny.family(("a",))
    first = MappingCheckpoint(base | {"logit_scale": torch.tensor(4.6)}, "base")
    part = MappingCheckpoint(experts["a"] | {"logit_scale": torch.tensor(9.9)}, "a")
    combined = CombinedCheckpoint(first, [(coefficient, part)])
    assert combined.read("logit_scale") == torch.tensor(4.6)
    assert not torch.equal(combined.read("visual.proj"), base["visual.proj"])
