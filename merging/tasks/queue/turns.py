"""The order of jobs if several sessions share one queue, when each job begins, and the limits of a session.

A session is one browser tab; an empty name stands for work without one. A server in class mode has limits, as many
people share it.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from merging.base import modes
from merging.base.errors import ModeError
from merging.base.modes import Mode
from merging.base.text import duration_text

SHARE_SECONDS = 600.0  # during which computing counts against its session, whose next jobs then come later
DEFAULT_JOB_SECONDS = 10.0  # assumed for a job without an estimate
IMAGE_SECONDS = 0.005  # charged for an image of a preview
MAX_TICKETS = 2000  # jobs whose sessions are remembered
PLAN_SECONDS = 1.0  # for which a computed order is reused, as all sessions request it often
LONG_JOB_ERROR = (
    "The job is estimated to take about {}; the limit of this server is {}. Run its recipe on your own machine."
)
FULL_SHARE_ERROR = (
    "You have {} jobs in the queue, which is your share on this server. Wait for one to end, or leave it."
)
BUSY_ERROR = "The class is busy for about {}: {} jobs wait. Try again later."


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """The limits of a server in class mode: seconds of a job, unfinished jobs of a session, and waiting jobs."""

    job_seconds: float = math.inf
    jobs_of_session: float = math.inf
    waiting_jobs: float = math.inf


NO_LIMITS = ClassLimits()
# A session has at most two jobs: one that computes and one that waits.
CLASS_LIMITS = ClassLimits(job_seconds=modes.MAX_JOB_SECONDS, jobs_of_session=2, waiting_jobs=200)


def find_limits() -> ClassLimits:
    """The limits of this server's mode."""
    return CLASS_LIMITS if modes.server_mode() == Mode.CLASS else NO_LIMITS


@dataclass(slots=True)
class Ticket:
    """A job: the sessions that wait for it, in the order of their requests, and its estimated seconds."""

    sessions: list[str]
    seconds: float
    started: float | None = None
    ended: bool = False


