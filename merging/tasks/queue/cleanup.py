"""Stops the processes of jobs, removes what killed ones left behind, and puts back what they had put aside."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from merging.base.files import atomic
from merging.base.files.records import release
from merging.tasks.queue.child_process import PATIENCE, Process, stop_process
from merging.tasks.queue.job_kinds import COMMAND, JobStore, find_job_kind
from merging.tasks.queue.job_records import JobFiles, Record, State

BUILD = ("benchmark", "make")  # the command whose third word is the folder that it writes


def sweep_up(store: JobStore, records: Iterable[Record]) -> None:
    """Clear the store, and the places that jobs write to, of the temporary files of dead processes."""
    store.sweep()
    for folder in {out.absolute().parent for record in records for out in _find_outputs(store, record)}:
        atomic.sweep(folder)


def release_space(files: JobFiles, record: Record) -> None:
    """Give back the room that is reserved for a job's states if the processes that would write them are dead."""
    if not any(process.is_remote or process.is_alive() for process in (record.owner, files.find_worker(record))):
        release(files.folder)


def _find_outputs(store: JobStore, record: Record) -> list[Path]:
    """The files and folders that a command writes."""
    words = record.words
    if writes := find_job_kind(record.kind).writes:
        return [store.root / writes.format(subject=record.subject)]
    if words[:2] == BUILD:
        return [Path(words[2])]
    return [Path(words[words.index("--out") + 1])] if "--out" in words else []


def stop_child(process: Process, files: JobFiles, *, going_on: bool) -> None:
    """Stop the child of a job; with ``going_on`` what it has learned stays for the next attempt.

    It may keep that at the end of a step, and is killed if that takes too long: being asked to stop, it would discard
    it, and it keeps it now and then anyhow.
    """
    record = files.read()
    kind = find_job_kind(record.kind) if record is not None else COMMAND
    if going_on and kind.in_store and kind.pauses(files.recipe_yaml()):
        files.ask_to_pause()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            return
        stop_process(process, (signal.SIGKILL,))
    else:
        stop_process(process)


def stop_orphan(store: JobStore, files: JobFiles) -> None:
    """Stop a job that another server started, which may be dead."""
    if (record := files.read()) is None:
        return
    worker = files.find_worker(record)
    if worker.is_alive():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself meanwhile
            stop_process(psutil.Process(worker.pid))
        sweep_up(store, [record])
    store.delete_learned(files.job_id)
    if not record.owner.works_in_another_process():
        files.update(state=State.CANCELLED, finished=time.time())
