"""The polls of this server, which count a session's answers if its address has the code of a class."""

from __future__ import annotations

from collections.abc import Sequence

from app import process_values
from app.reading import page_data
from app.session import lesson_visit
from app.session.job_queue import session_name
from merging.teaching.poll_counts import Polls


@process_values.make_once
def server_polls() -> Polls:
    """The polls; the answers of each session are in the memory of this process."""
    return Polls(page_data.store().root)


def class_code() -> str:
    """The code of the class that this session is in; empty if it is in no class, or the class has ended."""
    code = lesson_visit.current_visit().class_code
    return code if code and server_polls().is_open(code) else ""


def record_answer(lesson: str, step: int, values: Sequence[float], *, any_order: bool = False) -> None:
    """Count this session's guess or answer, if it is in a class; with ``any_order`` its values are a set."""
    if poll := class_code():
        server_polls().count_answer(poll, f"{lesson}/{step}", session_name(), values, any_order=any_order)


def answer_counts(lesson: str, step: int) -> list[dict[float, int]]:
    """For each position in the answers at a step, {number: sessions that gave it}."""
    return server_polls().count_answers(class_code(), f"{lesson}/{step}")
