"""Fit reports on all scalars of a set's files, valid until one of the files changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from merging.base.errors import StoreError
from merging.base.files.disk import OTHER_STORE, explain_os_errors
from merging.base.files.records import JsonRecords
from merging.models.checkpoint import Checkpoint
from merging.models.inspection.distance import Distance
from merging.models.inspection.fit_report import FitReport, Problem
from merging.models.team.tokenizers import state

FOLDER, VERSION = "checks", 3
MOST_PROBLEMS = 20_000  # problems of a report that are stored


def store_report(root: Path, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], report: FitReport) -> None:
    """Store a report.

    Raises:
        StoreError: the store cannot be written to.
    """
    if (name := _name(pretrained, experts)) is None:
        return
    record = {
        "problems": [asdict(problem) for problem in report.problems[:MOST_PROBLEMS]],
        "tensors": report.tensors,
        "notes": list(report.notes),
        "distances": {name: asdict(distance) for name, distance in report.distances.items()},
        "read": report.read,
        "no_family": report.no_family,
    }
    try:
        with explain_os_errors("The fit report", OTHER_STORE):
            _records(root).write(name, record)
    except ValueError as error:
        raise StoreError(f"The report cannot be stored: {error}.") from None


def find_report(root: Path, pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> FitReport | None:
    """The report on these files in their current state; None if there is none that can be read."""
    name = _name(pretrained, experts)
    return None if name is None else _records(root).read(name, _parse_report)


def _parse_report(plain: Mapping[str, Any]) -> FitReport:
    return FitReport(
        problems=tuple(Problem(**problem) for problem in plain["problems"]),
        tensors=int(plain["tensors"]),
        notes=tuple(plain["notes"]),
        distances={name: Distance(**distance) for name, distance in plain["distances"].items()},
        read=str(plain["read"]),
        no_family=str(plain["no_family"]),
    )


def _records(root: Path) -> JsonRecords:
    return JsonRecords(root / FOLDER, VERSION)


def _name(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> str | None:
    """The name of the report on these files and tokenizers; None if a change of one of them could not be noticed."""
    named = {"": pretrained, **experts}
    states = {name: checkpoint.state() for name, checkpoint in named.items()}
    if None in states.values():
        return None
    about = json.dumps([VERSION, list(states.items()), [state(checkpoint.folder) for checkpoint in named.values()]])
    return hashlib.sha256(about.encode()).hexdigest()[:24]
