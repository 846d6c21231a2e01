"""What is left of the queue when a server is gone: jobs that were interrupted, children that go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, child_of, on_disk, until

from merging.files.processes import ProcessId
from merging.jobs.records import JobFiles, State
from merging.jobs.runner import Runner
from merging.recipes.recipe import Recipe
from merging.runs.store import Store


def test_after_a_restart_unfinished_jobs_are_interrupted(store, child, tiny_benchmark):
    child(SLEEP)
    before = Runner(store, device="cpu")
    ids = [before.submit(plain_recipe(tiny_benchmark, 0.1 * n)).id for n in range(1, 3)]
    until(lambda: before.get(ids[0]).state == State.RUNNING)
    before.close()
    after = Runner(Store(store.root, libraries=()), device="cpu")
    assert {job.id: job.state for job in after.jobs()} == dict.fromkeys(ids, State.INTERRUPTED)
    assert Recipe.from_yaml(after.get(ids[0]).recipe_yaml) == plain_recipe(tiny_benchmark, 0.1)
    after.dismiss(ids[0])
    assert [job.id for job in after.jobs()] == [ids[1]]


def test_a_server_that_was_killed(store):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    gone = ProcessId.of(dead.pid)
    dead.wait()
    run_id = on_disk(store, State.QUEUED, gone)
    assert Runner(store).get(run_id).state == State.INTERRUPTED
    JobFiles(store.root / "jobs", run_id).update(state=State.RUNNING, worker=gone)
    assert Runner(store).get(run_id).state == State.INTERRUPTED


def test_a_number_that_another_process_has_now_is_not_the_worker(store):
    reused = ProcessId(os.getpid(), 1.0)
    assert Runner(store).get(on_disk(store, State.RUNNING, reused, reused)).state == State.INTERRUPTED


def test_the_child_of_a_dead_server_goes_on_and_can_be_cancelled(store):
    orphan = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        runner = Runner(store)
        run_id = on_disk(store, State.RUNNING, ProcessId(), ProcessId.of(orphan.pid))
        assert runner.get(run_id).state == State.RUNNING
        runner.cancel(run_id)
        orphan.wait(timeout=3)
        until(lambda: runner.get(run_id).state == State.CANCELLED)
    finally:
        orphan.kill()
        orphan.wait()


def test_the_queue_waits_for_the_child_of_a_dead_server(runner, store, child, tiny_benchmark):
    child(SLEEP)
    orphan = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        on_disk(store, State.RUNNING, ProcessId(), ProcessId.of(orphan.pid))
        job = runner.submit(plain_recipe(tiny_benchmark))
        time.sleep(0.3)
        assert runner.get(job.id).state == State.QUEUED
    finally:
        orphan.kill()
        orphan.wait()
    until(lambda: runner.get(job.id).state == State.RUNNING)


def test_damaged_job_files_are_left_out(runner, store):
    run_id = on_disk(store, State.FAILED, ProcessId())
    assert [job.id for job in runner.jobs()] == [run_id]
    for text in ("", "[]", '{"state": "odd"}', "{"):
        (store.root / "jobs" / run_id / "state.json").write_text(text)
        assert runner.jobs() == []


EARLIER = {  # state.json as versions wrote it whose jobs had no kind
    "state": "done", "title": "A job", "base": "/", "need_model": False, "submitted": 1.0,
    "owner": {"pid": 0, "born": 0.0}, "worker": {"pid": 0, "born": 0.0}, "started": 2.0, "finished": 3.0, "error": "",
    "words": [], "benchmark": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("job_id", "measures", "kind", "subject", "command"),
    [
        ("a" * 12, "", "merge", "a" * 12, ["run", "recipe.yaml", "--base", "/"]),
        ("drift-" + "a" * 12, "drift", "drift", "a" * 12, ["measure", "drift", "a" * 12]),
        ("task_counts-", "task_counts", "task_counts", "", ["measure", "task_counts"]),
        ("sweep-" + "b" * 12, "sweep", "sweep", "b" * 12, ["sweep", "--stored", "b" * 12, "--pause-file", "pause"]),
    ],
)
def test_a_job_of_an_earlier_version_is_read_and_kept(store, monkeypatch, job_id, measures, kind, subject, command):
    files = JobFiles(store.root / "jobs", job_id)
    files.folder.mkdir(parents=True)
    (files.folder / "state.json").write_text(json.dumps({**EARLIER, "measures": measures}))
    for state in (State.DONE, State.FAILED):
        record = files.read()
        assert (record.kind, record.subject, record.title, record.state) == (kind, subject, "A job", state)
        words = [word.removeprefix(f"{files.folder}/") for word in child_of(files, store, monkeypatch)[0]]
        assert words[1 : words.index("--events")] == ["-m", "merging", *command, "--device", "cpu"]
        files.update(state=State.FAILED)  # writes the names of this version
    job = Runner(store).get(job_id)
    assert (job.kind, job.subject, job.submitted, job.finished) == (kind, subject, 1.0, 3.0)


def test_an_export_of_an_earlier_version_keeps_its_command(store):
    files = JobFiles(store.root / "jobs", "export-hf-" + "a" * 12)
    files.folder.mkdir(parents=True)
    plain = {**EARLIER, "measures": "export-hf", "words": ["export", "a" * 12, "--out", "/x"]}
    (files.folder / "state.json").write_text(json.dumps(plain))
    (job,) = Runner(store).jobs()
    assert (job.kind, job.subject, job.words) == ("export-hf", "a" * 12, ("export", "a" * 12, "--out", "/x"))
