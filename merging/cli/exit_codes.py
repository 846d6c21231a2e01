"""The exit codes of commands, and the error of a call with wrong arguments."""

from __future__ import annotations

from collections.abc import Sequence

import click

# success, failure, wrong arguments, paused (EX_TEMPFAIL: call again), stopped by Ctrl-C or SIGTERM
DONE, FAILED, USAGE, PAUSED, CANCELLED = 0, 1, 2, 75, 130


class UsageError(click.UsageError):
    """The arguments are wrong: one sentence per problem, after the usage line if it helps."""

    def __init__(self, problems: Sequence[str], usage: str = "") -> None:
        super().__init__("\n".join(problems))
        self.usage = usage


def join_errors(errors: Sequence[click.UsageError]) -> UsageError:
    """One error with the sentences of all errors; the usage line is shown if click itself could not parse the call."""
    usage = ""
    for error in errors:
        if isinstance(error, UsageError):
            usage = usage or error.usage
        elif error.ctx is not None:
            usage = usage or f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} -h' for help."
    return UsageError([error.format_message() for error in errors], usage)
