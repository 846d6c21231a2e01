"""Answers of trials (merges with their evaluations), stored when all workers are lost, until the measurement is stored.

Only workers of the same kind may use them again: one measurement needs one program version on one kind of hardware.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from merging.base.files.records import JsonRecords
from merging.study.runs.run_store import Store

FOLDER, VERSION = "trials", 1
ANSWER_KEYS = ("trial", "device", "memory")  # the trial's result, the worker's device, warnings about its memory


class StoredAnswers:
    """The answers of the trials of one measurement, by the names of trials, in one file of a store."""

    def __init__(self, store: Store, measurement: str) -> None:
        self._records, self._name = JsonRecords(store.root / FOLDER, VERSION), measurement

    def read(self, kind: str) -> dict[str, dict[str, Any]]:
        """The answers of workers of this kind (program version and hardware); empty if the kind is unknown."""

        def build(record: Any) -> dict[str, dict[str, Any]]:
            answers = record["answers"] if kind and record["kind"] == kind else {}
            return {str(name): {key: answer[key] for key in ANSWER_KEYS} for name, answer in answers.items()}

        return self._records.read(self._name, build) or {}

    def store(self, kind: str, answers: Mapping[str, Mapping[str, Any]]) -> bool:
        """Store answers, which replace earlier ones; returns whether they were stored."""
        with contextlib.suppress(OSError, ValueError):
            if kind and answers:
                stored_answers = {name: {key: answer[key] for key in ANSWER_KEYS} for name, answer in answers.items()}
                self._records.write(self._name, {"kind": kind, "answers": stored_answers})
                return True
        return False

    def delete(self) -> None:
        """Remove the answers, which are not needed once the measurement is stored."""
        with contextlib.suppress(OSError):
            self._records.remove(self._name)
