"""A real server of the app on a free port, as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from browser_tab import ROOT

NOTHING: Mapping[str, str] = MappingProxyType({})


@contextmanager
def serve(
    library: Path, folder: Path, settings: Mapping[str, str] = NOTHING, entry: str = "app/main.py"
) -> Iterator[str]:
    """The address of the app on a benchmark, with a store in ``folder`` that is empty at first."""
    port = find_free_port()
    command = [sys.executable, "-m", "streamlit", "run", entry, "--server.port", str(port)]
    own = {"MERGESCOPE_BENCHMARK": str(library), "MERGESCOPE_STORE": str(folder / "store"), **settings}
    with serve_with(command, os.environ | own, port, folder) as url:
        yield url


@contextmanager
def serve_with(
    command: Sequence[str], environment: Mapping[str, str], port: int, folder: Path, cwd: Path = ROOT
) -> Iterator[str]:
    """The address of the server that a command starts in the folder ``cwd``, and which logs into ``folder``."""
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(environment), stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, folder / "log.txt")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            pytest.fail(f"The server ended: {log.read_text()}")
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"The server did not answer: {log.read_text()}")
