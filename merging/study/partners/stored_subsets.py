"""What is stored of a measurement of subsets: packed, from a library, or the points of a sweep as far as they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from merging.images.benchmarks.benchmark import Benchmark
from merging.study.partners.packed_subsets import find_packed
from merging.study.partners.subsets import MeasuredSubsets, list_few
from merging.study.runs.run_store import Store
from merging.study.sweeps.best_points import read_point_answers
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import NamedPoint, Sweep
from merging.study.sweeps.sweep_session import plan_sweep


def read_subsets(sweep: Sweep, store: Store, benchmark: Benchmark) -> MeasuredSubsets:
    """What is stored of a sweep of ``plan_subsets``, which may be only a part.

    Its ``accuracy`` is v[subset][task] by names; its ``right`` has the answers to single images.

    Raises:
        CheckpointError, TaskError: a model is missing, or does not fit the benchmark.
    """
    planned = plan_sweep(sweep, benchmark)
    points = KnownPoints(planned, store, benchmark, sweep.sample.normalize_on(benchmark)).read_points()
    return collect_subsets(sweep, store, benchmark, planned, points)


def collect_subsets(
    sweep: Sweep, store: Store, benchmark: Benchmark, planned: Sequence[NamedPoint], points: Mapping[str, Point]
) -> MeasuredSubsets:
    """The measured subsets of a sweep with its plan and its stored ``points``, beside packed ones of few experts."""
    if (packed := find_packed(store, planned)) is not None:
        return packed
    answers = read_point_answers(points, sweep.sample, benchmark)
    subsets = {int(point.point.values[0]): point.name for point in planned}
    experts = tuple(name for name, _ in sweep.recipes[0].experts)
    few = set(list_few(len(experts)))
    packed = find_packed(store, [point for point in planned if int(point.point.values[0]) in few])
    right = dict(packed.right) if packed else {}
    right |= {subset: answers[name] for subset, name in subsets.items() if name in answers}
    devices = {point.device for point in points.values()} | ({packed.device} if packed else set())
    return MeasuredSubsets(experts, dict(sorted(right.items())), len(subsets), sweep.seed, ", ".join(sorted(devices)))
