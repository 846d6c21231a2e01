"""Polls: one answer a session, only counts on the disk, a day at most."""

from __future__ import annotations

import json
import math
import threading

import pytest
from clock import Clock

from merging.base.errors import StoreError
from merging.teaching import poll_counts as polls_module
from merging.teaching.poll_counts import CODE_PATTERN, FOLDER, LIFETIME_SECONDS, Polls, median

STEP = "masks_by_hand/1"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def polls(tmp_path, clock):
    return Polls(tmp_path, clock)


def test_sixty_sessions_are_counted_once_each_and_may_change_their_minds(polls, tmp_path):
    code = polls.begin()
    assert CODE_PATTERN.fullmatch(code)
    votes = [
        threading.Thread(target=polls.count_answer, args=(code, STEP, f"session {n}", [float(n % 3)]))
        for n in range(60)
    ]
    for vote in votes:
        vote.start()
    for vote in votes:
        vote.join()
    assert polls.count_answers(code, STEP) == [{0.0: 20, 1.0: 20, 2.0: 20}]
    assert polls.count_answer(code, STEP, "session 0", [1.0]) and polls.count_answer(code, STEP, "session 0", [1.0])
    assert polls.count_answers(code, STEP) == [{0.0: 19, 1.0: 21, 2.0: 20}]
    stored = json.loads((tmp_path / FOLDER / f"{code}.json").read_text("utf-8"))
    assert set(stored) == {"until", "counts"} and stored["counts"] == {STEP: [{"0": 19, "1": 21, "2": 20}]}
    assert "session" not in (tmp_path / FOLDER / f"{code}.json").read_text("utf-8")


def test_every_place_of_an_answer_is_counted_and_cells_in_any_order(polls):
    code = polls.begin()
    polls.count_answer(code, STEP, "a", [80.0, 60.5])
    polls.count_answer(code, STEP, "b", [80.0, 40.0])
    assert polls.count_answers(code, STEP) == [{80.0: 2}, {40.0: 1, 60.5: 1}]
    polls.count_answer(code, "l/2", "a", [3.0, 1.0], any_order=True)
    polls.count_answer(code, "l/2", "b", [1.0, 7.0], any_order=True)
    assert polls.count_answers(code, "l/2") == [{1.0: 2, 3.0: 1, 7.0: 1}]
    polls.count_answer(code, "l/2", "b", [7.0], any_order=True)
    assert polls.count_answers(code, "l/2") == [{1.0: 1, 3.0: 1, 7.0: 1}]


def test_every_session_may_mark_other_cells_of_a_large_map(polls):
    code = polls.begin()
    for session in range(60):
        marked = [float(40 * session + place) for place in range(40)]
        assert polls.count_answer(code, STEP, str(session), marked, any_order=True)
    assert len(polls.count_answers(code, STEP)[0]) == 2400


def test_they_outlive_a_restart_and_end_after_a_day(polls, tmp_path, clock):
    code = polls.begin()
    polls.count_answer(code, STEP, "a", [1.0])
    (tmp_path / FOLDER / "BCDFGH.json").write_text('{"until": 1e12, "counts": {"x/1": [{"a name": 1}]}}', "utf-8")
    again = Polls(tmp_path, clock)
    assert again.count_answers(code, STEP) == [{1.0: 1}] and not again.is_open("BCDFGH")
    clock.now += LIFETIME_SECONDS
    assert not again.is_open(code) and again.count_answers(code, STEP) == []
    assert not (tmp_path / FOLDER / f"{code}.json").exists()


def test_what_is_no_answer_is_not_counted(polls, monkeypatch):
    code = polls.begin()
    assert not polls.count_answer("BCDFGH", STEP, "a", [1.0])
    for step, values in ((STEP, []), (STEP, [math.nan]), (STEP, [1.0] * 41), ("../x", [1.0]), ("a/0", [1.0])):
        assert not polls.count_answer(code, step, "a", values)
    monkeypatch.setattr(polls_module, "MAX_DISTINCT_NUMBERS", 2)
    assert [polls.count_answer(code, STEP, str(n), [float(n)]) for n in range(3)] == [True, True, False]
    monkeypatch.setattr(polls_module, "MAX_POLLS", 1)
    with pytest.raises(StoreError, match="There are 1 polls already"):
        polls.begin()
    polls.end(code)
    assert polls.begin() != code


def test_a_store_that_cannot_be_written_to_keeps_them_in_memory(tmp_path, clock):
    (tmp_path / FOLDER).write_text("in the way", "utf-8")
    polls = Polls(tmp_path, clock)
    code = polls.begin()
    assert polls.count_answer(code, STEP, "a", [5.0]) and polls.count_answers(code, STEP) == [{5.0: 1}]


def test_the_median_guess():
    assert median({10.0: 2, 20.0: 1, 90.0: 2}) == 20.0
    assert median({10.0: 1, 20.0: 1}) == 15.0
    assert median({10.0: 3, 20.0: 1}) == 10.0
    assert math.isnan(median({}))


def test_where_there_are_too_many_an_unused_one_makes_room_after_an_hour(polls, clock, monkeypatch):
    monkeypatch.setattr(polls_module, "MAX_POLLS", 2)
    used, unused = polls.begin(), polls.begin()
    polls.count_answer(used, STEP, "session", [1.0])
    with pytest.raises(StoreError, match="2 polls"):
        polls.begin()
    clock.now += 3601
    assert polls.is_open(polls.begin())
    assert polls.is_open(used) and not polls.is_open(unused)
