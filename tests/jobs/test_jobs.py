"""The queue of child processes: order, cancel, death, restart. Most children here are stand-ins that start quickly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from merging.errors import CheckpointError, StoreError
from merging.jobs import records
from merging.jobs.records import JobFiles, ProcessId, Record, State
from merging.jobs.runner import Runner
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)
EVENT = {"phase": "Merging", "fraction": 0.25, "detail": "a tensor", "seconds_left": 3.0}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=())


@pytest.fixture(autouse=True)
def no_child_is_left():
    """Zombies count as children, so this finds them, too."""
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


@pytest.fixture
def runner(store, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    made = Runner(store, device="cpu")
    yield made
    made.close()


@pytest.fixture
def child(monkeypatch):
    """Sets the program that children run instead of a merge."""

    def use(code, event=None):
        def start(self, store_root, device):
            if event is not None:
                (self.folder / "events.jsonl").write_text(json.dumps(event) + "\n")
            with (self.folder / "log.txt").open("wb") as log:
                return subprocess.Popen([sys.executable, "-c", code], stdout=log, start_new_session=True)

        monkeypatch.setattr(JobFiles, "start", start)

    return use


def _recipe(benchmark, scaling=0.3):
    return Recipe.build("task_arithmetic", {"scaling": scaling}, [], benchmark.pretrained, benchmark.experts)


def _until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
    return found


def _ended(runner, run_id):
    return _until(lambda: (job := runner.get(run_id)) and not job.live and job)


@pytest.mark.slow
def test_a_real_merge_ends_up_in_the_store(runner, store, tiny_benchmark):
    job = runner.submit(_recipe(tiny_benchmark))
    assert runner.submit(_recipe(tiny_benchmark)).id == job.id
    done = _ended(runner, job.id)
    assert (done.state, done.error, done.fraction, done.position) == (State.DONE, "", 1.0, 0)
    assert store.run(done.subject).scores is not None
    assert runner.submit(_recipe(tiny_benchmark)).submitted == job.submitted
    events = [json.loads(line) for line in (store.root / "jobs" / job.id / "events.jsonl").read_text().splitlines()]
    assert all(0 <= event["fraction"] <= 1 for event in events)
    assert {"Reading checkpoints", "Evaluating"} <= {event["phase"] for event in events}
    store.delete(job.id)
    assert runner.jobs() == []


def test_what_is_stored_is_done_at_once(runner, store, child, tiny_benchmark):
    child("raise SystemExit('not to be started')")
    run = execute(_recipe(tiny_benchmark), store, benchmark=tiny_benchmark, device="cpu")
    job = runner.submit(_recipe(tiny_benchmark))
    assert (job.id, job.state, job.fraction) == (run.id, State.DONE, 1.0)
    assert runner.get(run.id).state == State.DONE


def test_a_run_without_scores_is_not_done_unless_it_cannot_have_any(runner, store, child, tiny_benchmark):
    child(SLEEP)
    execute(_recipe(tiny_benchmark, 0.1), store, device="cpu", evaluate=False)
    assert runner.submit(_recipe(tiny_benchmark, 0.1)).live
    bigger = replace(tiny_benchmark, image_size=32)
    execute(_recipe(tiny_benchmark, 0.2), store, benchmark=bigger, device="cpu")
    assert runner.submit(_recipe(tiny_benchmark, 0.2)).state == State.DONE


def test_progress_is_read_from_the_events(runner, store, child, tiny_benchmark):
    child(SLEEP, EVENT)
    job = runner.submit(_recipe(tiny_benchmark))
    job = _until(lambda: (found := runner.get(job.id)).state == State.RUNNING and found.phase == "Merging" and found)
    assert (job.detail, job.fraction, job.seconds_left) == ("a tensor", 0.25, 3.0)
    with (store.root / "jobs" / job.id / "events.jsonl").open("a") as file:
        file.write('{"phase": "Evaluating", "fraction": 0.5}\n{"phase": "half a li')
    assert runner.get(job.id).phase == "Evaluating"


def test_one_at_a_time_in_order(runner, child, tiny_benchmark):
    child(SLEEP)
    ids = [runner.submit(_recipe(tiny_benchmark, 0.1 * n)).id for n in range(1, 4)]
    assert [job.id for job in runner.jobs()] == ids[::-1]
    _until(lambda: runner.get(ids[0]).state == State.RUNNING)
    assert [runner.get(i).position for i in ids] == [0, 1, 2]
    runner.cancel(ids[1])
    assert [runner.get(i).state for i in ids] == [State.RUNNING, State.CANCELLED, State.QUEUED]
    assert runner.get(ids[2]).position == 1
    runner.cancel(ids[0])
    _until(lambda: runner.get(ids[2]).state == State.RUNNING)
    assert runner.get(ids[0]).state == State.CANCELLED
    runner.cancel(ids[0])  # has ended: nothing happens
    assert runner.get(ids[2]).state == State.RUNNING


def test_a_deaf_child_is_killed_in_three_seconds(runner, child, store, tiny_benchmark, monkeypatch):
    monkeypatch.setattr(records, "PATIENCE", 0.5)
    child(STUBBORN)
    job = runner.submit(_recipe(tiny_benchmark))
    _until((store.root / "jobs" / job.id / "log.txt").exists)
    _until(lambda: "deaf" in (store.root / "jobs" / job.id / "log.txt").read_text())
    started = time.monotonic()
    runner.cancel(job.id)
    assert time.monotonic() - started < 0.2  # whoever asks does not wait
    assert _ended(runner, job.id).state == State.CANCELLED
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "code,error",
    [
        ("import os; os.kill(os.getpid(), 9)", "killed, likely because the computer ran out of memory"),
        ("import os; os.abort()", "ended by SIGABRT; see log.txt"),
        ("raise SystemExit(3)", "ended with code 3; see log.txt"),
        ("", "ended with code 0; see log.txt"),  # a child that says it is done, but there is no run
    ],
)
def test_how_a_child_dies_is_said(runner, child, tiny_benchmark, code, error):
    child(code)
    job = _ended(runner, runner.submit(_recipe(tiny_benchmark)).id)
    assert job.state == State.FAILED
    assert error in job.error


def test_a_failure_gives_the_childs_own_sentence_and_can_be_tried_again(runner, child, tiny_benchmark):
    child("raise SystemExit(1)", {"error": "Two tensors do not fit.", "code": 1})
    job = _ended(runner, runner.submit(_recipe(tiny_benchmark)).id)
    assert (job.state, job.error) == (State.FAILED, "Two tensors do not fit.")
    child(SLEEP)
    again = runner.submit(_recipe(tiny_benchmark))
    assert again.id == job.id
    assert again.live
    assert again.error == ""


def test_what_a_killed_child_left_is_swept(runner, child, store, tiny_benchmark):
    leave = f"""
