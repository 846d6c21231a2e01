"""Runs pytest again and again without importing torch again: each run is a fork of this process.

It reads lines of JSON, {"arguments": [...], "folder": ..., "limit": seconds}, and answers each with a line,
{"code": exit code of pytest or null at the time limit, "output": its end}. The folder's own modules are not loaded
here, so that a run sees them as they are at that moment.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from typing import IO

import pytest

HEAVY = (
    "numpy", "torch", "torch.func", "torch.nn.attention", "pandas", "scipy.stats", "safetensors.torch", "PIL.Image",
    "psutil", "filelock", "yaml", "streamlit.components.v2.manifest_scanner", "hypothesis.strategies",
    "hypothesis.extra.numpy", "_hypothesis_pytestplugin", "anyio.pytest_plugin", "xdist.plugin",
)  # fmt: skip
TAIL = 2000  # characters of the output that are given back
# Packages of plugins are loaded before pytest could rewrite the assertions in them, which nothing here needs.
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


def child(arguments: list[str], folder: str, output: IO[bytes]) -> None:
    """Run pytest in a folder and leave the process; never returns."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    os.chdir(folder)
    sys.path[0] = folder
    os._exit(int(pytest.main([*OPTIONS, *arguments])))


def finished(pid: int, limit: float) -> int | None:
    """The exit code of a child; None if it had to be stopped at the limit."""
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def run(arguments: list[str], folder: str, limit: float) -> dict[str, object]:
    """One run of pytest in a fork of this process."""
    with tempfile.TemporaryFile() as output:
        if (pid := os.fork()) == 0:
            child(arguments, folder, output)
        code = finished(pid, limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # the processes that tests started
        output.seek(0)
        return {"code": code, "output": output.read().decode("utf-8", "replace")[-TAIL:]}


def main() -> None:
    """Answer requests until the input ends."""
    for name in HEAVY:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
