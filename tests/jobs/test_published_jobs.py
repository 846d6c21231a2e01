"""Fetching a published experiment as a job: progress in bytes, cancel, pause, a busy Hub, and going on from there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub
from smoke_files import LARGE, add_smoke
from stand_in_jobs import ended, until

from merging.base.settings import HUB_SWITCH
from merging.study.runner import Runner
from merging.tasks.queue.kinds import PUBLISHED
from merging.tasks.queue.records import Job

pytestmark = pytest.mark.slow
SLOWLY = {"rate": 200_000.0, "port": "storage", "times": 99}  # bytes a second: a file takes some ten seconds


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub() as server:
        add_smoke(server)
        server.connect(monkeypatch, tmp_path / "home")
        yield server


def fetch(runner: Runner) -> Job:
    return runner.command(PUBLISHED, "smoke", "Fetching smoke", ["published", "fetch", "smoke", "--yes"])


def fetching(runner: Runner, job_id: str) -> Job:
    """The job as soon as bytes come at a rate."""
    return until(lambda: (job := runner.get(job_id)) and (not job.live or "/s" in job.detail) and job)


def fetched_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.rglob("blobs/*") if path.is_file())


def test_progress_says_bytes_rate_and_time_left_and_cancel_keeps_them(
    hub: LoopbackHub, runner: Runner, tmp_path: Path
) -> None:
    hub.fail(**SLOWLY)
    job = fetching(runner, fetch(runner).id)
    assert job.phase == f"Fetching from {hub.host}" and job.seconds_left is not None, job
    assert " of 3 MB, " in job.detail and "/s: " in job.detail and job.can_pause
    started = time.monotonic()
    runner.cancel(job.id)
    job = ended(runner, job.id)
    took = time.monotonic() - started
    assert job.state == "cancelled" and "are kept, and the next download goes on from there." in job.error, job
    assert took < 10, took  # about a second on an idle machine; it is killed after 2.5
    kept = fetched_bytes(tmp_path / "home")
    assert kept > 0
    hub.recover()
    assert ended(runner, runner.again(job.id).id).state == "done"
    assert any(seen.range for seen in hub.requests)  # it went on within a file
    assert fetched_bytes(tmp_path / "home") > 3 * LARGE > kept


def test_a_paused_job_goes_on_where_it_was(hub: LoopbackHub, runner: Runner) -> None:
    hub.fail(**SLOWLY)
    job = fetching(runner, fetch(runner).id)
    runner.pause(job.id)
    job = ended(runner, job.id)
    assert job.state == "paused" and job.error.startswith("Paused; ") and "are kept" in job.error, job
    hub.recover()
    job = ended(runner, runner.again(job.id).id)
    assert job.state == "done" and not job.error and any(seen.range for seen in hub.requests)


def test_a_busy_hub_pauses_the_job_and_says_so(hub: LoopbackHub, runner: Runner) -> None:
    hub.fail("model.safetensors", method="HEAD", times=99, status=429, headers={"Retry-After": "0"})
    job = ended(runner, fetch(runner).id)
    assert job.state == "paused" and "(HTTP 429): try again later." in job.error, job
    assert "The same command" not in job.error
    hub.recover()
    assert ended(runner, runner.again(job.id).id).state == "done"


def test_a_server_that_may_not_download_says_so(hub: LoopbackHub, runner: Runner, monkeypatch: Any) -> None:
    monkeypatch.setenv(HUB_SWITCH, "cached")
    job = ended(runner, fetch(runner).id)
    assert job.state == "failed" and f"{HUB_SWITCH}=cached" in job.error and hub.requests == []


def test_a_job_whose_server_has_gone_is_interrupted_and_goes_on(
    hub: LoopbackHub, runner: Runner, store: Any, monkeypatch: Any
) -> None:
    hub.fail(**SLOWLY)
    job = fetching(runner, fetch(runner).id)
    runner.close()
    other = Runner(store, device="cpu")
    try:
        job = other.get(job.id)
        assert job.state == "interrupted" and "goes on from there" in job.error, job
        hub.recover()
        assert ended(other, other.again(job.id).id).state == "done"
    finally:
        other.close()
