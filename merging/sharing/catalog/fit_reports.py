"""Fit reports on all scalars of a set's files, valid until one of the files changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from merging.base.errors import StoreError
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.records import JsonRecords
from merging.models.checkpoint import Checkpoint
from merging.models.inspection.distance import Distance
from merging.models.inspection.fit_report import FitReport, Problem
from merging.models.team.tokenizers import tokenizer_fingerprint

FOLDER, VERSION = "checks", 3
MAX_PROBLEMS = 20_000  # stored problems of a report


def store_report(root: Path, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], report: FitReport) -> None:
    """Store a report.

    Raises:
        StoreError: the store cannot be written to.
    """
    if (name := _compute_report_name(pretrained, experts)) is None:
        return
    record = {
        "problems": [asdict(problem) for problem in report.problems[:MAX_PROBLEMS]],
        "tensors": report.tensors,
        "notes": list(report.notes),
        "distances": {name: asdict(distance) for name, distance in report.distances.items()},
        "read": report.read,
        "no_family": report.no_family,
    }
    try:
        with explain_os_errors("The fit report", STORE_REMEDY):
            _open_records(root).write(name, record)
    except ValueError as error:
        raise StoreError(f"The report cannot be stored: {error}.") from None


def find_report(root: Path, pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> FitReport | None:
    """The report on these files in their current state; None if there is no readable one."""
    name = _compute_report_name(pretrained, experts)
    return None if name is None else _open_records(root).read(name, _parse_report)


def _parse_report(record: Mapping[str, Any]) -> FitReport:
    return FitReport(
        problems=tuple(Problem(**problem) for problem in record["problems"]),
        tensors=int(record["tensors"]),
        notes=tuple(record["notes"]),
        distances={name: Distance(**distance) for name, distance in record["distances"].items()},
        read=str(record["read"]),
        no_family=str(record["no_family"]),
    )


def _open_records(root: Path) -> JsonRecords:
    return JsonRecords(root / FOLDER, VERSION)


def _compute_report_name(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> str | None:
    """The name of the report on these files and tokenizers; None if changes of one of them cannot be detected."""
    checkpoints = {"": pretrained, **experts}
    states = {name: checkpoint.file_fingerprint() for name, checkpoint in checkpoints.items()}
    if None in states.values():
        return None
    content = json.dumps(
        [
            VERSION,
            list(states.items()),
            [tokenizer_fingerprint(checkpoint.folder) for checkpoint in checkpoints.values()],
        ]
    )
    return hashlib.sha256(content.encode()).hexdigest()[:24]
