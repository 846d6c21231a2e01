"""The queue on a full disk: a job is recorded whole or refused, how one ended is known, and the queue goes on."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import FULL, contents, count, fail_writing
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, start_orphan, wait_for_end, wait_until, write_job

from merging.base.errors import StoreError
from merging.base.files.processes import ProcessId
from merging.base.progress import Progress
from merging.cli.main import main
from merging.cli.output import Events
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import open_checkpoint
from merging.study.run_queue import RunQueue
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue import job_records
from merging.tasks.queue.job_records import JobFiles, State

Child = Callable[[str], None]


def test_a_job_is_recorded_whole_or_refused(tmp_path: Path) -> None:
    files = JobFiles(tmp_path / "store" / "jobs", "a" * 12)

    def create() -> None:
        files.create("merge: ties\n", title="A job", base=tmp_path, subject="a" * 12)

    refusals = 0
    for number in range(1, len(count(tmp_path, create)) + 1):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        refused = ""
        with fail_writing(tmp_path, FULL, number):
            try:
                create()
            except StoreError as error:
                refused = str(error)
        if refused:
            assert re.match(r"The disk is full .*: The job was not", refused)
            assert [path for path in contents(tmp_path) if "a" * 12 in path] == [] and files.read() is None
        else:  # the last sync failed, after the job was there
            assert files.read() is not None
        refusals += bool(refused)
    assert refusals >= 5
    create()
    record = files.read()
    assert record is not None and record.state == State.QUEUED


def test_every_state_reaches_the_user_though_the_disk_takes_none(
    runner: RunQueue, child: Child, tmp_path: Path, tiny_benchmark: Benchmark
) -> None:
    jobs, go = runner.store.root / "jobs", tmp_path / "go"
    child(f"import pathlib, sys, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\nsys.exit(3)")
    for number in (1, 2):
        go.unlink(missing_ok=True)
        job = runner.submit(plain_recipe(tiny_benchmark, 0.1 * number))
        wait_until(lambda job=job: runner.get(job.id).state == State.RUNNING)
        with fail_writing(jobs):
            go.touch()
            assert wait_for_end(runner, job.id).state == State.FAILED
            assert "ended with code 3" in runner.get(job.id).error
        assert JobFiles(jobs, job.id).read() == JobFiles(jobs, job.id).read()
    with fail_writing(jobs), pytest.raises(StoreError, match="disk is full"):
        runner.submit(plain_recipe(tiny_benchmark, 0.3))
    child(SLEEP)
    live = runner.submit(plain_recipe(tiny_benchmark, 0.4))
    wait_until(lambda: runner.get(live.id).state == State.RUNNING)  # the queue has survived


def test_the_states_of_a_job_have_room_on_a_disk_that_has_become_full(
    runner: RunQueue, child: Child, tmp_path: Path, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server says of a job while the disk is full, the next one says as well."""
    jobs, go = runner.store.root / "jobs", tmp_path / "go"
    child(f"import pathlib, sys, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\nsys.exit(3)")
    start, told = JobFiles.start, []

    def on_a_disk_that_fills(files: JobFiles, *how: Any) -> Any:
        told.append(disk.enter_context(fail_writing(jobs, in_place=True)))
        return start(files, *how)

    monkeypatch.setattr(JobFiles, "start", on_a_disk_that_fills)
    with contextlib.ExitStack() as disk:
        job = runner.submit(plain_recipe(tiny_benchmark))
        files = JobFiles(jobs, job.id)
        wait_until(lambda: on_the_disk(files) == State.RUNNING)
        go.touch()
        said = wait_for_end(runner, job.id)
        assert told and any(call.startswith("open .state.json") for call in told[0].calls)  # which failed
    assert said.state == State.FAILED and on_the_disk(files) == State.FAILED
    later = RunQueue(runner.store, device="cpu")
    assert (later.get(job.id).state, later.get(job.id).error) == (said.state, said.error)
    later.close()
    assert sorted(path.name for path in files.folder.iterdir()) == ["control", "recipe.yaml", "state.json"]


