"""Turns in a queue that several sessions share: hand-made queues on a clock of the test's own."""

from __future__ import annotations

import threading

import pytest
from clock import Clock
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, wait_for_end, wait_until

from merging.base import modes
from merging.base.errors import ModeError
from merging.tasks.queue.job_records import State
from merging.tasks.queue.turns import SHARE_SECONDS, Turns


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def turns(clock):
    return Turns(clock)


@pytest.fixture
def in_class(monkeypatch):
    monkeypatch.setenv(modes.MODE_VARIABLE, "class")


def computed(turns, clock, job, seconds):
    turns.record_start(job)
    clock.now += seconds
    turns.record_end(job)


def test_one_session_keeps_the_order_of_its_jobs(turns):
    for job in "abc":
        turns.record_waiting(job, "", is_new=True)
    assert turns.plan_order("bca") == ["b", "c", "a"]


def test_ten_submissions_delay_another_session_by_one_job(turns):
    queue = [f"one{number}" for number in range(10)]
    for job in queue:
        turns.record_waiting(job, "one", 5.0, is_new=True)
    turns.record_start("one0")
    turns.record_waiting("two0", "two", 5.0, is_new=True)
    assert turns.plan_order([*queue[1:], "two0"])[:2] == ["two0", "one1"]
    assert turns.estimate_wait("two0", [*queue[1:], "two0"]) == 5.0
    assert turns.estimate_wait("one1", [*queue[1:], "two0"]) == 10.0


def test_sessions_take_turns_by_what_they_have_computed_lately(turns, clock):
    for session in ("long", "short"):
        turns.record_waiting(f"{session} before", session, is_new=True)
        computed(turns, clock, f"{session} before", {"long": 20.0, "short": 5.0}[session])
    for job in ("long", "short"):
        turns.record_waiting(job, job, is_new=True)
    assert turns.plan_order(["long", "short"]) == ["short", "long"]
    turns.charge("short", 30.0)  # its previews count, too
    clock.now += 2
    assert turns.plan_order(["long", "short"]) == ["long", "short"]
    clock.now += SHARE_SECONDS
    assert turns.plan_order(["short", "long"]) == ["short", "long"]  # that was long ago


def test_a_job_that_several_wait_for_has_the_turn_of_the_first_and_stops_with_the_last(turns):
    turns.charge("busy", 50.0)
    turns.record_waiting("shared", "busy", is_new=True)
    turns.record_waiting("other", "fresh", is_new=True)
    assert turns.plan_order(["shared", "other"]) == ["other", "shared"]
    turns.charge("fresh", 1.0)
    turns.record_waiting("shared", "new")
    assert turns.plan_order(["shared", "other"]) == ["shared", "other"]
    assert turns.is_awaited_by_others("shared", "new") and not turns.is_awaited_by_others("nothing", "new")
    assert turns.is_awaited_by_others("shared", "stranger")  # who no longer waits, or never did
    assert not turns.record_leaving("shared", "busy") and not turns.record_leaving("shared", "stranger")
    assert not turns.is_awaited_by_others("shared", "new") and turns.record_leaving("shared", "new")


def test_a_class_refuses_what_is_long_beyond_a_share_or_too_much(turns, in_class):
    with pytest.raises(ModeError, match=r"estimated to take about 2 min 0 s; the limit of this server is 30 s"):
        turns.admit("one", lambda: 120.0, [])
    for job in "ab":
        assert turns.admit("one", lambda: 12.0, []) == 12.0
        turns.record_waiting(job, "one", 12.0, is_new=True)
    with pytest.raises(ModeError, match="2 jobs in the queue, which is your share"):
        turns.admit("one", lambda: 1.0, ["a", "b"])
    turns.record_waiting("c", "two", is_new=True)
    turns.record_waiting("c", "one")  # what another session asked for is no part of it
    turns.record_end("a")
    assert turns.admit("one", lambda: 1.0, ["b"]) == 1.0
    with pytest.raises(ModeError, match="The class is busy for about 40 min 0 s: 200 jobs wait"):
        turns.admit("three", lambda: 1.0, ["b"] * 200)


def test_elsewhere_nothing_is_refused(turns):
    assert turns.admit("one", lambda: 1e6, ["a"] * 500) == 1e6


def test_sixty_equal_presses_make_one_job_that_all_see_finish(runner, store, child, tiny_benchmark, in_class):
    child("pass")
    jobs, names = [], [f"session {number}" for number in range(60)]
    presses = [
        threading.Thread(
            target=lambda name=name: jobs.append(
                runner.submit(plain_recipe(tiny_benchmark), benchmark=tiny_benchmark, session=name)
            )
        )
        for name in names
    ]
    child(SLEEP)
    for press in presses:
        press.start()
    for press in presses:
        press.join()
    assert len({job.id for job in jobs}) == 1 and len(jobs) == 60
    assert len(list((store.root / "jobs").iterdir())) == 1
    assert all(runner.list_awaited_jobs(name) == {jobs[0].id} for name in names)
    wait_until(lambda: runner.get(jobs[0].id).state == State.RUNNING)
    for name in names[:59]:
        runner.cancel(jobs[0].id, name)
    assert runner.get(jobs[0].id).state == State.RUNNING
    runner.cancel(jobs[0].id, names[59])
    assert wait_for_end(runner, jobs[0].id).state == State.CANCELLED


def test_a_merge_over_the_limit_is_refused_before_it_is_queued(runner, store, child, tiny_benchmark, in_class):
    child(SLEEP)
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(
            "merging.study.runs.estimate.DEFAULT_SPEEDS",
            dict.fromkeys(("reading", "merging", "adapting", "evaluating"), 1),
        )
        with pytest.raises(ModeError, match="the limit of this server is 30 s"):
            runner.submit(plain_recipe(tiny_benchmark), benchmark=tiny_benchmark, session="one")
    assert runner.list_jobs() == [] and not (store.root / "jobs").exists()
    with pytest.raises(ModeError, match="30 s"):
        runner.submit_measurement("task_counts", session="one")


def test_where_two_compute_at_the_same_time_the_third_starts_when_the_first_place_is_free(clock):
    turns = Turns(clock, max_running=2)
    for job, seconds in (("a", 9.0), ("b", 4.0), ("c", 3.0), ("d", 5.0)):
        turns.record_waiting(job, "", seconds, is_new=True)
    assert [turns.estimate_wait(job, "abcd") for job in "abcd"] == [0.0, 0.0, 4.0, 7.0]
    turns.record_start("a")
    turns.record_start("b")
    clock.now += 1
    assert [turns.estimate_wait(job, "cd") for job in "cd"] == [3.0, 6.0]
