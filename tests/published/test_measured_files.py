"""A table says of which files it was measured, whatever is pinned afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merging.base.errors import TaskError
from merging.models.hub.repository import RepositoryFile
from merging.sharing.published.accuracy_verdicts import NOT_COMPARABLE, REPRODUCED, TaskScore
from merging.sharing.published.choice import make_choice
from merging.sharing.published.comparison_table import MeasuredRow, PublishedTable
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_run import ExperimentFolders, find_folders
from merging.sharing.published.experiment_steps import read_published_table, store_choice
from merging.sharing.published.measured_rows import MEASURED_FILE, MeasuredFiles, MeasuredTable, write_measured
from merging.sharing.published.repository_lock import Lock, PinnedRepository, write_lock
from merging.sharing.published.row_variants import PRETRAINED

SMOKE = read_experiment("smoke")
NAME = SMOKE.models["hub"].pretrained.repository
NEEDED = {NAME, "ylecun/mnist"}
CATALOGUE, NEWER = "a" * 40, "b" * 40


def lock(revision: str, day: str) -> Lock:
    pinned = PinnedRepository(NAME, "model", revision, None, False, day, (RepositoryFile("config.json", 1),))
    return Lock({NAME: pinned}, (NAME,) if revision == NEWER else ())


def keep(place: ExperimentFolders, measured_on: Lock) -> None:
    """What a run leaves whose pretrained model has the printed accuracies."""
    choice = make_choice(SMOKE, images="all")
    scores = {one.key: TaskScore(one.key, x / 100, 10_000) for one, x in zip(SMOKE.tasks, (48.2, 46.0), strict=True)}
    table = MeasuredTable("one CPU", "", choice, {}, MeasuredFiles.from_lock(measured_on, NEEDED))
    store_choice(place, choice)
    write_measured(place.folder, table.with_row(MeasuredRow(PRETRAINED, scores)))
    write_lock(place.folder, measured_on)


def verdict(table: PublishedTable) -> str:
    return table.rows[0].in_domain.verdict.word


@pytest.mark.parametrize(("first", "then"), [(NEWER, CATALOGUE), (CATALOGUE, NEWER)], ids=["newer", "catalogue"])
def test_a_later_lock_does_not_relabel_what_was_measured(tmp_path: Path, first: str, then: str) -> None:
    place = find_folders("smoke", tmp_path)
    keep(place, lock(first, "2026-11-01"))
    before = read_published_table(SMOKE, place)
    assert verdict(before) == (NOT_COMPARABLE if first == NEWER else REPRODUCED)
    assert (f"not the catalogue's files: {NAME}" in before.notes) == (first == NEWER)
    assert "The files were pinned at the first fetch (2026-11-01)." in before.notes
    write_lock(place.folder, lock(then, "2026-11-20"))
    assert read_published_table(SMOKE, place) == before


@pytest.mark.parametrize("lost", ["choice", "files", "references"])
def test_a_table_that_does_not_say_what_it_is_of_is_refused(tmp_path: Path, lost: str) -> None:
    place = find_folders("smoke", tmp_path)
    keep(place, lock(CATALOGUE, "2026-11-01"))
    path = place.folder / MEASURED_FILE
    written = json.loads(path.read_text("utf-8"))
    del written[lost]
    path.write_text(json.dumps(written), "utf-8")
    with pytest.raises(TaskError, match=f"field {lost} is missing"):
        read_published_table(SMOKE, place)
