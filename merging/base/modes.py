"""Modes of a server ($MERGESCOPE_MODE): which actions visitors may start, from all to none."""

from __future__ import annotations

import os
from enum import StrEnum

from merging.base.errors import ModeError
from merging.base.text import did_you_mean, printable

MODE_VARIABLE = "MERGESCOPE_MODE"
SHARED_VARIABLE = "MERGESCOPE_SHARED"  # set where several people use a server in full mode
MAX_JOB_SECONDS = 30.0  # longest estimated computing time of a job in class mode


class Mode(StrEnum):
    """Who a server is for."""

    FULL = "full"  # for one person or a few, who may do everything
    CLASS = "class"  # for many people at once, who share a small machine
    READ = "read"  # for anybody; visitors can only view stored results


class VisitorAction(StrEnum):
    """An action that a visitor may start; the value names it in sentences."""

    MERGE = "merges"
    MEASURE = "measurements"
    PREVIEW = "previews"
    SWEEP = "sweeps"
    COMMAND = "commands that read or make files"
    EXPORT = "exports of weights"
    UPLOAD = "uploads"
    PATH = "typed paths"
    DELETE = "deletions"
    MANAGE = "changes to jobs that others may wait for"


MODE_NAMES = [str(one) for one in Mode]
ALLOWED_ACTIONS = {
    Mode.FULL: frozenset(VisitorAction),
    Mode.CLASS: frozenset(
        {VisitorAction.MERGE, VisitorAction.MEASURE, VisitorAction.PREVIEW}
    ),  # of at most MAX_JOB_SECONDS, and only a few at a time for each visitor
    Mode.READ: frozenset(),
}
SINGLE_USER_ACTIONS = frozenset(
    {VisitorAction.UPLOAD, VisitorAction.PATH, VisitorAction.DELETE}
)  # not where several people share a server
LOCAL_ALTERNATIVES = {
    VisitorAction.MERGE: "Runs start on your own machine: download the recipe.",
    VisitorAction.MEASURE: "Measure on your own machine: `mergescope measure`.",
    VisitorAction.PREVIEW: "Preview on your own machine: download the recipe.",
    VisitorAction.SWEEP: "Sweeps start on your own machine: `mergescope sweep`.",
    VisitorAction.EXPORT: "Download the recipe; on your own machine it makes the same weights again.",
}
DEFAULT_ALTERNATIVE = "Start Mergescope on your own machine for that."


def server_mode() -> Mode:
    """The mode of this process; ``full`` unless $MERGESCOPE_MODE names another one.

    Raises:
        ModeError: the variable does not name a mode.
    """
    name = os.environ.get(MODE_VARIABLE, "").strip().casefold() or Mode.FULL
    if name not in set(Mode):
        suggestion = did_you_mean(name, MODE_NAMES)
        raise ModeError(
            f"{MODE_VARIABLE} is {printable(name, 40)!r}; expected one of {', '.join(MODE_NAMES)}.{suggestion}"
        )
    return Mode(name)


def is_shared() -> bool:
    """Whether several people use this server: $MERGESCOPE_SHARED says so, or it is in a mode for many."""
    setting = os.environ.get(SHARED_VARIABLE, "").strip().casefold()
    return server_mode() != Mode.FULL or setting not in {"", "0", "no", "off", "false"}


def is_allowed(action: VisitorAction) -> bool:
    """Whether visitors of this server may start an action."""
    return action in ALLOWED_ACTIONS[server_mode()] and not (action in SINGLE_USER_ACTIONS and is_shared())


def explain_refusal(action: VisitorAction) -> str:
    """Why visitors of this server may not start an action, and how to do it on their own machine; Markdown."""
    alternative = LOCAL_ALTERNATIVES.get(action, DEFAULT_ALTERNATIVE)
    if action in ALLOWED_ACTIONS[server_mode()]:
        return f"Several people use this server, so it has no {action}. {alternative}"
    return f"This server is in {server_mode()} mode, which has no {action}. {alternative}"
