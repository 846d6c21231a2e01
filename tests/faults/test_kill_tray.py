"""After a server and its job were killed, the tray says so in a sentence, and a button does the work."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fault_store import FaultStore
from nursery import Nursery
from page_harness import finish, labels, press, words
from stand_in_jobs import on_disk, orphan, until

from app.reading import data
from app.text import safe_text
from merging.base.files.processes import NOBODY, ProcessId
from merging.study.runs.store import Store
from merging.tasks.queue.records import State

pytestmark = pytest.mark.slow
STOPPED = "Mergescope or the process of this job was stopped."
SENTENCES = {
    "merge": f"{STOPPED} Nothing half-done was kept.",
    "sweep": f"{STOPPED} The points computed so far are kept.",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_tray_says_what_happened_and_runs_it_again(
    nursery: Nursery, stocked: FaultStore, environment: Mapping[str, str], open_app: Any, tiny_folder: Path,
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
    at = finish(at)
    assert not at.exception
    assert [job.state for job in data.runner().jobs()] == [State.DONE]
    assert ":material/check_circle: done" in words(at) and "Run again" not in labels(at, "button")


def test_the_tray_names_a_process_that_was_halted(open_app: Any, tiny_folder: Path, tmp_path: Path) -> None:
    with orphan() as process:
        process.send_signal(signal.SIGSTOP)
        store = Store(tmp_path / "store", libraries=())
        on_disk(store, State.RUNNING, NOBODY, ProcessId.of(process.pid))
        at = until(lambda: (at := open_app("home", tiny_folder)) and "was halted" in words(at) and at)
        assert f"Process {process.pid} was halted by a signal." in words(at)
        press(at, "Cancel")
        process.wait(60)
        assert ":material/cancel: cancelled" in words(finish(at))
