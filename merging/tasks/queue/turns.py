"""Whose job comes next where several sessions share one queue, when each job begins, and what a session may ask for."""

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

WINDOW = 600.0  # seconds that count as lately
UNKNOWN = 10.0  # seconds that a job without an estimate is taken to compute
AN_IMAGE = 0.005  # seconds that an image of a preview is counted as
REMEMBERED = 2000  # jobs whose sessions are remembered
FRESH = 1.0  # seconds for which an order is kept, as all sessions ask for it again and again
LONG = "About {} of computing are estimated; here a job may take {}. Run its recipe on your own machine."
SHARE = "You have {} jobs in the queue, which is your share here. Wait for one, or leave it."
BUSY = "The class is busy, about {}: {} jobs wait. Try again then."


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """What a server accepts: seconds that a job may take, unfinished jobs of a session, jobs that wait."""

    seconds: float = math.inf
    jobs_of_session: float = math.inf
    waiting: float = math.inf


NO_LIMITS = ClassLimits()
OF_CLASS = ClassLimits(seconds=modes.MOST_SECONDS, jobs_of_session=2, waiting=200)  # one that computes, and one more


def find_limits() -> ClassLimits:
    """The limits of this server's mode."""
    return OF_CLASS if modes.server_mode() == Mode.CLASS else NO_LIMITS


@dataclass(slots=True)
class Ticket:
    """A job: the sessions that wait for it, the first that asked at the front, and the seconds that it should take."""

    sessions: list[str]
    seconds: float
    started: float | None = None
    ended: bool = False


