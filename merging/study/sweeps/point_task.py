"""The task "point": one point of a sweep."""

from __future__ import annotations

from merging.base.errors import CheckpointError
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import resolve_benchmark
from merging.models.checkpoint import Checkpoint
from merging.models.formats.files_on_workers import explain_unseen, remember_received_digest
from merging.study.sweeps.points import PointSample
from merging.study.sweeps.sweep import NamedPoint, SweepPoint
from merging.study.sweeps.sweep_session import SweepSession
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import Plain, Request, TaskKind


def open_session(request: Request) -> SweepSession:
    """The session that the points of a sweep share."""
    benchmark = Benchmark.load(resolve_benchmark(str(request["benchmark"])))
    return SweepSession(benchmark, PointSample.from_plain(request["sample"]), QUIET.on_device(request["device"]))


def name_point(session: SweepSession, request: Request) -> str:
    """The name of the point in this process, which ``compute_point`` computes next.

    Raises:
        WorkerError, CheckpointError: this process does not see a file.
    """
    session.named = _plan_point(session, request)
    return session.named.name


def compute_point(session: SweepSession, request: Request, context: Context) -> Plain:
    """The point that ``name_point`` named last, with the facts about it."""
    assert session.named is not None and session.named.name == request["name"]
    point, about = session.compute(session.named, context)
    return {**point.to_plain(), "about": about}


def _plan_point(session: SweepSession, request: Request) -> NamedPoint:
    point = SweepPoint.from_plain(request["place"])  # the point's recipe and values
    checkpoints: list[Checkpoint] = []
    for recipe in point.opened_recipes:
        try:
            checkpoints += session.open_checkpoints(recipe)
        except CheckpointError as error:
            raise explain_unseen(recipe.models().values(), error) from None
    for checkpoint, digest in zip(checkpoints, request["digests"], strict=True):
        remember_received_digest(checkpoint, digest)
    return session.plan_point(point)


KIND = TaskKind(
    "point", open_session, compute_point, name_point, shared_keys=("benchmark", "sample", "device"), stored=True
)