@dataclass
class Turns:
    """Jobs and the sessions that wait for them. One thread may call it at a time. Times are in seconds of one clock.

    The next job is that of the session with the least recent computing; among equals, the first in the queue. If
    several sessions wait for a job, the one with the least computing counts, and the job's time is divided among them.
    """

    clock: Callable[[], float] = time.monotonic
    max_running: int = 1  # jobs that compute at the same time
    _tickets: OrderedDict[str, Ticket] = field(default_factory=OrderedDict)
    _charges: list[tuple[float, str, float]] = field(default_factory=list)  # time, session, seconds
    # The last result of ``_plan``: the queue, the time, the order, {job: seconds until it begins}.
    _last_plan: tuple[tuple[str, ...], float, list[str], dict[str, float]] | None = None

    def admit(self, session: str, estimate: Callable[[], float | None], queue: Sequence[str]) -> float:
        """The estimated seconds of a new job; ``estimate`` is called only if there are sessions or limits.

        Raises:
            ModeError: the job takes too long for a class, the session has used its share, or too many jobs wait.
        """
        limits = find_limits()
        if not session and limits == NO_LIMITS:
            return DEFAULT_JOB_SECONDS
        if len(queue) >= limits.waiting_jobs:
            raise ModeError(
                BUSY_ERROR.format(duration_text(sum(map(self._estimate_seconds, queue)) / self.max_running), len(queue))
            )
        # The first session of a job is the one that submitted it.
        unfinished = [
            ticket for ticket in self._tickets.values() if not ticket.ended and ticket.sessions[:1] == [session]
        ]
        if len(unfinished) >= limits.jobs_of_session:
            raise ModeError(FULL_SHARE_ERROR.format(len(unfinished)))
        job_seconds = estimate() or DEFAULT_JOB_SECONDS
        if job_seconds > limits.job_seconds:
            raise ModeError(LONG_JOB_ERROR.format(duration_text(job_seconds), duration_text(limits.job_seconds)))
        return job_seconds

    def record_waiting(
        self, job: str, session: str, seconds: float = DEFAULT_JOB_SECONDS, *, is_new: bool = False
    ) -> None:
        """Record that a session waits for a job; ``is_new`` if the job is being submitted."""
        self._last_plan = None
        ticket = self._tickets.get(job)
        if ticket is None or is_new:
            self._tickets[job] = Ticket([session], seconds)
            self._tickets.move_to_end(job)
            while len(self._tickets) > MAX_TICKETS:
                self._tickets.popitem(last=False)
        elif session not in ticket.sessions:
            ticket.sessions.append(session)

    def record_leaving(self, job: str, session: str) -> bool:
        """Record that a session no longer waits; return whether it was the last one, so that the job can stop."""
        ticket = self._tickets.get(job)
        if ticket is None or session not in ticket.sessions:
            return False
        self._last_plan = None
        ticket.sessions.remove(session)
        return not ticket.sessions

    def list_awaited_jobs(self, session: str) -> set[str]:
        """The jobs that a session asked for and has not left, including ended ones."""
        return {job for job, ticket in self._tickets.items() if session in ticket.sessions}

    def is_awaited_by_others(self, job: str, session: str) -> bool:
        """Whether another session waits for a job."""
        ticket = self._tickets.get(job)
        return ticket is not None and any(waiting != session for waiting in ticket.sessions)

    def record_start(self, job: str) -> None:
        """Record that a job begins to compute."""
        self._last_plan = None
        if ticket := self._tickets.get(job):
            ticket.started = self.clock()

    def record_end(self, job: str) -> None:
        """Record that a job no longer computes or waits, and charge its time to the sessions that waited for it."""
        self._last_plan = None
        if (ticket := self._tickets.get(job)) is None or ticket.ended:
            return
        for session, share in self._split_seconds(ticket, self._seconds_spent(ticket)):
            self.charge(session, share)
        ticket.started, ticket.ended = None, True

    def charge(self, session: str, seconds: float) -> None:
        """Charge seconds of computing to a session."""
        now = self.clock()
        self._charges = [charge for charge in self._charges if charge[0] > now - SHARE_SECONDS]
        self._charges.append((now, session, seconds))

    def plan_order(self, queue: Sequence[str]) -> list[str]:
        """The jobs of a queue in the order in which they will compute if no more jobs are submitted."""
        return self._plan(tuple(queue))[0]

    def estimate_wait(self, job: str, queue: Sequence[str]) -> float | None:
        """Seconds until a waiting job should begin; None if it is not in the queue."""
        return self._plan(tuple(queue))[1].get(job)

    def _plan(self, queue: tuple[str, ...]) -> tuple[list[str], dict[str, float]]:
        """The order, and {job: seconds until it begins}; cached for ``PLAN_SECONDS`` seconds."""
        now = self.clock()
        if self._last_plan is not None and self._last_plan[0] == queue and now - self._last_plan[1] < PLAN_SECONDS:
            return self._last_plan[2], self._last_plan[3]
        used = self._sum_used(now)
        running = [ticket for ticket in self._tickets.values() if ticket.started is not None]
        seconds_left = sorted(max(ticket.seconds - self._seconds_spent(ticket), 0.0) for ticket in running)
        # Seconds until each of the ``max_running`` slots becomes free.
        slots = [*[0.0] * (self.max_running - len(seconds_left)), *seconds_left]
        waiting, order, starts = list(queue), [], {}
        while waiting:
            job = min(
                waiting,
                key=lambda job: min((used.get(session, 0.0) for session in self.list_sessions(job)), default=0.0),
            )
            waiting.remove(job)
            order.append(job)
            starts[job] = heapq.heappop(slots)
            heapq.heappush(slots, starts[job] + self._estimate_seconds(job))
            if ticket := self._tickets.get(job):
                for session, share in self._split_seconds(ticket, ticket.seconds):
                    used[session] = used.get(session, 0.0) + share
        self._last_plan = queue, now, order, starts
        return order, starts

    def _sum_used(self, now: float) -> dict[str, float]:
        """Recent seconds of computing of each session, including the estimated time of running jobs."""
        used: dict[str, float] = {}
        charges = [(session, part) for charged_at, session, part in self._charges if charged_at > now - SHARE_SECONDS]
        for ticket in self._tickets.values():
            if ticket.started is not None:
                charges += self._split_seconds(ticket, max(ticket.seconds, self._seconds_spent(ticket)))
        for session, share in charges:
            used[session] = used.get(session, 0.0) + share
        return used

    def _split_seconds(self, ticket: Ticket, seconds: float) -> list[tuple[str, float]]:
        return [(session, seconds / len(ticket.sessions)) for session in ticket.sessions if seconds]

    def _seconds_spent(self, ticket: Ticket) -> float:
        return self.clock() - ticket.started if ticket.started is not None else 0.0

    def list_sessions(self, job: str) -> list[str]:
        """The sessions that wait for a job, or waited for it until it ended."""
        return list(self._tickets[job].sessions) if job in self._tickets else []

    def _estimate_seconds(self, job: str) -> float:
        return self._tickets[job].seconds if job in self._tickets else DEFAULT_JOB_SECONDS
