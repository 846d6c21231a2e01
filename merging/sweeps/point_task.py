"""The task "point": one point of a sweep."""

from __future__ import annotations

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import seen_here
from merging.errors import CheckpointError
from merging.formats.handed_out import believe, unseen
from merging.sweeps.compute import Session
from merging.sweeps.spread import STAGES
from merging.sweeps.sweep import NamedPoint
from merging.sweeps.wire import place_of, plain_point, sample_of
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import Plain, Request, TaskKind


def open_session(request: Request) -> Session:
    """What the points of a sweep share."""
    benchmark = Benchmark.load(seen_here(str(request["benchmark"])))
    return Session(benchmark, sample_of(request["sample"]), QUIET.on(request["device"]))


def name_point(session: Session, request: Request) -> str:
    """What this process calls the point. Raises WorkerError, CheckpointError: it does not see a file."""
    return _planned(session, request).name


def compute_point(session: Session, request: Request, context: Context) -> Plain:
    """The point, and the facts about it."""
    return plain_point(*session.compute(_planned(session, request), dict.fromkeys(STAGES, context)))


def _planned(session: Session, request: Request) -> NamedPoint:
    place = place_of(request["place"])
    try:
        opened = session.opened(place.recipe)
    except CheckpointError as error:
        raise unseen(place.recipe.models().values(), error) from None
    for checkpoint, given in zip(opened, request["digests"], strict=True):
        believe(checkpoint, given)
    return session.plan(place)


KIND = TaskKind("point", open_session, compute_point, name_point, shared=("benchmark", "sample", "device"))
