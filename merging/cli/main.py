"""The command line: how a command is started and how it ends. Importing this loads neither torch nor pandas.

Exit codes: 0 done, 1 failed (one sentence on stderr), 2 wrong use, 75 paused, 130 cancelled. With ``--json`` what came
out is JSON on stdout, also of a failure: {"error", "code"}. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from threading import Event
from types import FrameType

from merging.cli.command_table import COMMANDS
from merging.cli.exit_codes import CANCELLED, FAILED, USAGE, UsageError
from merging.cli.options import parser
from merging.errors import Cancelled, MergingError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said what is wrong, or printed the help
        sys.stderr.write(said.getvalue())
        if stop.code and "--json" in (sys.argv if argv is None else argv):
            _print_failure(said.getvalue().splitlines()[-1].partition("error: ")[2], USAGE)
        return int(stop.code or 0)
    if getattr(args, "nice", 0):
        os.nice(args.nice)
    code, text = _run(args)
    if text:
        _tell(args, text, code)
    return code


def _run(args: argparse.Namespace) -> tuple[int, str]:
    """Exit code, and what to say if it is not 0."""
    try:
        with _stop_on_signals() as event:
            module, _, function = COMMANDS[args.command].partition(":")
            return getattr(importlib.import_module(module), function)(args, event), ""
    except (KeyboardInterrupt, Cancelled):
        code, text = CANCELLED, "Cancelled; nothing was kept."
    except UsageError as error:
        code, text = USAGE, str(error)
    except MergingError as error:
        code, text = FAILED, str(error)
    except BrokenPipeError:  # the reader of our output has gone, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code, text = FAILED, ""
    except Exception as error:
        traceback.print_exc()
        code, text = FAILED, f"Unexpected {type(error).__name__}: {str(error)[:200] or 'no reason given'}"
    return code, text


def _tell(args: argparse.Namespace, text: str, code: int) -> None:
    """Say what went wrong, to people on stderr and to programs where they look."""
    print(text, file=sys.stderr)
    if getattr(args, "json", False):
        _print_failure(text, code)
    if (events := getattr(args, "events", None)) is not None:
        with contextlib.suppress(OSError), events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"error": text, "code": code}, ensure_ascii=False) + "\n")


def _print_failure(text: str, code: int) -> None:
    print(json.dumps({"error": text, "code": code}, ensure_ascii=False))


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one ends the program at once."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
