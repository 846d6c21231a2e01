"""Modes of a server ($MERGESCOPE_MODE): what its visitors may start, from everything to reading only."""

from __future__ import annotations

import os
from enum import StrEnum

from merging.base.errors import ModeError
from merging.base.text import did_you_mean, printable

VARIABLE = "MERGESCOPE_MODE"
SHARED = "MERGESCOPE_SHARED"  # set where several people use a server in full mode
MOST_SECONDS = 30.0  # of computing that a job may take in a class, as estimated


class Mode(StrEnum):
    """Who a server is for."""

    FULL = "full"  # one person or a few, who may do everything
    CLASS = "class"  # many at once, who share one small machine
    READ = "read"  # anybody, who looks at what is stored


class Act(StrEnum):
    """What a visitor may start or change; the value is how sentences call it."""

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


LISTED = [str(one) for one in Mode]
ALLOWED = {
    Mode.FULL: frozenset(Act),
    Mode.CLASS: frozenset({Act.MERGE, Act.MEASURE, Act.PREVIEW}),  # of at most MOST_SECONDS, within a session's share
    Mode.READ: frozenset(),
}
FOR_ONE = frozenset({Act.UPLOAD, Act.PATH, Act.DELETE})  # not where several people share a server
WAYS = {
    Act.MERGE: "Runs start on your own machine: download the recipe.",
    Act.MEASURE: "Measure on your own machine: `python -m merging measure`.",
    Act.PREVIEW: "Preview on your own machine: download the recipe.",
    Act.SWEEP: "Sweeps start on your own machine: `python -m merging sweep`.",
    Act.EXPORT: "Download the recipe; on your own machine it makes the same weights again.",
}
OWN_MACHINE = "Start Mergescope on your own machine for that."


def mode() -> Mode:
    """The mode of this process; ``full`` unless the variable says otherwise.

    Raises:
        ModeError: the variable has another value.
    """
    written = os.environ.get(VARIABLE, "").strip().casefold() or Mode.FULL
    if written not in set(Mode):
        near = did_you_mean(written, LISTED)
        raise ModeError(f"{VARIABLE} is {printable(written, 40)!r}; expected one of {', '.join(LISTED)}.{near}")
    return Mode(written)


def is_shared() -> bool:
    """Whether several people use this server: as $MERGESCOPE_SHARED says, or in a mode for many."""
    said = os.environ.get(SHARED, "").strip().casefold()
    return mode() != Mode.FULL or said not in {"", "0", "no", "off", "false"}


def allows(act: Act) -> bool:
    """Whether visitors of this server may do that."""
    return act in ALLOWED[mode()] and not (act in FOR_ONE and is_shared())


def refusal(act: Act) -> str:
    """Why visitors may not do that here, and where they can; Markdown."""
    if act in ALLOWED[mode()]:
        return f"Several people use this server, so it has no {act}. {WAYS.get(act, OWN_MACHINE)}"
    return f"This server is in {mode()} mode, which has no {act}. {WAYS.get(act, OWN_MACHINE)}"
