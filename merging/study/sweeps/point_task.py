"""The task "point": one point of a sweep."""

from __future__ import annotations

from merging.base.errors import CheckpointError
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import seen_here
from merging.models.formats.handed_out import believe, unseen
from merging.study.sweeps.compute import Session
from merging.study.sweeps.points import Sample
from merging.study.sweeps.sweep import NamedPoint, SweepPoint
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import Plain, Request, TaskKind


def open_session(request: Request) -> Session:
    """What the points of a sweep share."""
    benchmark = Benchmark.load(seen_here(str(request["benchmark"])))
    return Session(benchmark, Sample.from_plain(request["sample"]), QUIET.on(request["device"]))


def name_point(session: Session, request: Request) -> str:
    """What this process calls the point. Raises WorkerError, CheckpointError: it does not see a file."""
    session.named = _planned(session, request)
    return session.named.name


def compute_point(session: Session, request: Request, context: Context) -> Plain:
    """The point that was named last, and the facts about it."""
    assert session.named is not None and session.named.name == request["name"]
    point, about = session.compute(session.named, context)
    return {**point.plain(), "about": about}


def _planned(session: Session, request: Request) -> NamedPoint:
    place = SweepPoint.from_plain(request["place"])
    try:
        opened = session.opened(place.recipe)
    except CheckpointError as error:
        raise unseen(place.recipe.models().values(), error) from None
    for checkpoint, given in zip(opened, request["digests"], strict=True):
        believe(checkpoint, given)
    return session.plan(place)


KIND = TaskKind("point", open_session, compute_point, name_point, ("benchmark", "sample", "device"), stored=True)
