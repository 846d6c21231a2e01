"""After a server and its job were killed, the tray says so in a sentence, and a button does the work."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from daily import some_of
from fault_store import FaultStore
from nursery import ProcessForker
from page_harness import labels, press, run_until_idle, words
from stand_in_jobs import start_orphan, wait_until, write_job

from app.page_text import safe_text
from app.reading import page_data
from merging.base.files.processes import NO_PROCESS, ProcessId
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import State

STOPPED = "Mergescope or the process of this job was stopped."
SENTENCES = {
    "merge": f"{STOPPED} Nothing half-done was stored.",
    "sweep": f"{STOPPED} The points computed so far are stored.",
}


@pytest.mark.parametrize("name", some_of(SENTENCES, "merge"))
def test_the_tray_says_what_happened_and_runs_it_again(
    nursery: ProcessForker, stocked: FaultStore, environment: Mapping[str, str], open_app: Any, tiny_folder: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:  # fmt: skip
    root = stocked.copy(tmp_path / "store")
    request = next(work for work in stocked.works if work.name == name).request(root)
    monkeypatch.setattr("subprocess.Popen", nursery.popen())
    server = nursery.start(
        "serve", environment, tmp_path / "log", root=str(root), asked=[request], with_server=True,
        job={"root": str(root), "kill_at": 10},
    )  # fmt: skip
    assert server.wait() == -9
    nursery.settle()
    at = open_app("home", tiny_folder)
    assert not at.exception
    assert ":material/power_off: interrupted" in words(at) and safe_text(SENTENCES[name], 300) in words(at)
    press(at, "Resume" if name == "sweep" else "Run again")
    at = run_until_idle(at)
    assert not at.exception
    assert [job.state for job in page_data.job_queue().list_jobs()] == [State.DONE]
    assert ":material/check_circle: done" in words(at) and "Run again" not in labels(at, "button")


@pytest.mark.full
def test_the_tray_names_a_process_that_was_halted(open_app: Any, tiny_folder: Path, tmp_path: Path) -> None:
    with start_orphan() as process:
        process.send_signal(signal.SIGSTOP)
        store = Store(tmp_path / "store", libraries=())
        write_job(store, State.RUNNING, NO_PROCESS, ProcessId.from_pid(process.pid))
        at = wait_until(lambda: (at := open_app("home", tiny_folder)) and "was halted" in words(at) and at)
        assert f"Process {process.pid} was halted by a signal." in words(at)
        press(at, "Cancel")
        process.wait(60)
        assert ":material/cancel: cancelled" in words(run_until_idle(at))
