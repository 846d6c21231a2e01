"""Fetching a published experiment as a job: progress in bytes, cancel, pause, a busy Hub, and going on from there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub
from smoke_files import LARGE, add_smoke
from stand_in_jobs import wait_for_end, wait_until

from merging.base.settings import HUB_VARIABLE
from merging.study.run_queue import RunQueue
from merging.tasks.queue.job_kinds import PUBLISHED
from merging.tasks.queue.job_records import Job

SLOWLY = {"rate": 200_000.0, "port": "storage", "times": 99}  # bytes a second: a file takes some ten seconds


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub() as server:
        add_smoke(server)
        server.connect(monkeypatch, tmp_path / "home")
        yield server


def fetch(runner: RunQueue) -> Job:
    return runner.submit_command(PUBLISHED, "smoke", "Fetching smoke", ["published", "fetch", "smoke", "--yes"])


def fetching(runner: RunQueue, job_id: str) -> Job:
    """The job as soon as bytes come at a rate."""
    return wait_until(lambda: (job := runner.get(job_id)) and (not job.is_live or "/s" in job.detail) and job)


def fetched_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.rglob("blobs/*") if path.is_file())


@pytest.mark.full
def test_progress_says_bytes_rate_and_time_left_and_cancel_keeps_them(
    hub: LoopbackHub, runner: RunQueue, tmp_path: Path
) -> None:
    hub.fail(**SLOWLY)
    job = fetching(runner, fetch(runner).id)
    assert job.phase == f"Fetching from {hub.host}" and job.seconds_left is not None, job
    assert " of 3 MB, " in job.detail and "/s: " in job.detail and job.can_pause
    started = time.monotonic()
    runner.cancel(job.id)
    job = wait_for_end(runner, job.id)
    took = time.monotonic() - started
    assert job.state == "cancelled" and "are kept, and the next download goes on from there." in job.error, job
    assert took < 10, took  # about a second on an idle machine; it is killed after 2.5
    kept = fetched_bytes(tmp_path / "home")
    assert kept > 0
    hub.recover()
    assert wait_for_end(runner, runner.submit_again(job.id).id).state == "done"
    assert any(seen.range for seen in hub.requests)  # it went on within a file
    assert fetched_bytes(tmp_path / "home") > 3 * LARGE > kept


@pytest.mark.full
def test_a_paused_job_goes_on_where_it_was(hub: LoopbackHub, runner: RunQueue) -> None:
    hub.fail(**SLOWLY)
    job = fetching(runner, fetch(runner).id)
    runner.pause(job.id)
    job = wait_for_end(runner, job.id)
    assert job.state == "paused" and job.error.startswith("Paused; ") and "are kept" in job.error, job
    hub.recover()
    job = wait_for_end(runner, runner.submit_again(job.id).id)
    assert job.state == "done" and not job.error and any(seen.range for seen in hub.requests)


@pytest.mark.full
def test_a_busy_hub_pauses_the_job_and_says_so(hub: LoopbackHub, runner: RunQueue) -> None:
    hub.fail("model.safetensors", method="HEAD", times=99, status=429, headers={"Retry-After": "0"})
    job = wait_for_end(runner, fetch(runner).id)
    assert job.state == "paused" and "(HTTP 429): try again later." in job.error, job
    assert "The same command" not in job.error
    hub.recover()
    assert wait_for_end(runner, runner.submit_again(job.id).id).state == "done"


def test_a_server_that_may_not_download_says_so(hub: LoopbackHub, runner: RunQueue, monkeypatch: Any) -> None:
    monkeypatch.setenv(HUB_VARIABLE, "cached")
    job = wait_for_end(runner, fetch(runner).id)
    assert job.state == "failed" and f"{HUB_VARIABLE}=cached" in job.error and hub.requests == []


@pytest.mark.full
def test_a_job_whose_server_has_gone_is_interrupted_and_goes_on(
    hub: LoopbackHub, runner: RunQueue, store: Any, monkeypatch: Any
) -> None:
    hub.fail(**SLOWLY)
    job = fetching(runner, fetch(runner).id)
    runner.close()
    other = RunQueue(store, device="cpu")
    try:
        job = other.get(job.id)
        assert job.state == "interrupted" and "continues from there" in job.error, job
        hub.recover()
        assert wait_for_end(other, other.submit_again(job.id).id).state == "done"
    finally:
        other.close()
