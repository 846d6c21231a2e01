"""Stand-ins for the children of the queue, and waiting for what they do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from merging.jobs.records import JobFiles, ProcessId

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)
START = JobFiles.start  # which fixtures replace
EVENT = {"phase": "Merging", "fraction": 0.25, "detail": "a tensor", "seconds_left": 3.0}


def until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
    return found


def ended(runner, run_id):
    return until(lambda: (job := runner.get(run_id)) and not job.live and job)


def on_disk(store, state, owner, worker=None):
    """A job as a server that is gone has left it."""
    files = JobFiles(store.root / "jobs", "a" * 12)
    files.create("merge: ties\n", title="A job", base=Path("/"), subject="a" * 12)
    files.update(state=state, owner=owner, worker=worker or ProcessId())
    return files.job_id


def child_of(files, store, monkeypatch):
    """The command of the child that would be started for a job, and its environment."""
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", lambda command, **options: (command, options["env"]))
        return START(files, store.root, "cpu")
