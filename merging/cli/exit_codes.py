"""How a command ends: its exit code, and the error of wrong use."""

from __future__ import annotations

from collections.abc import Sequence

DONE, FAILED, USAGE, PAUSED, CANCELLED = 0, 1, 2, 75, 130


class UsageError(Exception):
    """The arguments make no sense; one sentence per problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
