"""What a spare process does: it loads modules, waits for a line of JSON on stdin, and becomes what that line says.

It answers the line with one byte on stdout before anything else, so that whoever sent it knows that it was read.
The line names a module that is run as by ``python -m``, its words, its environment, and the file that it prints to;
with none it goes on to use stdin and stdout. The process ends with its input, such as when the server is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

NICE = 10
ANSWER = b"+"


def load(modules: Sequence[str]) -> None:
    """Import modules; what one of them lacks is said again where it is needed."""
    if sys.platform == "linux":  # where it lowers the priority of this thread alone
        os.nice(NICE)
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def become(order: Mapping[str, Any]) -> int:
    """Run a module as the main one; gives its exit code."""
    os.environ.clear()
    os.environ.update(order["environment"])
    if order["output"]:
        _print_to(order["output"])
    sys.argv = [order["module"], *order["words"]]
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _print_to(path: str) -> None:
    """Let stdout and stderr append to a file, and stdin be empty."""
    for name, flags, numbers in ((os.devnull, os.O_RDONLY, (0,)), (path, os.O_WRONLY | os.O_APPEND, (1, 2))):
        descriptor = os.open(name, flags)
        for number in numbers:
            os.dup2(descriptor, number)
        os.close(descriptor)


def main(modules: Sequence[str]) -> None:
    """Load, wait, and become what is asked for; ends the process without taking its modules apart."""
    thread = threading.Thread(target=load, args=(modules,))
    thread.start()
    line = sys.stdin.buffer.readline()
    code = 0
    if line.endswith(b"\n"):
        try:
            os.write(1, ANSWER)
            thread.join()
            code = become(json.loads(line))
        except BaseException:
            traceback.print_exc()
            code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
