"""Removes the temporary files that a job's process may have left behind when it ended."""

from __future__ import annotations

from pathlib import Path

from merging.analysis import measure
from merging.files import atomic
from merging.jobs.records import Record
from merging.runs.store import Store

BUILD = ("benchmark", "make")  # the command whose third word is the folder that it writes


def sweep_up(store: Store, record: Record, writer: int) -> None:
    """Remove the temporary folders of ``writer``, a process that has ended."""
    from merging.sweeps import points  # loads torch, which listing jobs does not need

    store.sweep(writer)
    measure.sweep(store, writer)
    points.sweep_up(store, writer)
    for out in _outputs(record.words):
        atomic.sweep(out.parent, writer)


def _outputs(words: tuple[str, ...]) -> list[Path]:
    """The files and folders that a command writes."""
    if words[:2] == BUILD:
        return [Path(words[2])]
    return [Path(words[words.index("--out") + 1])] if "--out" in words else []
