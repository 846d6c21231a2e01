"""Several jobs at a time, which share the workers of a scheduler. Their children are stand-ins that start quickly."""

from __future__ import annotations

import os
import time

import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import LEAVE, SLEEP, start_orphan, wait_for_end, wait_until, write_job

from merging.base import settings
from merging.base.errors import StoreError
from merging.base.files.processes import NO_PROCESS, ProcessId
from merging.study.run_queue import RunQueue
from merging.tasks.queue.child_process import child_environment
from merging.tasks.queue.job_records import JobFiles, State


@pytest.fixture
def several(store, child, monkeypatch, tiny_folder):
    """Gives a runner of two jobs at a time."""
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    monkeypatch.setenv(settings.WORKERS_VARIABLE, "tls://far:8786")
    monkeypatch.setenv(settings.JOBS_VARIABLE, "2")
    child(SLEEP)
    made = RunQueue(store, device="cpu")
    yield made
    made.close()


def submitted(runner, benchmark, count, **said):
    return [runner.submit(plain_recipe(benchmark, 0.1 * n), **said).id for n in range(1, count + 1)]


def running(runner, *ids):
    return wait_until(lambda: {job.id for job in runner.list_jobs() if job.state == State.RUNNING} == set(ids), 10)


@pytest.mark.parametrize(
    ("spec", "written", "count"),
    [
        ("", "", 1),
        ("", "3", 1),
        ("8", "", 1),
        ("8", "3", 1),  # a pool of this machine is one job's
        ("gpus", "3", 1),
        ("tls://far:8786", "", 4),
        ("/shared/scheduler.json", "9", 9),
        ("lab.pool:open", "", 1),
        ("lab.pool:open", "3", 3),
    ],
)
def test_only_jobs_that_share_workers_run_at_the_same_time(monkeypatch, spec, written, count):
    monkeypatch.setenv(settings.WORKERS_VARIABLE, spec)
    monkeypatch.setenv(settings.JOBS_VARIABLE, written)
    assert settings.max_running_jobs() == count


@pytest.mark.parametrize("written", ["0", "65", "two", "-1", "1.5"])
def test_a_wrong_number_of_jobs_is_refused_in_a_sentence(monkeypatch, written):
    monkeypatch.setenv(settings.JOBS_VARIABLE, written)
    with pytest.raises(StoreError, match=f"MERGESCOPE_JOBS says how many .* 1 to 64; got '{written}'. Set another"):
        settings.max_running_jobs()


def test_two_run_and_the_third_takes_the_place_of_the_one_that_ends(several, tiny_benchmark):
    ids = submitted(several, tiny_benchmark, 4)
    running(several, *ids[:2])
    assert [several.get(job_id).position for job_id in ids] == [0, 0, 1, 2]
    assert several.submit(plain_recipe(tiny_benchmark, 0.1)).id == ids[0]  # it is one job
    several.cancel(ids[0])
    running(several, ids[1], ids[2])
    assert several.get(ids[0]).state == State.CANCELLED
    several.dismiss(ids[0])
    several.dismiss(ids[1])  # it runs: nothing happens
    assert {job.id for job in several.list_jobs()} == set(ids[1:])
    several.close()
    assert {job.state for job in several.list_jobs()} == {State.INTERRUPTED}


def test_pause_asks_the_one_that_was_meant(several, store, tiny_benchmark):
    sweeps = [several.submit_sweep(digit * 12, "A sweep").id for digit in "abc"]
    running(several, *sweeps[:2])
    several.pause(sweeps[1])
    several.pause(sweeps[2])
    assert [(store.root / "jobs" / job_id / "pause").exists() for job_id in sweeps] == [False, True, False]
    assert several.get(sweeps[2]).state == State.PAUSED


def test_a_job_that_ends_leaves_the_folders_of_those_that_run(several, child, store, tiny_benchmark):
    child(LEAVE.format(str(store.root / "runs")) + "; import time; time.sleep(60)")
    ids = submitted(several, tiny_benchmark, 2)
    running(several, *ids)
    wait_until(lambda: len(list((store.root / "runs").glob("*"))) == 2)
    several.cancel(ids[0])
    assert wait_for_end(several, ids[0]).state == State.CANCELLED
    assert len(list((store.root / "runs").glob("*"))) == 1 and several.get(ids[1]).state == State.RUNNING


def test_the_child_of_a_dead_server_takes_a_place(several, store, tiny_benchmark):
    with start_orphan() as process:
        other = write_job(store, State.RUNNING, NO_PROCESS, ProcessId.from_pid(process.pid))
        ids = submitted(several, tiny_benchmark, 2)
        running(several, other, ids[0])
        time.sleep(0.3)
        assert several.get(ids[1]).state == State.QUEUED
    running(several, *ids)


def test_two_servers_on_one_store_share_the_places_and_never_compute_the_same(several, store, tiny_benchmark):
    other = RunQueue(store, device="cpu")
    try:
        ids = submitted(several, tiny_benchmark, 2)
        running(several, *ids)
        third = other.submit(plain_recipe(tiny_benchmark, 0.3)).id
        assert other.submit(plain_recipe(tiny_benchmark, 0.1)).state == State.RUNNING
        time.sleep(0.7)
        assert other.get(third).state == State.QUEUED
        several.cancel(ids[1])
        running(other, ids[0], third)
    finally:
        other.close()


def test_what_is_timed_computes_alone(several, tiny_benchmark):
    (first,) = submitted(several, tiny_benchmark, 1)
    running(several, first)
    timed = several.submit_measurement("method_times").id
    last = several.submit(plain_recipe(tiny_benchmark, 0.9)).id
    time.sleep(1.2)
    assert {several.get(job_id).state for job_id in (timed, last)} == {State.QUEUED}
    several.cancel(first)
    running(several, timed)
    time.sleep(1.2)
    assert several.get(last).state == State.QUEUED
    several.cancel(timed)
    running(several, last)


def test_sessions_in_turn_each_have_a_place(several, tiny_benchmark):
    first = submitted(several, tiny_benchmark, 3, session="one")
    running(several, *first[:2])
    second = several.submit(plain_recipe(tiny_benchmark, 0.9), session="two").id
    assert [several.get(job_id).position for job_id in (second, first[2])] == [1, 2]
    several.cancel(first[0])
    running(several, first[1], second)


def test_each_of_several_jobs_has_its_part_of_the_cores(several, child, tiny_benchmark, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    threads = [child_environment("", jobs)["OMP_NUM_THREADS"] for jobs in (1, 2, 3, 9)]
    assert threads == ["8", "4", "2", "1"]
    asked = []
    start = JobFiles.start
    monkeypatch.setattr(JobFiles, "start", lambda self, *given: asked.append(given[-1]) or start(self, *given))
    (first,) = submitted(several, tiny_benchmark, 1)
    running(several, first)
    running(several, first, several.submit(plain_recipe(tiny_benchmark, 0.9)).id)
    assert asked == [1, 2]
