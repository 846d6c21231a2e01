"""Turns of pages: one after the other, in the order in which they came, and never behind a slow one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from app import turns

PATIENCE = 30.0  # seconds for a thread to do what it does at once


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not turns._waiting and not turns._begun


def _waiting(count: int) -> None:
    until = time.monotonic() + PATIENCE
    while len(turns._waiting) < count:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_pages_are_drawn_one_after_the_other_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLOW", PATIENCE)
    drawn: list[int] = []
    at_once: list[int] = []

    def draw(number: int) -> None:
        with turns.turn():
            at_once.append(len(turns._begun))
            drawn.append(number)

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(8)]
    with turns.turn():
        for count, thread in enumerate(threads):
            thread.start()
            _waiting(count + 1)
        assert drawn == []
    for thread in threads:
        thread.join(PATIENCE)
    assert drawn == list(range(8)) and set(at_once) == {1}


def test_a_slow_page_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLOW", 0.05)
    over = threading.Event()
    threads = [threading.Thread(target=_draw, args=(over,)) for _ in range(3)]
    with turns.turn():
        for thread in threads:
            thread.start()
        assert over.wait(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)


def _draw(over: threading.Event) -> None:
    with turns.turn():
        over.set()


def test_a_page_that_fails_or_is_left_gives_its_turn_back() -> None:
    for problem in (ValueError, SystemExit):
        with pytest.raises(problem), turns.turn():
            raise problem
    with turns.turn():
        pass
