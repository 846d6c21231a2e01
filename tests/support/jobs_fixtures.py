"""Fixtures that the tests of the queue and of a class share: a store, a runner, children that do not merge."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from merging.study.run_queue import RunQueue
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import JobFiles


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
    made = RunQueue(store, device="cpu")
    yield made
    made.close()


@pytest.fixture
def child(monkeypatch):
    """Sets the program that children run instead of a merge."""

    def use(code, event=None):
        def start(self, *_):
            if event is not None:
                (self.folder / "events.jsonl").write_text(json.dumps(event) + "\n")
            with (self.folder / "log.txt").open("wb") as log:
                return subprocess.Popen([sys.executable, "-c", code], stdout=log, start_new_session=True)

        monkeypatch.setattr(JobFiles, "start", start)

    return use
