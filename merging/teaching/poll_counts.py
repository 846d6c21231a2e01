"""Polls of a class: the number of sessions with each answer at a step of a lesson. Only counts are stored, for one day.

A poll has a code of six letters, which is part of the links that the lecturer shares. The stored data are only the
numbers that were answered at a step, and their counts: no texts, no addresses, no times of answers, no names. The
answer of each session is held in the memory of this process, so that the session can change it, and is never stored.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from merging.base.errors import StoreError
from merging.base.files.records import write_json
from merging.teaching.lesson_steps import MAX_CELLS

CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # without vowels, so that no code is a word
CODE_LENGTH = 6
CODE_PATTERN = re.compile(f"[{CODE_LETTERS}]{{{CODE_LENGTH}}}")
LIFETIME_SECONDS = 24 * 3600.0  # of a poll
UNUSED_SECONDS = 3600.0  # a poll without answers may be dropped after this time, to make room for a new one
MAX_POLLS, MAX_QUESTIONS = 200, 500  # at a time; of one poll
MAX_DISTINCT_NUMBERS = 10_000  # at one position of the answers; maps have many cells
MAX_VALUES = MAX_CELLS  # of one answer
FOLDER = "polls"  # in the store
STEP_PATTERN = re.compile(r"[a-z0-9_]{1,64}/[1-9][0-9]?")
Counts = dict[str, list[Counter[str]]]  # by question (LESSON/STEP) and position in the answer: sessions per number
FULL_MESSAGE = "There are {} polls already. Each ends a day after its start."


@dataclass(slots=True)
class Poll:
    """A poll until it ends; ``counts`` are stored, ``answers`` by (question, session) are not."""

    end_time: float
    counts: Counts = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[tuple[int, str], ...]] = field(default_factory=dict)


class Polls:
    """The polls of one server, in a folder of its store. Every method may be called from any thread."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = root / FOLDER, clock
        self._lock = threading.Lock()
        self._polls: dict[str, Poll] = {}
        self._restore_polls()

    def begin(self) -> str:
        """Begin a poll and return its code.

        Raises:
            StoreError: there are too many polls already.
        """
        with self._lock:
            self._drop_expired()
            if len(self._polls) >= MAX_POLLS:
                self._drop_unused()
            if len(self._polls) >= MAX_POLLS:
                raise StoreError(FULL_MESSAGE.format(MAX_POLLS))
            code = ""
            while not code or code in self._polls:
                code = "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))
            self._polls[code] = Poll(self._clock() + LIFETIME_SECONDS)
            self._store_poll(code)
            return code

    def is_open(self, code: str) -> bool:
        """Whether the poll exists and has not ended."""
        with self._lock:
            return self._find_poll(code) is not None

    def count_answer(
        self, code: str, step: str, session: str, values: Sequence[float], *, any_order: bool = False
    ) -> bool:
        """Count a session's answer at a step, LESSON/N, in place of its earlier answer; returns whether it was counted.

        With ``any_order`` the numbers are a set, such as marked cells, and are all counted at one position.
        """
        answer = tuple((0 if any_order else position, _format_number(value)) for position, value in enumerate(values))
        if (
            not STEP_PATTERN.fullmatch(step)
            or not answer
            or len(answer) > MAX_VALUES
            or not all(map(math.isfinite, values))
        ):
            return False
        with self._lock:
            poll = self._find_poll(code)
            if poll is None or (step not in poll.counts and len(poll.counts) >= MAX_QUESTIONS):
                return False
            earlier = poll.answers.get((step, session), ())
            if earlier == answer:
                return True
            counts = poll.counts.setdefault(step, [])
            counts.extend(Counter() for _ in range(len(counts), max(position for position, _ in answer) + 1))
            if any(len(counts[i]) >= MAX_DISTINCT_NUMBERS and value not in counts[i] for i, value in answer):
                return False
            for i, value in earlier:
                counts[i] = +(counts[i] - Counter([value]))
            for i, value in answer:
                counts[i][value] += 1
            poll.answers[step, session] = answer
            self._store_poll(code)
            return True

    def count_answers(self, code: str, step: str) -> list[dict[float, int]]:
        """For each position of the answers at a step, {number: sessions that answered it}; empty without answers."""
        with self._lock:
            poll = self._find_poll(code)
            step_counts = poll.counts.get(step, []) if poll is not None else []
            return [
                {float(value): count for value, count in sorted(one.items(), key=_number_key)} for one in step_counts
            ]

    def end(self, code: str) -> None:
        """Delete a poll with all its counts."""
        with self._lock:
            self._drop(code)

    def _find_poll(self, code: str) -> Poll | None:
        self._drop_expired()
        return self._polls.get(code)

    def _drop_expired(self) -> None:
        """Drop polls that are a day old."""
        now = self._clock()
        for code in [code for code, poll in self._polls.items() if poll.end_time <= now]:
            self._drop(code)

    def _drop_unused(self) -> None:
        """Drop the oldest poll without answers, if there is one and it is over an hour old."""
        unused = [(poll.end_time, code) for code, poll in self._polls.items() if not poll.counts]
        if unused and min(unused)[0] <= self._clock() + LIFETIME_SECONDS - UNUSED_SECONDS:
            self._drop(min(unused)[1])

    def _drop(self, code: str) -> None:
        if self._polls.pop(code, None) is not None:
            with contextlib.suppress(OSError):
                self._path(code).unlink(missing_ok=True)

    def _path(self, code: str) -> Path:
        return self._folder / f"{code}.json"

    def _store_poll(self, code: str) -> None:
        """Store the counts. If the store cannot be written, they last only as long as this process."""
        poll = self._polls[code]
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(self._path(code), {"until": poll.end_time, "counts": poll.counts})

    def _restore_polls(self) -> None:
        """Read the polls of a server that was restarted; files that are not polls are ignored."""
        paths = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        for path in paths[:MAX_POLLS]:
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                plain = json.loads(path.read_bytes())
                counts = {
                    step: [Counter(_parse_counts(one)) for one in answers] for step, answers in plain["counts"].items()
                }
                if CODE_PATTERN.fullmatch(path.stem):
                    self._polls[path.stem] = Poll(float(plain["until"]), counts)
        self._drop_expired()


def median(counts: Mapping[float, int]) -> float:
    """The median of numbers with these counts; NaN without any."""
    total, counted = sum(counts.values()), 0
    lower_value = math.nan
    for value, count in sorted(counts.items()):
        counted += count
        if 2 * counted == total:
            lower_value = value
        elif 2 * counted > total:
            return value if math.isnan(lower_value) else (lower_value + value) / 2
    return math.nan


def _format_number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if math.isfinite(value) else "nan"


def _parse_counts(plain: Mapping[str, int]) -> dict[str, int]:
    """Counts by number from stored counts; raises ValueError if a key is not a number."""
    return {_format_number(float(value)): int(count) for value, count in plain.items()}


def _number_key(item: tuple[str, int]) -> float:
    return float(item[0])