@dataclass
class Turns:
    """Jobs and the sessions that wait for them. One thread may call it at a time. Times are in seconds of one clock.

    The next job is that of the session that has had least computing lately; among equals the first in the queue. A job
    for which several sessions wait has the turn of the first of them, and each is counted its part of it.
    """

    clock: Callable[[], float] = time.monotonic
    at_once: int = 1  # jobs that compute at the same time
    _tickets: OrderedDict[str, Ticket] = field(default_factory=OrderedDict)
    _charges: list[tuple[float, str, float]] = field(default_factory=list)  # when, session, seconds
    _kept: tuple[tuple[str, ...], float, list[str], dict[str, float]] | None = None

    def admit(self, session: str, seconds: Callable[[], float | None], queue: Sequence[str]) -> float:
        """The seconds that a new job should take; ``seconds`` estimates them, where there are sessions to choose from.

        Raises:
            ModeError: it takes too long for a class, the session has had its share, or too many jobs wait.
        """
        allowed = find_limits()
        if not session and allowed == NO_LIMITS:
            return UNKNOWN
        if len(queue) >= allowed.waiting:
            raise ModeError(BUSY.format(duration_text(sum(map(self._seconds_of, queue)) / self.at_once), len(queue)))
        mine = [ticket for ticket in self._tickets.values() if not ticket.ended and ticket.sessions[:1] == [session]]
        if len(mine) >= allowed.jobs_of_session:
            raise ModeError(SHARE.format(len(mine)))
        takes = seconds() or UNKNOWN
        if takes > allowed.seconds:
            raise ModeError(LONG.format(duration_text(takes), duration_text(allowed.seconds)))
        return takes

    def wait(self, job: str, session: str, seconds: float = UNKNOWN, *, anew: bool = False) -> None:
        """Note that a session waits for a job; ``anew``: which is submitted now."""
        self._kept = None
        ticket = self._tickets.get(job)
        if ticket is None or anew:
            self._tickets[job] = Ticket([session], seconds)
            self._tickets.move_to_end(job)
            while len(self._tickets) > REMEMBERED:
                self._tickets.popitem(last=False)
        elif session not in ticket.sessions:
            ticket.sessions.append(session)

    def leave(self, job: str, session: str) -> bool:
        """A session waits no longer; whether it was the last one that did, so that the job may stop."""
        ticket = self._tickets.get(job)
        if ticket is None or session not in ticket.sessions:
            return False
        self._kept = None
        ticket.sessions.remove(session)
        return not ticket.sessions

    def list_asked(self, session: str) -> set[str]:
        """The jobs that a session asked for and has not left, ended ones included."""
        return {job for job, ticket in self._tickets.items() if session in ticket.sessions}

    def is_awaited_by_others(self, job: str, session: str) -> bool:
        """Whether another session waits for a job."""
        ticket = self._tickets.get(job)
        return ticket is not None and any(one != session for one in ticket.sessions)

    def begin(self, job: str) -> None:
        """A job computes from now on."""
        self._kept = None
        if ticket := self._tickets.get(job):
            ticket.started = self.clock()

    def end(self, job: str) -> None:
        """A job computes or waits no longer; its time is counted to those who waited for it."""
        self._kept = None
        if (ticket := self._tickets.get(job)) is None or ticket.ended:
            return
        for session, part in self._split_seconds(ticket, self._seconds_spent(ticket)):
            self.charge(session, part)
        ticket.started, ticket.ended = None, True

    def charge(self, session: str, seconds: float) -> None:
        """Count seconds of computing to a session."""
        now = self.clock()
        self._charges = [charge for charge in self._charges if charge[0] > now - WINDOW]
        self._charges.append((now, session, seconds))

    def order(self, queue: Sequence[str]) -> list[str]:
        """The jobs of a queue in the order in which they will compute, if nothing else is asked for."""
        return self._plan(tuple(queue))[0]

    def starts_in(self, job: str, queue: Sequence[str]) -> float | None:
        """Seconds until a waiting job should begin; None if it is not in the queue."""
        return self._plan(tuple(queue))[1].get(job)

    def _plan(self, queue: tuple[str, ...]) -> tuple[list[str], dict[str, float]]:
        """The order, and when each job begins; kept for a moment."""
        now = self.clock()
        if self._kept is not None and self._kept[0] == queue and now - self._kept[1] < FRESH:
            return self._kept[2], self._kept[3]
        used = self._sum_used(now)
        running = [ticket for ticket in self._tickets.values() if ticket.started is not None]
        left_of = sorted(max(ticket.seconds - self._seconds_spent(ticket), 0.0) for ticket in running)
        free = [*[0.0] * (self.at_once - len(left_of)), *left_of]  # when each place becomes free
        left, order, starts = list(queue), [], {}
        while left:
            job = min(left, key=lambda job: min((used.get(one, 0.0) for one in self._sessions_of(job)), default=0.0))
            left.remove(job)
            order.append(job)
            starts[job] = heapq.heappop(free)
            heapq.heappush(free, starts[job] + self._seconds_of(job))
            if ticket := self._tickets.get(job):
                for session, part in self._split_seconds(ticket, ticket.seconds):
                    used[session] = used.get(session, 0.0) + part
        self._kept = queue, now, order, starts
        return order, starts

    def _sum_used(self, now: float) -> dict[str, float]:
        """Seconds of computing of each session lately, with all that a job which computes now should take."""
        used: dict[str, float] = {}
        charges = [(session, part) for when, session, part in self._charges if when > now - WINDOW]
        for ticket in self._tickets.values():
            if ticket.started is not None:
                charges += self._split_seconds(ticket, max(ticket.seconds, self._seconds_spent(ticket)))
        for session, part in charges:
            used[session] = used.get(session, 0.0) + part
        return used

    def _split_seconds(self, ticket: Ticket, seconds: float) -> list[tuple[str, float]]:
        return [(session, seconds / len(ticket.sessions)) for session in ticket.sessions if seconds]

    def _seconds_spent(self, ticket: Ticket) -> float:
        return self.clock() - ticket.started if ticket.started is not None else 0.0

    def _sessions_of(self, job: str) -> Sequence[str]:
        return self._tickets[job].sessions if job in self._tickets else ()

    def _seconds_of(self, job: str) -> float:
        return self._tickets[job].seconds if job in self._tickets else UNKNOWN
