"""Answers of trials that are kept when all workers are gone, until the measurement is stored.

They count again for workers of the same kind only: one measurement needs one program on one kind of hardware.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from merging.base.files.records import JsonRecords
from merging.study.runs.run_store import Store

FOLDER, VERSION = "trials", 1
PARTS = ("trial", "device", "memory")  # of an answer


class StoredAnswers:
    """The answers of the trials of one measurement, by the names of trials, in one file of a store."""

    def __init__(self, store: Store, measurement: str) -> None:
        self._records, self._name = JsonRecords(store.root / FOLDER, VERSION), measurement

    def read(self, kind: str) -> dict[str, dict[str, Any]]:
        """The answers of workers of this kind; none if the kind is not known."""

        def build(record: Any) -> dict[str, dict[str, Any]]:
            answers = record["answers"] if kind and record["kind"] == kind else {}
            return {str(name): {part: answer[part] for part in PARTS} for name, answer in answers.items()}

        return self._records.read(self._name, build) or {}

    def store(self, kind: str, answers: Mapping[str, Mapping[str, Any]]) -> bool:
        """Keep answers in place of earlier ones; whether that was possible."""
        with contextlib.suppress(OSError, ValueError):
            if kind and answers:
                parts = {name: {part: answer[part] for part in PARTS} for name, answer in answers.items()}
                self._records.write(self._name, {"kind": kind, "answers": parts})
                return True
        return False

    def delete(self) -> None:
        """The measurement is stored: its answers are not needed any more."""
        with contextlib.suppress(OSError):
            self._records.remove(self._name)
