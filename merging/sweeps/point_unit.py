"""The unit ``point``: a worker computes one point of a sweep, from what it sees itself.

It names the point from its own files and refuses another name than the one that was asked for, so that a stale copy of
a file, or other images, cannot give a number. Digests come with the request, with the size, time and inode of the file
that they are of: a worker that sees the same file need not read it for its digest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import seen_here
from merging.errors import CheckpointError
from merging.formats.handed_out import believe, unseen
from merging.sweeps.compute import Session
from merging.sweeps.points import Point, Sample
from merging.sweeps.spread import STAGES
from merging.sweeps.sweep import NamedPoint, SweepPoint
from merging.sweeps.wire import place_of, plain_point, sample_of
from merging.tasks.context import QUIET
from merging.workers.sentences import sees_others

_sessions: dict[str, Session] = {}  # the last one of this process
_one_at_a_time = threading.Lock()


def point(request: Mapping[str, Any]) -> dict[str, Any]:
    """The point and the facts about it.

    Raises:
        WorkerError: this worker does not see a file, or sees another one. MergingError: the point cannot be computed.
    """
    with _one_at_a_time:  # a session is for one thread
        place, sample = place_of(request["place"]), sample_of(request["sample"])
        found, about = _computed(request, place, sample)
        return plain_point(found, about)


def _computed(request: Mapping[str, Any], place: SweepPoint, sample: Sample) -> tuple[Point, dict[str, Any]]:
    session = _session(request, sample)
    planned = _planned(session, place, request)
    if planned.name != request["name"]:
        _sessions.clear()  # its files may have changed since they were opened
        session = _session(request, sample)
        planned = _planned(session, place, request)
    if planned.name != request["name"]:
        raise sees_others("point")
    return session.compute(planned, dict.fromkeys(STAGES, session.context))


def _session(request: Mapping[str, Any], sample: Sample) -> Session:
    key = repr((request["benchmark"], request["device"], sample))
    if key not in _sessions:
        _sessions.clear()
        _sessions[key] = Session(
            Benchmark.load(seen_here(str(request["benchmark"]))), sample, QUIET.on(request["device"])
        )
    return _sessions[key]


def _planned(session: Session, place: SweepPoint, request: Mapping[str, Any]) -> NamedPoint:
    try:
        opened = session.opened(place.recipe)
    except CheckpointError as error:
        raise unseen((place.recipe.pretrained, *dict(place.recipe.experts).values()), error) from None
    for checkpoint, given in zip(opened, request["digests"], strict=True):
        believe(checkpoint, given)
    return session.plan(place)
