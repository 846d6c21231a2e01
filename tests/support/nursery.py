"""A process that has imported everything and forks, so that a test can start and kill many processes quickly.

The test's side is ``ProcessForker``; the other side is this file run as a program, which takes one JSON request a line.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import IO, Any

import psutil
from stages import ProcessStages

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36


class ForkedProcess:
    """A forked process with the part of Popen's interface that the queue of jobs uses."""

    def __init__(self, pid: int, reap: Callable[[int], int | None]) -> None:
        self.pid, self._reap = pid, reap
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative if a signal ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self._reap(self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, as soon as there is one; raises TimeoutExpired."""
        end = time.monotonic() + (60.0 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked process", timeout or 60.0)
            time.sleep(0.005)
        return code


class ProcessForker:
    """The test's side: starts processes and asks for their exit codes."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        self._lock = Lock()

    def close(self) -> None:
        """End it and wait until it is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def start(self, work: str, environment: Mapping[str, str], log: Path, **arguments: Any) -> ForkedProcess:
        """Fork a process that does ``work``, a function of this file, and prints to ``log``."""
        request = {"work": work, "environment": dict(environment), "log": str(log), "arguments": arguments}
        return ForkedProcess(int(self._ask(request)), lambda pid: self._ask({"pid": pid}))

    def popen(self, stages: Mapping[str, Any] | None = None) -> Callable[..., ForkedProcess]:
        """What can stand for ``subprocess.Popen`` where the queue starts children; they are watched by ``stages``."""

        def start(
            command: Sequence[str], *, env: Mapping[str, str], stdout: IO[bytes], **options: Any
        ) -> ForkedProcess:
            return self.start("command", env, Path(stdout.name), words=list(command[3:]), stages=stages)

        return start

    def settle(self) -> None:
        """Wait until every forked process has ended, also those whose server was killed; none may be polled after."""
        self._ask({"settle": True})

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())


# What forked processes do


def command(words: Sequence[str], stages: Mapping[str, Any] | None = None) -> int:
    """A command of the command line."""
    from merging.cli.main import main

    with count_stages(stages):
        return main(list(words))


def serve(
    root: str, asked: Sequence[Any], stages: Mapping[str, Any] | None = None, job: Mapping[str, Any] | None = None,
    with_server: bool = False,
) -> int:  # fmt: skip
    """A server without pages: submits what is asked and waits until it has ended.

    ``stages`` are its own, ``job`` those of its jobs; ``with_server``: what kills a job kills it, too.
    """
    from merging.study.run_queue import RunQueue
    from merging.study.runs.run_store import Store

    watch = dict(job or {}) | ({"also": [os.getpid()]} if with_server else {})
    subprocess.Popen = lambda command, **options: _fork_command(command, watch if job else None, **options)
    with count_stages(stages):
        runner = RunQueue(Store(Path(root), libraries=()), device="cpu")
        for request in asked:
            submit(runner, request)
        while any(job.is_live for job in runner.list_jobs()):
            time.sleep(0.01)
        runner.close()
    return 0


def run_together(how: str, begin: float, unlocked: bool, **arguments: Any) -> int:
    """Other work, begun at a time, with locks that lock nothing if ``unlocked``."""
    from merging.study.runs import run_store
    from merging.tasks.queue import job_queue

    if unlocked:
        for module in (job_queue, run_store):
            module.hold_lock = lambda *arguments, **options: contextlib.nullcontext(True)  # type: ignore[attr-defined]
    time.sleep(max(0.0, begin - time.time()))
    return int(globals()[how](**arguments))


def hold(root: str, run_id: str, ready: str) -> int:
    """Hold the lock of a run for as long as this process lives."""
    from merging.study.runs.run_store import Store

    with Store(Path(root), libraries=()).lock(run_id):
        Path(ready).touch()
        time.sleep(600)
    return 0


def change(name: str, root: str, calls: str, kill_at: float) -> int:
    """Write the new version of a stored thing; killed at a call that writes. What the system holds is not waited for.

    The file ``calls`` lists all those calls if none kills.
    """
    from faulty_disk import KILLED, fail_writing
    from stored_things import NEW, THINGS

    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    with fail_writing(Path(root), KILLED, kill_at, kill_at) as disk:
        THINGS[name].write(Path(root), NEW)
    Path(calls).write_text("\n".join(disk.calls))
    return 0


def again(name: str, root: str, number: int, times: int = 20) -> int:
    """Write a version of a stored thing again and again, or read it if the number is that of no version."""
    from stored_things import ABSENT, THINGS

    thing = THINGS[name]
    for _ in range(times):
        thing.write(Path(root), number) if number != ABSENT else thing.read(Path(root))
    return 0


def submit(runner: Any, request: Sequence[Any]) -> Any:
    """Submit a job to a runner: its kind, and the arguments; a recipe is given as YAML."""
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.recipes.recipe import Recipe

    method, *arguments = request
    if method == "submit":
        return runner.submit(Recipe.from_yaml(arguments[0]), benchmark=Benchmark.load())
    submit_job = {
        "sweep": runner.submit_sweep, "measure": runner.submit_measurement, "command": runner.submit_command,
    }[method]  # fmt: skip
    return submit_job(*arguments)


@contextlib.contextmanager
def count_stages(stages: Mapping[str, Any] | None) -> Iterator[None]:
    """Count the stages of this process, if there are any to be counted."""
    if stages is None:
        yield
        return
    counted = ProcessStages(**stages)
    counted.begin()
    yield
    counted.end()


def _fork_command(
    command_line: Sequence[str], stages: Mapping[str, Any] | None, *, env: Mapping[str, str], stdout: IO[bytes],
    **options: Any,
) -> ForkedProcess:  # fmt: skip
    words = list(command_line[3:])
    return ForkedProcess(_fork(lambda: command(words, stages), env, stdout.name), _reap)


def _fork(work: Callable[[], int], environment: Mapping[str, str], log: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.clear()
        os.environ.update(environment)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _adopt() -> None:
    """Become the parent of processes whose own parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _settle() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _reap(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def _warm() -> None:
    """Import what any of the processes needs."""
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in (
        "merging.cli.main", "merging.cli.run_and_export", "merging.study.run_queue", "merging.study.runs.execute",
        "merging.study.sweeps.sweep_session", "merging.study.sweeps.sweep_tables", "merging.study.measurements.signs",
        "merging.study.measure", "merging.study.runs.reference_models",
        "merging.cli.commands.run", "merging.cli.commands.export", "merging.cli.commands.sweep",
        "merging.cli.commands.measure", "pandas", "filelock", "stored_things",
    ):  # fmt: skip
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # collecting in a child would copy all of it


def _main() -> None:
    _adopt()
    _warm()
    with contextlib.suppress(KeyboardInterrupt):
        _answer()
    for child in psutil.Process().children(recursive=True):  # whatever a test that failed has left, also halted ones
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _answer() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "settle" in request:
            answer: Any = _settle()
        elif "pid" in request:
            answer = _reap(request["pid"])
        else:
            work, arguments = globals()[request["work"]], request["arguments"]
            answer = _fork(lambda: work(**arguments), request["environment"], request["log"])  # noqa: B023
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
