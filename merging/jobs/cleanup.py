"""Removes what a job's process that has ended may have left behind, wherever it was writing."""

from __future__ import annotations

from pathlib import Path

from merging.analysis import measure
from merging.files import atomic
from merging.jobs.records import Record
from merging.runs.store import Store

BUILD = ("benchmark", "make")  # the command whose third word is the folder that it writes


def sweep_up(store: Store, record: Record, writer: int) -> None:
    """Remove temporary folders of ``writer``, which is known to be dead."""
    from merging.sweeps import points  # loads torch, which listing jobs does not need

    store.sweep(writer)
    measure.sweep(store, writer)
    points.sweep_up(store, writer)
    for out in _outputs(record.words):
        atomic.sweep(out.parent, writer)


def _outputs(words: tuple[str, ...]) -> list[Path]:
    """What a command was to write."""
    if words[:2] == BUILD:
        return [Path(words[2])]
    return [Path(words[words.index("--out") + 1])] if "--out" in words else []