def on_the_disk(files: JobFiles) -> str:
    """The state that other servers read."""
    return str(json.loads((files.folder / "state.json").read_bytes())["state"])


def test_what_no_disk_kept_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store", libraries=())
    with start_orphan() as gone:
        owner = ProcessId.from_pid(gone.pid)
    files = JobFiles(store.root / "jobs", write_job(store, State.QUEUED, owner))
    runner = RunQueue(store, device="cpu")
    assert runner.get(files.job_id).error == "Mergescope was stopped before this job's turn came."
    monkeypatch.setattr(job_records, "free_bytes", lambda folder: 100)
    assert "is not known" in runner.get(files.job_id).error
    (files.folder / "log.txt").touch()  # it had begun
    assert "turn" not in runner.get(files.job_id).error and "not known" not in runner.get(files.job_id).error
    runner.close()


def test_a_child_that_could_write_nothing_is_explained(
    runner: RunQueue, child: Child, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_records, "free_bytes", lambda folder: 100)
    child("raise SystemExit(1)")
    job = wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert (job.state, job.error.split(".")[0]) == (State.FAILED, "The disk that holds the runs is full")


def test_a_log_that_cannot_be_opened_is_a_sentence(
    runner: RunQueue, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = JobFiles.start

    def on_a_full_disk(files: JobFiles, *how: Any) -> Any:
        with fail_writing(files.folder):
            return start(files, *how)

    monkeypatch.setattr(JobFiles, "start", on_a_full_disk)
    job = wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert job.state == State.FAILED and "The log of the job was not written" in job.error
    assert str(runner.store.root) not in job.error  # no private path


def test_progress_that_cannot_be_written_does_not_stop_the_work(tmp_path: Path) -> None:
    events = Events(tmp_path / "events.jsonl")
    with fail_writing(tmp_path):
        events(Progress("Merging", 1, 2, None))
    events(Progress("Evaluating", 2, 2, None))
    assert [line for line in (tmp_path / "events.jsonl").read_text("utf-8").splitlines() if "Evaluating" in line]


def test_a_half_written_event_does_not_hide_the_failure(tmp_path: Path) -> None:
    files = JobFiles(tmp_path, "a" * 12)
    files.create("", title="", base=tmp_path, subject="a" * 12)
    events = files.folder / "events.jsonl"
    events.write_text('{"phase": "Mer', "utf-8")
    assert main(["run", str(tmp_path / "no.yaml"), "--events", str(events), "--store", str(tmp_path)]) == 1
    assert "no.yaml" in files.read_last_event()["error"]


def test_caches_that_cannot_be_kept_cost_only_time(
    tmp_path: Path, tiny_benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store", libraries=())
    reference = tiny_benchmark.pretrained
    with fail_writing(store.root / "digests"), fail_writing(store.root / "locks"):
        assert DIGESTS.store(store.root, open_checkpoint(reference)) == open_checkpoint(reference).digest
        assert main(["digest", reference, "--store", str(store.root)]) == 0
        run = execute(plain_recipe(tiny_benchmark), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert run.has_scores and not (store.root / "digests").exists()
    capsys.readouterr()
    expert = f"flags={tiny_benchmark.experts['flags']}"
    with fail_writing(store.root):
        code = main(["fit", f"--pretrained={reference}", f"--expert={expert}", "--keep", "--store", str(store.root)])
    shown = capsys.readouterr()
    assert code == 1 and "All 32 tensors fit" in shown.out and "The fit report was not written" in shown.err


def test_times_of_a_clock_that_was_set_back(runner: RunQueue, child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for ever, nothing that lasts is negative, and jobs stay in some order."""
    child("pass")
    hours = iter(range(1000, 0, -1))
    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    for subject in ("a", "b"):
        job = wait_for_end(runner, runner.submit_command("digest", subject, subject, ["digest"]).id)
        assert job.state == State.DONE and (job.seconds_left or 0) >= 0
    assert len(runner.list_jobs()) == 2
