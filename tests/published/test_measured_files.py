"""A table says of which files it was measured, whatever is pinned afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merging.base.errors import TaskError
from merging.models.hub.repository import RepositoryFile
from merging.sharing.published.catalogue import experiment
from merging.sharing.published.choice import choose
from merging.sharing.published.experiment_run import Place, place_of
from merging.sharing.published.lock import Lock, PinnedRepository, write_lock
from merging.sharing.published.measured_rows import FILE, MeasuredFiles, MeasuredTable, write_measured
from merging.sharing.published.rows import PRETRAINED
from merging.sharing.published.steps import keep_choice, kept_table
from merging.sharing.published.table import MeasuredRow, PublishedTable
from merging.sharing.published.verdicts import NOT_COMPARABLE, REPRODUCED, TaskScore

SMOKE = experiment("smoke")
NAME = SMOKE.models["hub"].pretrained.repository
NEEDED = {NAME, "ylecun/mnist"}
CATALOGUE, NEWER = "a" * 40, "b" * 40


def lock(revision: str, day: str) -> Lock:
    pinned = PinnedRepository(NAME, "model", revision, None, False, day, (RepositoryFile("config.json", 1),))
    return Lock({NAME: pinned}, (NAME,) if revision == NEWER else ())


def keep(place: Place, measured_on: Lock) -> None:
    """What a run leaves whose pretrained model has the printed accuracies."""
    choice = choose(SMOKE, images="all")
    scores = {one.key: TaskScore(one.key, x / 100, 10_000) for one, x in zip(SMOKE.tasks, (48.2, 46.0), strict=True)}
    table = MeasuredTable("one CPU", "", choice, {}, MeasuredFiles.of(measured_on, NEEDED))
    keep_choice(place, choice)
    write_measured(place.folder, table.with_row(MeasuredRow(PRETRAINED, scores)))
    write_lock(place.folder, measured_on)


def verdict(table: PublishedTable) -> str:
    return table.rows[0].inside.verdict.word


@pytest.mark.parametrize(("first", "then"), [(NEWER, CATALOGUE), (CATALOGUE, NEWER)], ids=["newer", "catalogue"])
def test_a_later_lock_does_not_relabel_what_was_measured(tmp_path: Path, first: str, then: str) -> None:
    place = place_of("smoke", tmp_path)
    keep(place, lock(first, "2026-11-01"))
    before = kept_table(SMOKE, place)
    assert verdict(before) == (NOT_COMPARABLE if first == NEWER else REPRODUCED)
    assert (f"not the catalogue's files: {NAME}" in before.notes) == (first == NEWER)
    assert "Files as pinned at the first fetch (2026-11-01)." in before.notes
    write_lock(place.folder, lock(then, "2026-11-20"))
    assert kept_table(SMOKE, place) == before


@pytest.mark.parametrize("lost", ["choice", "files", "references"])
def test_a_table_that_does_not_say_what_it_is_of_is_refused(tmp_path: Path, lost: str) -> None:
    place = place_of("smoke", tmp_path)
    keep(place, lock(CATALOGUE, "2026-11-01"))
    path = place.folder / FILE
    written = json.loads(path.read_text("utf-8"))
    del written[lost]
    path.write_text(json.dumps(written), "utf-8")
    with pytest.raises(TaskError, match=f"field {lost} is missing"):
        kept_table(SMOKE, place)
