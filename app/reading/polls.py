"""The polls of this server: what this session answers is counted where its address has the code of a class."""

from __future__ import annotations

from collections.abc import Sequence

from app import singletons
from app.reading import data
from app.session import lesson_visit
from app.session.job_queue import session_name
from merging.teaching.polls import Polls


@singletons.once
def polls() -> Polls:
    """The polls, of which this process keeps the answers of each session in memory."""
    return Polls(data.store().root)


def code() -> str:
    """The code of the class that this session is in; empty if it is in none, or in one that has ended."""
    written = lesson_visit.current().poll
    return written if written and polls().is_open(written) else ""


def answer(lesson: str, step: int, values: Sequence[float], *, any_order: bool = False) -> None:
    """Count this session's guess or answer, if it is in a class."""
    if poll := code():
        polls().answer(poll, f"{lesson}/{step}", session_name(), values, any_order=any_order)


def counts(lesson: str, step: int) -> list[dict[float, int]]:
    """For each place of the answers at a step, {number: sessions that gave it}."""
    return polls().counts(code(), f"{lesson}/{step}")
