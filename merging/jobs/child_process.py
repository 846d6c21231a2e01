"""Child processes of the server: their environment, how they start, and how they are stopped."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from merging import settings
from merging.workers.choice import parsed

PATIENCE = 2.5  # seconds that a child has to stop on request, before it is killed
PACKAGE_ROOT = Path(__file__).resolve().parent.parent.parent
Launch = Callable[[str, Sequence[str], Mapping[str, str], IO[bytes] | None], "subprocess.Popen[bytes]"]


def child_environment(benchmark: str = "", jobs: int = 1) -> dict[str, str]:
    """The server's environment for a child on a benchmark: one thread for each core of this process, no spinning.

    Of several ``jobs`` each has its part of the cores.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = max(1, cores // jobs)
    variables = dict(os.environ)
    variables |= {"OMP_NUM_THREADS": str(cores), "MKL_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "PASSIVE"}
    if benchmark or "MERGESCOPE_BENCHMARK" in variables:  # may be relative, and the child starts elsewhere
        variables["MERGESCOPE_BENCHMARK"] = benchmark or str(settings.benchmark_folder())
    if "MERGESCOPE_STORE" in variables:
        variables["MERGESCOPE_STORE"] = str(settings.store_root().absolute())
    if variables.get(settings.CERTIFICATES):
        variables[settings.CERTIFICATES] = str(Path(variables[settings.CERTIFICATES]).expanduser().absolute())
    if (chosen := parsed(settings.workers())).spec.endswith(".json"):
        variables[settings.WORKERS] = chosen._replace(spec=str(Path(chosen.spec).expanduser().absolute())).text
    if written := variables.get(settings.EVALUATOR):
        variables[settings.EVALUATOR] = _from_anywhere(written)
    if "MERGESCOPE_MODELS" in variables:
        variables["MERGESCOPE_MODELS"] = os.pathsep.join(map(str, settings.models_folders().values()))
    return variables


def _from_anywhere(command: str) -> str:
    """A command line with the files that it names from the current folder on as absolute paths."""
    with contextlib.suppress(ValueError):  # the command that reads it says what is wrong
        words = shlex.split(command)
        return shlex.join(str(Path(word).absolute()) if Path(word).is_file() else word for word in words)
    return command


def start_process(
    module: str, words: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a module as ``python -m`` does, in a process group of its own.

    It prints to a file and reads nothing, or without ``output`` its stdin and stdout are pipes.

    Raises:
        OSError: the system refuses.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=PACKAGE_ROOT,
        env=dict(environment),
        stdin=subprocess.PIPE if output is None else subprocess.DEVNULL,
        stdout=subprocess.PIPE if output is None else output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def stop_process(
    process: subprocess.Popen[bytes] | psutil.Process, signals: Sequence[int] = (signal.SIGTERM, signal.SIGKILL)
) -> None:
    """Ask a child and all that it started to stop; kill them if they have not after ``PATIENCE`` seconds."""
    for number in signals:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            process.wait(timeout=PATIENCE)
            return
