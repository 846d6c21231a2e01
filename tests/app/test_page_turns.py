"""Turns of pages: one after the other, in the order in which they came, and never behind a slow one."""

from __future__ import annotations

import threading
import time

import pytest

from app.page_queue import PageQueue

PATIENCE = 30.0  # seconds for a thread to do what it does at once


def begin(turns: PageQueue, draw: threading.Thread) -> None:
    """Start a thread, and wait until it waits for its turn."""
    before, until = turns.waiting_count, time.monotonic() + PATIENCE
    draw.start()
    while turns.waiting_count == before:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_pages_are_drawn_one_after_the_other_in_order() -> None:
    turns, drawn, at_once = PageQueue(slow=PATIENCE), list[int](), set[int]()

    def draw(number: int) -> None:
        with turns.wait_for_turn():
            at_once.add(turns.drawing_count)
            drawn.append(number)

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(8)]
    with turns.wait_for_turn():
        for thread in threads:
            begin(turns, thread)
        assert drawn == []
    for thread in threads:
        thread.join(PATIENCE)
    assert drawn == list(range(8)) and at_once == {1} and (turns.waiting_count, turns.drawing_count) == (0, 0)


def test_a_slow_page_holds_nothing_up() -> None:
    turns, over = PageQueue(slow=0.05), threading.Event()

    def draw() -> None:
        with turns.wait_for_turn():
            over.set()

    thread = threading.Thread(target=draw)
    with turns.wait_for_turn():
        thread.start()
        assert over.wait(PATIENCE)
    thread.join(PATIENCE)


@pytest.mark.parametrize("problem", [ValueError, SystemExit])
def test_a_page_that_fails_gives_its_turn_back(problem: type[BaseException]) -> None:
    turns = PageQueue(slow=PATIENCE)
    with pytest.raises(problem), turns.wait_for_turn():
        raise problem
    assert turns.drawing_count == 0


def test_a_page_that_fails_while_it_waits_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = PageQueue(slow=PATIENCE)

    class Broken(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise MemoryError

    with turns.wait_for_turn():
        with monkeypatch.context() as patch:
            patch.setattr("app.page_queue.threading.Event", Broken)
            waits = turns.wait_for_turn()
            with pytest.raises(MemoryError):
                waits.__enter__()
        assert (turns.waiting_count, turns.drawing_count) == (0, 1)
    assert turns.drawing_count == 0
