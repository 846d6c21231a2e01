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
    library: Path | None,
    folder: Path,
    settings: Mapping[str, str] = NOTHING,
    entry: str = "app/main.py",
    command: Sequence[str] = (),
    cwd: Path = ROOT,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """The address of the app on a benchmark (None: the bundled one), with a store in ``folder`` that is empty at first.

    ``command`` starts it in place of Streamlit's own command on ``entry``.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*(command or (sys.executable, "-m", "streamlit", "run", entry))]
    words += ["--port" if command else "--server.port", str(port)]
    own = {"MERGESCOPE_STORE": str(folder / "store"), **settings}
    own |= {"MERGESCOPE_BENCHMARK": str(library)} if library else {}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=cwd, env={**environment, **own}, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, folder / "log.txt")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


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