import os, pathlib
pathlib.Path({str(store.root)!r}, "runs", f"tmp-{"0" * 32}-{{os.getpid()}}").mkdir(parents=True)
os.kill(os.getpid(), 9)
"""
    child(leave)
    _ended(runner, runner.submit(_recipe(tiny_benchmark)).id)
    assert list((store.root / "runs").iterdir()) == []


def test_bad_input_is_refused_at_once(runner, tiny_benchmark):
    recipe = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, {"x": "no such file.safetensors"})
    with pytest.raises(CheckpointError, match="not found"):
        runner.submit(recipe)
    assert runner.jobs() == []
    with pytest.raises(StoreError, match="There is no job"):
        runner.get("f" * 12)


def test_after_a_restart_unfinished_jobs_are_interrupted(store, child, tiny_benchmark):
    child(SLEEP)
    before = Runner(store, device="cpu")
    ids = [before.submit(_recipe(tiny_benchmark, 0.1 * n)).id for n in range(1, 3)]
    _until(lambda: before.get(ids[0]).state == State.RUNNING)
    before.close()
    after = Runner(Store(store.root, libraries=()), device="cpu")
    assert {job.id: job.state for job in after.jobs()} == dict.fromkeys(ids, State.INTERRUPTED)
    assert Recipe.from_yaml(after.get(ids[0]).recipe_yaml) == _recipe(tiny_benchmark, 0.1)
    after.dismiss(ids[0])
    assert [job.id for job in after.jobs()] == [ids[1]]


def _on_disk(store, state, owner, worker=None):
    """A job as a server that is gone has left it."""
    files = JobFiles(store.root / "jobs", "a" * 12)
    files.folder.mkdir(parents=True)
    (files.folder / "recipe.yaml").write_text("merge: ties\n")
    files._write(Record(state, "A job", "/", False, time.time(), owner, worker or ProcessId()))
    return files.job_id


def test_a_server_that_was_killed(store):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    gone = ProcessId.of(dead.pid)
    dead.wait()
    run_id = _on_disk(store, State.QUEUED, gone)
    assert Runner(store).get(run_id).state == State.INTERRUPTED
    JobFiles(store.root / "jobs", run_id).update(state=State.RUNNING, worker=gone)
    assert Runner(store).get(run_id).state == State.INTERRUPTED


def test_a_number_that_another_process_has_now_is_not_the_worker(store):
    reused = ProcessId(os.getpid(), 1.0)
    assert Runner(store).get(_on_disk(store, State.RUNNING, reused, reused)).state == State.INTERRUPTED


def test_the_child_of_a_dead_server_goes_on_and_can_be_cancelled(store):
    orphan = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        runner = Runner(store)
        run_id = _on_disk(store, State.RUNNING, ProcessId(), ProcessId.of(orphan.pid))
        assert runner.get(run_id).state == State.RUNNING
        runner.cancel(run_id)
        orphan.wait(timeout=3)
        _until(lambda: runner.get(run_id).state == State.CANCELLED)
    finally:
        orphan.kill()
        orphan.wait()


def test_the_queue_waits_for_the_child_of_a_dead_server(runner, store, child, tiny_benchmark):
    child(SLEEP)
    orphan = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        _on_disk(store, State.RUNNING, ProcessId(), ProcessId.of(orphan.pid))
        job = runner.submit(_recipe(tiny_benchmark))
        time.sleep(0.3)
        assert runner.get(job.id).state == State.QUEUED
    finally:
        orphan.kill()
        orphan.wait()
    _until(lambda: runner.get(job.id).state == State.RUNNING)


def test_damaged_job_files_are_left_out(runner, store):
    run_id = _on_disk(store, State.FAILED, ProcessId())
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
def test_a_job_of_an_earlier_version_is_read_and_kept(store, job_id, measures, kind, subject, command):
    files = JobFiles(store.root / "jobs", job_id)
    files.folder.mkdir(parents=True)
    (files.folder / "state.json").write_text(json.dumps({**EARLIER, "measures": measures}))
    for state in (State.DONE, State.FAILED):
        record = files.read()
        assert (record.kind, record.subject, record.title, record.state) == (kind, subject, "A job", state)
        words = [word.removeprefix(f"{files.folder}/") for word in files._words(record, "cpu")]
        assert words == [*command, "--device", "cpu"]
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


def test_the_child_gets_all_cores_once_and_starts_elsewhere(monkeypatch):
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", "relative")
    found = records._environment()
    assert int(found["OMP_NUM_THREADS"]) == len(os.sched_getaffinity(0))
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.path.isabs(found["MERGESCOPE_BENCHMARK"])  # noqa: PTH117


def test_a_command_is_a_job_with_its_own_words(runner, store, child):
    child("pass")
    words = ("export", "0" * 12, "--out", "/x")
    job = runner.command("export-hf", "0" * 12, "An export", words)
    assert (job.subject, job.kind, job.words) == ("0" * 12, "export-hf", words)
    files = JobFiles(store.root / "jobs", job.id)
    record = files.read()
    assert files._words(record, "cpu") == list(words)
    assert _ended(runner, job.id).state == State.DONE


@pytest.mark.parametrize("fails", [False, True])
def test_a_recipe_follows_its_command_only_if_that_is_done(runner, child, tiny_benchmark, fails):
    child("raise SystemExit(1)" if fails else "pass")
    job = runner.command("read", "a" * 12, "Reading", ["digest"], then=_recipe(tiny_benchmark))
    ended = _ended(runner, job.id)
    assert ended.state == (State.FAILED if fails else State.DONE)
    assert [job.title for job in runner.jobs() if job.kind == "merge"] == ([] if fails else ["task_arithmetic"])


def test_a_recipe_that_cannot_follow_says_why(runner, child, tmp_path):
    child("pass")
    gone = Recipe.build("ties", {}, [], str(tmp_path / "gone.safetensors"), {"a": "x"})
    job = _ended(runner, runner.command("read", "a" * 12, "Reading", ["digest"], then=gone).id)
    assert job.state == State.FAILED
    assert "gone.safetensors: not found" in job.error


def test_what_a_cancelled_export_leaves_is_removed(runner, store, child, tmp_path):
    out = tmp_path / "exports" / "model"
    child(
        f"import os, pathlib, time; there = pathlib.Path({str(out.parent)!r}, f'tmp-{'0' * 32}-{{os.getpid()}}')\n"
        "there.mkdir(parents=True); (there / 'weights').write_text('half'); time.sleep(60)"
    )
    job = runner.command("export-hf", "0" * 12, "An export", ["export", "0" * 12, "--out", str(out)])
    _until(lambda: list(out.parent.glob("*/weights")))
    runner.cancel(job.id)
    assert _ended(runner, job.id).state == State.CANCELLED
    assert list(out.parent.iterdir()) == []
