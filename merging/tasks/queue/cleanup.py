"""Stops the processes of jobs, removes temporary files of killed jobs, and restores the files that they had moved.

The learned state of a job is what a merge has learned so far, stored so that a later attempt continues from there.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from merging.base.files import atomic
from merging.base.files.records import remove_reserve_files
from merging.tasks.queue.child_process import STOP_SECONDS, Process, stop_process
from merging.tasks.queue.job_kinds import COMMAND_KIND, JobStore, find_job_kind
from merging.tasks.queue.job_records import JobFiles, Record, State

BUILD_COMMAND = ("benchmark", "make")  # the command whose third word is the folder that it writes


def sweep_up(store: JobStore, records: Iterable[Record]) -> None:
    """Remove the temporary files of dead processes from the store and from the folders that jobs write to."""
    store.sweep()
    for folder in {out.absolute().parent for record in records for out in _find_outputs(store, record)}:
        atomic.remove_leftovers(folder)


def release_space(files: JobFiles, record: Record) -> None:
    """Free the disk space that is reserved for a job's state.json if the processes that would write it are dead."""
    if not any(process.is_remote or process.is_alive() for process in (record.owner, files.find_worker(record))):
        remove_reserve_files(files.folder)


def _find_outputs(store: JobStore, record: Record) -> list[Path]:
    """The files and folders that a job writes."""
    words = record.words
    if writes := find_job_kind(record.kind).writes:
        return [store.root / writes.format(subject=record.subject)]
    if words[:2] == BUILD_COMMAND:
        return [Path(words[2])]
    return [Path(words[words.index("--out") + 1])] if "--out" in words else []


def stop_child(process: Process, files: JobFiles, *, keep_state: bool) -> None:
    """Stop the child of a job; with ``keep_state`` its learned state remains for the next attempt.

    A child that learns is asked to pause, which stores its state at the end of the step. If that takes too long, the
    child is killed instead of asked to stop, as a stop would discard the state that it has stored before.
    """
    record = files.read()
    kind = find_job_kind(record.kind) if record is not None else COMMAND_KIND
    if keep_state and kind.in_store and kind.is_pausable(files.recipe_yaml()):
        files.ask_to_pause()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return
        stop_process(process, (signal.SIGKILL,))
    else:
        stop_process(process)


def stop_orphan(store: JobStore, files: JobFiles) -> None:
    """Stop a job that another server started, even if that server is dead."""
    if (record := files.read()) is None:
        return
    worker = files.find_worker(record)
    if worker.is_alive():
        with contextlib.suppress(psutil.NoSuchProcess):  # the process has ended meanwhile
            stop_process(psutil.Process(worker.pid))
        sweep_up(store, [record])
    store.delete_learned_state(files.job_id)
    if not record.owner.works_in_another_process():  # otherwise that server records the end
        files.update(state=State.CANCELLED, finished=time.time())
