"""What is left of the queue when a server is gone: jobs that were interrupted, children that go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, start_orphan, wait_for_end, wait_until, write_job

from merging.base.errors import StoreError
from merging.base.files.atomic import make_temporary
from merging.base.files.processes import NO_PROCESS, ProcessId, this_host
from merging.base.files.records import RESERVE_FILES
from merging.recipes.recipe import Recipe
from merging.study.run_queue import RunQueue
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import JobFiles, State


def test_after_a_restart_unfinished_jobs_are_interrupted(store, child, tiny_benchmark):
    child(SLEEP)
    before = RunQueue(store, device="cpu")
    ids = [before.submit(plain_recipe(tiny_benchmark, 0.1 * n)).id for n in range(1, 3)]
    wait_until(lambda: before.get(ids[0]).state == State.RUNNING)
    before.close()
    after = RunQueue(Store(store.root, libraries=()), device="cpu")
    assert {job.id: job.state for job in after.list_jobs()} == dict.fromkeys(ids, State.INTERRUPTED)
    assert Recipe.from_yaml(after.get(ids[0]).recipe_yaml) == plain_recipe(tiny_benchmark, 0.1)
    after.dismiss(ids[0])
    assert [job.id for job in after.list_jobs()] == [ids[1]]


def test_a_server_that_was_killed(store):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    gone = ProcessId.from_pid(dead.pid)
    dead.wait()
    run_id = write_job(store, State.QUEUED, gone)
    room = [store.root / "jobs" / run_id / name for name in RESERVE_FILES]
    assert all(path.exists() for path in room)
    assert RunQueue(store).get(run_id).state == State.INTERRUPTED
    assert not any(path.exists() for path in room)
    JobFiles(store.root / "jobs", run_id).update(state=State.RUNNING, worker=gone)
    assert RunQueue(store).get(run_id).state == State.INTERRUPTED


def test_a_number_that_another_process_has_now_is_not_the_worker(store):
    reused = ProcessId(os.getpid(), 1.0, this_host())
    assert RunQueue(store).get(write_job(store, State.RUNNING, reused, reused)).state == State.INTERRUPTED


def test_the_child_of_a_dead_server_goes_on_and_can_be_cancelled(store):
    with start_orphan() as process:
        runner = RunQueue(store)
        run_id = write_job(store, State.RUNNING, NO_PROCESS, ProcessId.from_pid(process.pid))
        assert runner.get(run_id).state == RunQueue(store).get(run_id).state == State.RUNNING
        assert all((store.root / "jobs" / run_id / name).exists() for name in RESERVE_FILES)  # it will be cancelled
        runner.cancel(run_id)
        process.wait(timeout=60)
        wait_until(lambda: runner.get(run_id).state == State.CANCELLED)


def test_a_child_whose_server_died_before_it_could_note_it_is_known_by_its_own_word(store):
    with start_orphan() as process:
        run_id = write_job(store, State.QUEUED, NO_PROCESS)
        assert RunQueue(store).get(run_id).state == State.INTERRUPTED
        events = store.root / "jobs" / run_id / "events.jsonl"
        events.write_text(json.dumps({"worker": asdict(ProcessId.from_pid(process.pid))}) + "\n")
        assert RunQueue(store).get(run_id).state == State.RUNNING
    assert RunQueue(store).get(run_id).state == State.INTERRUPTED


@pytest.mark.parametrize(
    ("kind", "last", "state", "sentence"),
    [
        ("drift", {"code": 0}, State.DONE, ""),
        ("drift", {"code": 130}, State.CANCELLED, ""),
        ("drift", {"code": 1, "error": "Two tensors do not fit."}, State.FAILED, "Two tensors do not fit."),
        ("sweep", {"code": 75}, State.PAUSED, ""),
        (
            "sweep",
            {"code": 75, "error": "The workers at tls://a are gone."},
            State.PAUSED,
            "The workers at tls://a are",
        ),
        ("drift", {"code": 75, "error": "The workers are gone."}, State.PAUSED, "The workers are gone."),
        ("sweep", {"phase": "Point 1 of 3"}, State.INTERRUPTED, "The points computed so far are stored."),
        ("drift", {"phase": "Merging"}, State.INTERRUPTED, "Nothing half-done was stored."),
        ("merge", {"code": 75, "error": "Nothing is kept."}, State.PAUSED, "Nothing is kept."),
        ("merge", {"code": 0}, State.FAILED, "its run is not stored"),  # and was not deleted: it would be done then
    ],
)
def test_how_a_job_ended_that_outlived_its_server(store, kind, last, state, sentence):
    files = JobFiles(store.root / "jobs", "a" * 12)
    files.create("", title="A job", base=Path("/"), subject="a" * 12, kind=kind)
    files.update(state=State.RUNNING, owner=NO_PROCESS, started=1.0)
    (files.folder / "events.jsonl").write_text(json.dumps(last) + "\n")
    job = RunQueue(store).get("a" * 12)
    assert job.state == state and sentence in job.error and bool(sentence) == bool(job.error)


def test_what_should_follow_a_command_is_not_forgotten(store):
    files = JobFiles(store.root / "jobs", "read-x")
    files.create("merge: ties\n", title="Reading", base=Path("/"), subject="x", kind="read", words=("digest",))
    files.update(state=State.RUNNING, owner=NO_PROCESS, started=1.0)
    (files.folder / "events.jsonl").write_text('{"code": 0}\n')
    job = RunQueue(store).get("read-x")
    assert (job.state, job.error) == (
        State.INTERRUPTED,
        "Mergescope was stopped before it could submit the recipe that follows.",
    )


def test_the_queue_waits_for_the_child_of_a_dead_server_unless_it_is_halted(runner, store, child, tiny_benchmark):
    child(SLEEP)
    with start_orphan() as process:
        other = write_job(store, State.RUNNING, NO_PROCESS, ProcessId.from_pid(process.pid))
        job = runner.submit(plain_recipe(tiny_benchmark))
        time.sleep(0.3)
        assert runner.get(job.id).state == State.QUEUED
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: runner.get(job.id).state == State.RUNNING)
        assert (runner.get(other).state, runner.get(other).halted_pid) == (State.RUNNING, process.pid)


def test_a_job_in_the_queue_of_a_server_that_was_halted_can_be_had_elsewhere(runner, store, child, tiny_benchmark):
    child(SLEEP)
    with start_orphan() as process:
        run_id = runner.submit(plain_recipe(tiny_benchmark)).id
        runner.cancel(run_id)
        wait_for_end(runner, run_id)
        JobFiles(store.root / "jobs", run_id).update(state=State.QUEUED, owner=ProcessId.from_pid(process.pid))
        assert runner.submit(plain_recipe(tiny_benchmark)).state == State.QUEUED
        assert runner.get(run_id).position == 0  # it is the other server's
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: runner.get(run_id).state == State.INTERRUPTED)
        runner.submit(plain_recipe(tiny_benchmark))
        wait_until(lambda: runner.get(run_id).state == State.RUNNING)


def test_another_server_cancels(runner, store, child, tiny_benchmark):
    child(SLEEP)
    other = RunQueue(store, device="cpu")
    ids = [runner.submit(plain_recipe(tiny_benchmark, 0.1 * n)).id for n in (1, 2)]
    wait_until(lambda: runner.get(ids[0]).state == State.RUNNING)
    JobFiles(store.root / "jobs", ids[1]).mark_cancelled()
    other.cancel(ids[0])
    assert [wait_for_end(runner, run_id).state for run_id in ids] == [State.CANCELLED] * 2
    wait_until(lambda: [other.get(run_id).error for run_id in ids] == ["", ""])


def test_again(runner, store, child, tiny_benchmark):
    child("raise SystemExit(1)")
    first = wait_for_end(
        runner, runner.submit_command("export-hf", "0" * 12, "An export", ["export", "x"], benchmark="/b").id
    )
    child(SLEEP)
    job = runner.submit_again(first.id)
    assert job.is_live and runner.submit_again(first.id).submitted == job.submitted
    assert (job.words, job.title, job.benchmark, job.error) == (("export", "x"), "An export", "/b", "")
    with pytest.raises(StoreError, match="There is no job"):
        runner.submit_again("f" * 12)


def test_a_job_that_another_server_was_first_to_submit_is_not_replaced(store):
    mine, theirs = (JobFiles(store.root / "jobs", "a" * 12) for _ in range(2))
    about = {"title": "A job", "base": Path("/"), "subject": "a" * 12}
    assert theirs.create("merge: ties\n", **about)
    first = theirs.read()
    assert not mine.create("merge: lot\n", **about)
    assert (mine.recipe_yaml(), mine.read()) == ("merge: ties\n", first)
    assert mine.create("merge: lot\n", **about, earlier=first)
    assert mine.recipe_yaml() == "merge: lot\n"
    assert [path.name for path in (store.root / "jobs").iterdir()] == ["a" * 12]


def test_a_clock_that_is_set_back_kills_nobody(store, monkeypatch):
    with start_orphan() as process:
        run_id = write_job(store, State.RUNNING, NO_PROCESS, ProcessId.from_pid(process.pid))
        temporary = make_temporary(store.root / "runs")
        before = psutil.boot_time()
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda: before - 3600.0)
        assert psutil.boot_time() == before - 3600.0
        assert RunQueue(store).get(run_id).state == State.RUNNING
        assert temporary.exists()


def test_damaged_job_files_are_left_out(runner, store):
    run_id = write_job(store, State.FAILED, NO_PROCESS)
    assert [job.id for job in runner.list_jobs()] == [run_id]
    for text in ("", "[]", '{"state": "odd"}', "{"):
        (store.root / "jobs" / run_id / "state.json").write_text(text)
        assert runner.list_jobs() == []
