"""Jobs of another computer on the same store: it cannot be asked for its processes, only its files can be read."""

from __future__ import annotations

import os
import time

import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, wait_for_end, wait_until, write_job

from merging.base.files.processes import ProcessId
from merging.study.run_queue import RunQueue
from merging.tasks.queue import job_queue as queue
from merging.tasks.queue.job_records import EVENTS_FILE, SILENT_SECONDS, STATE_FILE, JobFiles, State

AWAY = ProcessId(os.getpid(), 1.0, "22222222")  # the number of a process that lives here


def last_written(files, seconds):
    """Let the files of a job be as old as that."""
    for name in (STATE_FILE, EVENTS_FILE):
        if (files.folder / name).exists():
            os.utime(files.folder / name, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("state", [State.RUNNING, State.QUEUED])
def test_a_job_of_another_computer_goes_on_as_long_as_its_files_change(store, state):
    runner, files = RunQueue(store), JobFiles(store.root / "jobs", write_job(store, state, AWAY, AWAY))

    def seen():
        job = runner.get(files.job_id)
        return job.state, job.is_remote, job.halted_pid

    assert seen() == (state, True, 0)
    last_written(files, 1.1 * SILENT_SECONDS)
    assert seen() == (State.INTERRUPTED, False, 0)
    files.signal_alive()
    assert seen() == (state, True, 0)
    last_written(files, 1.1 * SILENT_SECONDS)
    (files.folder / EVENTS_FILE).write_text('{"phase": "Merging"}\n', "utf-8")
    assert seen() == (state, True, 0)
    assert files.read().state == state  # whatever it reads as, its record is the other computer's


def test_the_queue_does_not_wait_for_the_job_of_another_computer(runner, store, child, tiny_benchmark):
    child(SLEEP)
    other = write_job(store, State.RUNNING, AWAY, AWAY)
    job = runner.submit(plain_recipe(tiny_benchmark))
    wait_until(lambda: runner.get(job.id).state == State.RUNNING, 10)
    assert runner.get(other).state == State.RUNNING


def test_a_job_of_another_computer_is_cancelled_there(runner, store, child, tiny_benchmark, monkeypatch):
    other = JobFiles(store.root / "jobs", write_job(store, State.RUNNING, AWAY, AWAY))
    stopped = []
    monkeypatch.setattr(queue, "stop_orphan", lambda *given: stopped.append(given))
    runner.cancel(other.job_id)
    time.sleep(0.1)  # what stops a process does so in a thread
    assert not stopped and other.is_cancelled() and other.read().state == State.RUNNING
    monkeypatch.setattr(queue, "CANCEL_POLL_SECONDS", 0.1)
    child(SLEEP)
    own = JobFiles(store.root / "jobs", runner.submit(plain_recipe(tiny_benchmark)).id)
    wait_until(lambda: runner.get(own.job_id).state == State.RUNNING)
    own.mark_cancelled()  # as the other computer does
    assert wait_for_end(runner, own.job_id).state == State.CANCELLED


def test_a_server_shows_that_it_has_its_jobs(runner, store, child, tiny_benchmark, monkeypatch):
    monkeypatch.setattr(queue, "ALIVE_SIGNAL_SECONDS", 0.1)
    child(SLEEP)
    ids = [runner.submit(plain_recipe(tiny_benchmark, 0.1 * n)).id for n in (1, 2)]
    wait_until(lambda: runner.get(ids[0]).state == State.RUNNING)
    for files in (JobFiles(store.root / "jobs", job_id) for job_id in ids):
        last_written(files, 1.1 * SILENT_SECONDS)
        wait_until(lambda files=files: not files.is_silent(), 10)
