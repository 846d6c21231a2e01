"""A scheduler of Dask and two workers, each a command of its own, with the certificates that docs/cluster.md makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cluster.md"
COMMANDS = re.search(r"```\w+[^\n]*\n(mkdir -m 700.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def start_command(*words: str, folder: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """A command of this program, once it has printed that it is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "merging", *words], cwd=folder, env=os.environ | environment, text=True,
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline()
    return process


def end_process(process: subprocess.Popen[str]) -> None:
    """Kill a command and what it started."""
    with process:
        below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for each in [*below, process]:
            each.kill()


def wait_until(true: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def make_certificates(folder: Path) -> str:
    """The folder of certificates that the commands in docs/cluster.md make; empty without openssl."""
    if shutil.which("openssl") is None:
        return ""
    assert COMMANDS is not None
    subprocess.run(
        ["bash", "-ec", COMMANDS[1]], env=os.environ | {"HOME": str(folder)}, check=True, capture_output=True
    )
    return str(folder / ".mergescope" / "certificates")


class Cluster:
    """A scheduler and two workers, each a command of its own, with TLS where there is openssl."""

    def __init__(self, folder: Path) -> None:
        self.file, self.folder = folder / "scheduler.json", folder
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Start both, the workers as soon as the scheduler is there."""
        for words in (
            ("scheduler", "--port", "0", "--file", str(self.file)),
            ("worker", str(self.file), "--count", "2", "--folder", str(self.folder)),
        ):
            self.processes.append(start_command(*words))

    @property
    def scheduler(self) -> subprocess.Popen[str]:
        """The command."""
        return self.processes[0]

    @property
    def worker(self) -> subprocess.Popen[str]:
        """The command that watches over both workers."""
        return self.processes[1]

    def workers(self) -> list[psutil.Process]:
        """The processes that compute, below those that watch over them."""
        below = psutil.Process(self.worker.pid).children(recursive=True)  # Dask renames them where it can
        return [each for each in below if not any("resource_tracker" in word for word in each.cmdline())]
