"""Removes what processes that were killed left behind, and puts back what they had put aside."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from merging.files import atomic
from merging.jobs.records import Record
from merging.runs.store import Store

BUILD = ("benchmark", "make")  # the command whose third word is the folder that it writes


def sweep_up(store: Store, records: Iterable[Record]) -> None:
    """Clear the store, and the places that jobs write to, of the temporary files of dead processes."""
    store.sweep()
    for folder in {out.absolute().parent for record in records for out in _outputs(record.words)}:
        atomic.sweep(folder)


def _outputs(words: tuple[str, ...]) -> list[Path]:
    """The files and folders that a command writes."""
    if words[:2] == BUILD:
        return [Path(words[2])]
    return [Path(words[words.index("--out") + 1])] if "--out" in words else []
