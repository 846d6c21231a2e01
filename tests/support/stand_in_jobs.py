"""Stand-ins for the children of the queue, and waiting for what they do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from merging.base.files.processes import NO_PROCESS
from merging.tasks.queue.job_records import JobFiles

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)
START = JobFiles.start  # which fixtures replace
EVENT = {"phase": "Merging", "fraction": 0.25, "detail": "a tensor", "seconds_left": 3.0}
LEAVE = (
    "import sys; from pathlib import Path; from merging.base.files import atomic; "
    "print(atomic.make_temporary(Path({!r})))"
)


def make_abandoned_folder(root):
    """A temporary folder in ``root`` whose writer has ended."""
    said = subprocess.run([sys.executable, "-c", LEAVE.format(str(root))], capture_output=True, text=True, check=True)
    return Path(said.stdout.strip())


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
    return found


def wait_for_end(runner, run_id):
    return wait_until(lambda: (job := runner.get(run_id)) and not job.is_live and job)


def write_job(store, state, owner, worker=None):
    """A job as a server that is gone has left it."""
    files = JobFiles(store.root / "jobs", "a" * 12)
    files.create("merge: ties\n", title="A job", base=Path("/"), subject="a" * 12)
    files.update(state=state, owner=owner, worker=worker or NO_PROCESS)
    return files.job_id


@contextlib.contextmanager
def start_orphan():
    """A process whose server is gone."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def child_command(files, store, monkeypatch):
    """The command of the child that would be started for a job, and its environment."""
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", lambda command, **options: (command, options["env"]))
        return START(files, store.root, "cpu")
