"""The command line: how a command is started and how it ends. Importing this loads neither torch nor pandas.

Exit codes: 0 done, 1 failed (one sentence on stderr), 2 wrong use, 75 paused, 130 cancelled. With ``--json`` the result
is JSON on stdout, also after a failure: {"error", "code"}. Progress goes to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from threading import Event
from types import FrameType

import click

from merging.base.progress import Progress, watch_progress
from merging.base.text import visible_lines
from merging.base.version import __version__
from merging.cli.call import Call
from merging.cli.command_table import CommandTable
from merging.cli.exit_codes import CANCELLED, FAILED, PAUSED, USAGE, join_errors
from merging.cli.output import Bar, write_last_event
from merging.tasks.queue.events import RESUME_HINT

PROGRAM = "mergescope"
COMPLETION_VARIABLE = "_MERGESCOPE_COMPLETE"  # set by a shell to complete words; see docs/own_checkpoints.md
OUT_OF_MEMORY_MESSAGE = (
    "The computer ran out of memory, so the command was stopped, and no partial result was stored. Close other "
    "programs, or use fewer or smaller models at a time."
)
CODES_HELP = "Exit codes: 0 done, 1 failed (one sentence on stderr), 2 wrong use, 75 paused, 130 cancelled."


@click.group(
    cls=CommandTable,
    epilog=CODES_HELP,
    no_args_is_help=False,
    subcommand_metavar="COMMAND ...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, message=f"mergescope {__version__}")
def program() -> None:
    """Merge fine-tuned CLIP vision experts."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    _escape_unprintable_text()
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(program, {"obj": Call()}, "mergescope", COMPLETION_VARIABLE, instruction)
    call = Call(json="--json" in arguments)  # a guess for calls that cannot be parsed; the option itself sets it later
    code, text, usage = _run_command(arguments, call)
    if usage:
        print(visible_lines(usage), end="\n\n", file=sys.stderr)
    _report_end(call, visible_lines(text), code)
    return code


def _escape_unprintable_text() -> None:
    """Print characters that the console's encoding lacks as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run_command(arguments: list[str], call: Call) -> tuple[int, str, str]:
    """The exit code, the problems as text if it is not 0, and the usage line if it helps."""
    try:
        with (
            _stop_on_signals(call.stop),
            _show_downloads(call.stop),
            program.make_context(PROGRAM, arguments, obj=call) as context,
        ):
            return program.invoke(context), "", ""
    except click.exceptions.Exit as end:  # the help or the version has been printed
        return end.exit_code, "", ""
    except click.UsageError as error:
        problems = join_errors([error])
        return USAGE, problems.message, problems.usage
    except BrokenPipeError:  # the reader of the output has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED, "", ""
    except (Exception, KeyboardInterrupt) as error:
        return *_explain_error(error), ""


def _explain_error(error: BaseException) -> tuple[int, str]:
    """The exit code and the text of an error. A traceback is printed if the error is a bug of this program."""
    from merging.base import errors  # the help needs none of its imports
    from merging.base.errors import Cancelled, MergingError, Paused, WorkersGone

    if isinstance(error, Paused):
        return PAUSED, str(error) if isinstance(error, WorkersGone) else f"{error}{RESUME_HINT}"
    if isinstance(error, Cancelled | KeyboardInterrupt):
        return CANCELLED, str(error) or "Cancelled; nothing was stored."
    if isinstance(error, MergingError):
        return FAILED, str(error)
    if errors.is_out_of_memory(error):
        return FAILED, OUT_OF_MEMORY_MESSAGE
    import traceback

    traceback.print_exception(error)
    return FAILED, errors.describe_unexpected(error)


def _report_end(call: Call, text: str, code: int) -> None:
    """Report how the command ended: an error on stderr, also as JSON with ``--json``, and the last line of the job's
    file of events, if a job runs the command.
    """
    if text:
        print(text, file=sys.stderr)
    if text and call.json:
        print(json.dumps({"error": text, "code": code}, ensure_ascii=False))
    if call.events is not None:
        write_last_event(call.events, code, text)


@contextlib.contextmanager
def _show_downloads(stop: Event) -> Iterator[None]:
    """Show a bar for downloads that begin when a model is opened, and end them when the command is asked to stop."""
    bar = Bar()

    def show(progress: Progress) -> None:
        bar(progress)
        if progress.fraction == 1.0:  # the command prints its next text on a line of its own
            bar.end()

    try:
        with watch_progress(show, stop):
            yield
    finally:
        bar.end()


@contextlib.contextmanager
def _stop_on_signals(stop: Event) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM set ``stop``; the second one ends the program at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    earlier_handlers = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
