"""The measured rows, stored in the experiment's folder, so that the table can be printed without models or images."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.base.files.records import write_json
from merging.sharing.published.accuracy_verdicts import TaskScore
from merging.sharing.published.catalogue_fields import CatalogueFields, read_mapping
from merging.sharing.published.choice import Choice
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.repository_lock import Lock
from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED, RowVariant, list_variants

MEASURED_FILE = "measured.json"


@dataclass(frozen=True, slots=True)
class MeasuredFiles:
    """Facts about the measured files.

    ``latest`` are repositories that differed from the catalogue, ``pinned`` the days on which repositories were pinned.
    """

    latest: tuple[str, ...]
    pinned: tuple[str, ...]

    @classmethod
    def from_lock(cls, lock: Lock, repositories: Collection[str]) -> Self:
        """The facts in a lock about these repositories."""
        days = {one.read for name, one in lock.repositories.items() if name in repositories}
        return cls(tuple(name for name in lock.latest if name in repositories), tuple(sorted(days)))

    def to_plain(self) -> dict[str, list[str]]:
        """As plain data."""
        return {"latest": list(self.latest), "pinned": list(self.pinned)}


@dataclass(frozen=True)
class MeasuredTable:
    """The measured rows by their keys, and ``problems``, {key: why that row could not be computed}.

    ``device`` is the device of the computation, ``benchmark`` the digest of the images. ``choice`` is the choice of the
    run that measured the rows. ``references`` are the ids of the models of the first rows: "pretrained" and each
    expert's task. ``files`` are the measured files, which may differ from those that are pinned now.
    """

    device: str
    benchmark: str
    choice: Choice
    references: Mapping[str, str]
    files: MeasuredFiles
    rows: Mapping[str, MeasuredRow] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def with_row(self, one: MeasuredRow) -> MeasuredTable:
        """The table with a row, which replaces an earlier row or problem with its key."""
        problems = {key: problem for key, problem in self.problems.items() if key != find_row_key(one)}
        return replace(self, rows={**self.rows, find_row_key(one): one}, problems=problems)

    def with_problem(self, key: str, problem: str) -> MeasuredTable:
        """The table with the reason why a row could not be computed."""
        return replace(self, problems={**self.problems, key: problem})

    def sort_rows(self, experiment: Experiment, choice: Choice) -> list[MeasuredRow]:
        """The rows of a choice, in the order of the table."""
        keys = (PRETRAINED, INDIVIDUAL, *(variant.key for variant in list_variants(experiment, choice)))
        return [self.rows[key] for key in keys if key in self.rows]

    def describe_problems(self, experiment: Experiment, choice: Choice) -> tuple[str, ...]:
        """Sentences on the rows that are missing in the table."""
        titles = {variant.key: variant.title for variant in list_variants(experiment, choice)}
        return tuple(
            f"{titles[key]} was not computed: {problem}" for key, problem in self.problems.items() if key in titles
        )


def find_row_key(one: MeasuredRow) -> str:
    """The key of a row in a table."""
    return one.row if isinstance(one.row, str) else one.row.key


def write_measured(folder: Path, measured: MeasuredTable) -> None:
    """Store the measured rows."""
    rows = {
        key: {
            "run": one.run,
            "scores": {task: {"accuracy": score.accuracy, "n": score.n} for task, score in one.scores.items()},
            "right": {task: _pack_answers(right) for task, right in (one.right or {}).items()},
        }
        for key, one in measured.rows.items()
    }
    content = {"device": measured.device, "benchmark": measured.benchmark, "problems": dict(measured.problems)}
    provenance = {
        "choice": measured.choice.to_plain(),
        "files": measured.files.to_plain(),
        "references": dict(measured.references),
    }
    write_json(folder / MEASURED_FILE, content | provenance | {"rows": rows})


def read_measured_choice(folder: Path) -> Choice | None:
    """The choice with which the rows in a folder were measured; None if there are none."""
    path = folder / MEASURED_FILE
    return _parse_choice(CatalogueFields(read_mapping(path), MEASURED_FILE)) if path.is_file() else None


def read_measured(folder: Path, experiment: Experiment, choice: Choice) -> MeasuredTable:
    """The measured rows of a choice; ``MeasuredTable.choice`` is the choice with which they were measured.

    Raises:
        TaskError: there are none, or the file cannot be read.
    """
    path = folder / MEASURED_FILE
    if not path.is_file():
        raise TaskError(f"{experiment.key} has no measured row yet. `published run {experiment.key}` computes them.")
    outer = CatalogueFields(read_mapping(path), MEASURED_FILE)
    device, benchmark, rows = (
        outer.read_text("device"),
        outer.read_text("benchmark", empty=True),
        outer.read_mapping_field("rows"),
    )
    problems = {str(key): str(problem) for key, problem in outer.read_mapping_field("problems").items()}
    measured_choice, files = _parse_choice(outer), _parse_files(outer.read_mapping_field("files"))
    ids = {str(name): str(each) for name, each in outer.read_mapping_field("references").items()}
    outer.refuse_unknown()
    row_by_key: dict[str, str | RowVariant] = {PRETRAINED: PRETRAINED, INDIVIDUAL: INDIVIDUAL}
    row_by_key |= {variant.key: variant for variant in list_variants(experiment, choice)}
    measured_rows = {
        key: _parse_row(row, CatalogueFields(rows[key], f"{MEASURED_FILE}, {key}"))
        for key, row in row_by_key.items()
        if key in rows
    }
    return MeasuredTable(device, benchmark, measured_choice, ids, files, measured_rows, problems)


def _parse_choice(outer: CatalogueFields) -> Choice:
    return Choice.from_plain(outer.read_mapping_field("choice"), f"{MEASURED_FILE}, choice")


def _parse_files(stated: Mapping[str, Any]) -> MeasuredFiles:
    entry = CatalogueFields(stated, f"{MEASURED_FILE}, files")
    files = MeasuredFiles(entry.read_texts("latest"), entry.read_texts("pinned"))
    entry.refuse_unknown()
    return files


def _parse_row(row: str | RowVariant, entry: CatalogueFields) -> MeasuredRow:
    try:
        scores = {
            task: TaskScore(task, each["accuracy"], each["n"])
            for task, each in entry.read_mapping_field("scores").items()
        }
        right = {
            task: _unpack_answers(text, scores[task].n) for task, text in entry.read_mapping_field("right").items()
        }
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise TaskError(
            f"{entry.location}: it cannot be read ({error!r}). Delete {MEASURED_FILE}, and run it again."
        ) from None
    return MeasuredRow(row, scores, right or None, run=entry.read_text("run", empty=True))


def _pack_answers(right: NDArray[np.bool_]) -> str:
    """The answers (images,) as text, one bit per image."""
    return base64.b64encode(np.packbits(right).tobytes()).decode("ascii")


def _unpack_answers(text: Any, n: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text, validate=True), np.uint8))
    if not n <= len(bits) < n + 8:
        raise ValueError(f"{len(bits)} bits for {n} images")
    return bits[:n].astype(bool)
