"""Rows of references that were measured before are taken for the same models alone, whatever was chosen then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from merging.models.hub.repository import RepositoryFile
from merging.sharing.published import reference_scores
from merging.sharing.published.accuracy_verdicts import TaskScore
from merging.sharing.published.choice import make_choice
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_run import ExperimentRun, find_folders
from merging.sharing.published.measured_rows import MEASURED_FILE, MeasuredFiles, MeasuredTable, write_measured
from merging.sharing.published.repository_lock import Lock, PinnedRepository, write_lock
from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED, list_variants

SMOKE = read_experiment("smoke")
IDS = {"pretrained": "p", "mnist": "m", "eurosat": "e"}
BENCHMARK: Any = SimpleNamespace(digest="of these images", experts={"mnist": "", "eurosat": ""})
ALL = {PRETRAINED, INDIVIDUAL, "averaging"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentRun:
    """A run whose rows were all measured, with models of these ids."""
    models(monkeypatch)
    choice, scores = make_choice(SMOKE, rows=["averaging"]), {"mnist": TaskScore("mnist", 0.5, 10)}
    rows = (PRETRAINED, INDIVIDUAL, list_variants(SMOKE, choice)[0])
    table = MeasuredTable("one CPU", BENCHMARK.digest, choice, IDS, MeasuredFiles((), ()))
    for each in rows:
        table = table.with_row(MeasuredRow(each, scores))
    place = find_folders("smoke", tmp_path)
    place.folder.mkdir(parents=True)
    write_measured(place.folder, table)
    return ExperimentRun(SMOKE, choice, place, "cpu")


def models(monkeypatch: pytest.MonkeyPatch, **ids: str) -> None:
    """Let the models have these ids, and those of IDS."""
    monkeypatch.setattr(reference_scores, "reference_id", lambda benchmark, name: {**IDS, **ids}[name])


@pytest.mark.parametrize("changed", [{}, {"eurosat": "of another file"}], ids=["the same models", "another expert"])
def test_rows_are_written_with_what_is_pinned_now(
    run: ExperimentRun, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    models(monkeypatch, **changed)
    name = "tanganke/eurosat"
    pins = {each: PinnedRepository(each, "dataset", "a" * 40, None, False, day, (RepositoryFile("a", 1),))
            for each, day in ((name, "2026-11-02"), ("of/another", "2026-11-09"))}  # fmt: skip
    write_lock(run.folders.folder, replace(Lock(pins), latest=(name, "of/another")))
    files = MeasuredFiles((name,), ("2026-11-02",))
    assert reference_scores.find_measured(run, BENCHMARK).files == files
    (run.folders.folder / MEASURED_FILE).unlink()
    assert reference_scores.find_measured(run, BENCHMARK).files == files


def known(run: ExperimentRun) -> set[str]:
    table = reference_scores.find_measured(run, BENCHMARK)
    assert table.choice == run.choice
    assert table.references == {name: reference_scores.reference_id(BENCHMARK, name) for name in IDS}
    return set(table.rows)


def test_everything_is_known_of_the_same_models(run: ExperimentRun) -> None:
    assert known(run) == ALL


def test_other_experts_are_measured_again_and_so_are_rows_of_them(
    run: ExperimentRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    models(monkeypatch, eurosat="of another file")
    assert known(run) == {PRETRAINED}
    folder = replace(run, choice=make_choice(SMOKE, experts=str(tmp_path), rows=["averaging"]))
    assert known(folder) == {PRETRAINED}
    models(monkeypatch)
    assert known(folder) == {PRETRAINED, INDIVIDUAL}  # the same files, wherever they are


def test_another_pretrained_model_is_measured_again(run: ExperimentRun, monkeypatch: pytest.MonkeyPatch) -> None:
    models(monkeypatch, pretrained="of another file")
    assert known(run) == {INDIVIDUAL}
