"""Child processes of the server: their environment, how they start, how they receive orders, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, TypeAlias

import psutil

from merging.base import settings
from merging.tasks.kinds import Plain
from merging.tasks.process import ACKNOWLEDGEMENT
from merging.tasks.workers.worker_choice import parse_choice

STOP_SECONDS = 2.5  # that a child has to stop on request before it is killed
PACKAGE_ROOT = Path(__file__).resolve().parents[3]
ORDER_SECONDS = 10.0  # that a process has to read an order, even on a busy machine
WAITING_MODULE = "merging.tasks.process"
Process: TypeAlias = "subprocess.Popen[bytes]"
Environment: TypeAlias = Mapping[str, str]
StartCommand = Callable[[Sequence[str], Environment, IO[bytes]], Process]


def child_environment(benchmark: str = "", job_count: int = 1) -> dict[str, str]:
    """The server's environment for a child that works on a benchmark's folder (empty: the server's own).

    The child has one thread for each of its cores, and threads that wait do not spin. The cores of this process are
    divided equally among ``job_count`` children.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = max(1, cores // job_count)
    variables = dict(os.environ)
    variables |= {"OMP_NUM_THREADS": str(cores), "MKL_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "PASSIVE"}
    if benchmark or "MERGESCOPE_BENCHMARK" in variables:  # may be relative, and the child starts in another folder
        variables["MERGESCOPE_BENCHMARK"] = benchmark or str(settings.benchmark_folder())
    if "MERGESCOPE_STORE" in variables:
        variables["MERGESCOPE_STORE"] = str(settings.store_root().absolute())
    if variables.get(settings.CERTIFICATES_VARIABLE):
        variables[settings.CERTIFICATES_VARIABLE] = str(
            Path(variables[settings.CERTIFICATES_VARIABLE]).expanduser().absolute()
        )
    # The path of a scheduler's file may be relative, too.
    if (choice := parse_choice(settings.workers_setting())).spec.endswith(".json"):
        variables[settings.WORKERS_VARIABLE] = choice._replace(spec=str(Path(choice.spec).expanduser().absolute())).text
    if command := variables.get(settings.EVALUATOR_VARIABLE):
        variables[settings.EVALUATOR_VARIABLE] = _resolve_command(command)
    if "MERGESCOPE_MODELS" in variables:
        variables["MERGESCOPE_MODELS"] = os.pathsep.join(map(str, settings.models_folders().values()))
    return variables


def _resolve_command(command: str) -> str:
    """A command line whose words that name existing files are absolute paths."""
    with contextlib.suppress(ValueError):  # the command that reads the line reports the problem
        words = shlex.split(command)
        return shlex.join(str(Path(word).absolute()) if Path(word).is_file() else word for word in words)
    return command


def start_command(words: Sequence[str], environment: Environment, output: IO[bytes]) -> Process:
    """Start a module with its arguments as ``python -m`` does. Its stdin is empty; it prints to the file ``output``.

    Raises:
        OSError: the system refuses.
    """
    return _start(words, environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def _start(words: Sequence[str], environment: Environment, **streams: Any) -> Process:
    """Start a module in a process group of its own."""
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, cwd=PACKAGE_ROOT, env=dict(environment), start_new_session=True, **streams)


class WorkerProcess:
    """A process that loads modules and waits for an order: to become a command, or to stay and answer requests.

    See ``tasks.process``. It is not one of the workers that compute tasks (``tasks.workers``). A thread writes to its
    stdin, because a message may be longer than a pipe holds.

    Raises:
        OSError: the system refuses to start it.
    """

    def __init__(self, modules: Sequence[str], environment: Environment) -> None:
        words, pipe = [WAITING_MODULE, *modules], subprocess.PIPE
        self.process = _start(words, environment, stdin=pipe, stdout=pipe)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()  # to its stdin; None closes it
        threading.Thread(target=self._write, name="to a process", daemon=True).start()

    @property
    def pid(self) -> int:
        """The number of the process; 0 if it has ended."""
        return self.process.pid if self.process.poll() is None else 0

    def send(self, line: Plain) -> None:
        """Send the process an order or a request."""
        self._lines.put(json.dumps(line).encode() + b"\n")

    def deliver(self, order: Plain) -> bool:
        """Send the process an order; return whether the process reads it, and is not ended or halted before that."""
        self.send(order)
        ready, _, _ = select.select([self._output], [], [], ORDER_SECONDS)
        return bool(ready) and self._output.read(1) == ACKNOWLEDGEMENT

    def answers(self) -> Iterator[Plain]:
        """The answers of the process to requests, until it ends."""
        with self._output:
            yield from map(json.loads, filter(bytes.strip, self._output))  # an empty line acknowledges the order

    def close_pipes(self) -> None:
        """Close the input and output of the process."""
        self._lines.put(None)
        self._output.close()

    def _write(self) -> None:
        with contextlib.suppress(OSError), self._input:
            while (line := self._lines.get()) is not None:
                self._input.write(line)
                self._input.flush()


def start_answering(order: Plain) -> WorkerProcess:
    """Start a process with the order to stay and answer requests. Raises OSError."""
    process = WorkerProcess((), child_environment())
    process.send(order)
    return process


def stop_process(process: Process | psutil.Process, signals: Sequence[int] = (signal.SIGTERM, signal.SIGKILL)) -> None:
    """Ask a child and all processes that it started to stop; kill them if they run after ``STOP_SECONDS`` seconds."""
    for number in signals:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
            return


def describe_end(subject: str, code: int, memory_ran_out: bool, log_hint: str) -> str:
    """A sentence on how a process, which ``subject`` names, ended with an exit code.

    ``memory_ran_out`` is whether memory ran out, ``log_hint`` tells the user where to find more information.
    """
    if code == -signal.SIGKILL:
        reason = (
            "likely because the computer ran out of memory" if memory_ran_out else "nothing shows that memory ran out"
        )
        return f"{subject} was killed{',' if memory_ran_out else ';'} {reason}."
    end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{subject} {end}; {log_hint}"
