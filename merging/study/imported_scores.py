"""Scores of runs and checkpoints that were measured outside this project, stored as one result for each of them.

A result is a folder with facts, tables and their hashes. ``source`` is the kind of source of the scores (a file or a
program), ``origin`` names the file or the program.
"""

from __future__ import annotations

from pathlib import Path

from merging.base.files import atomic
from merging.base.files.tables import SCORES
from merging.base.text import printable
from merging.study.score_table import MAX_ORIGIN_CHARACTERS, ScoreTable, read_score_table
from merging.tasks.pack_folders import list_pack_folders
from merging.tasks.quarantine import Quarantine
from merging.tasks.results import Result, ResultKind, Results

CHECKPOINT_DIGITS = 12  # of the digest of a checkpoint
FOLDER, FACTS = "imported_scores", "scores.json"
KIND = ResultKind("table of scores", FOLDER, FACTS, "Import its scores again.", table=SCORES)


def checkpoint_id(digest: str) -> str:
    """The name under which the scores of a checkpoint are stored; those of a run have its id as their name."""
    return digest[:CHECKPOINT_DIGITS]


def imported_scores(root: Path) -> Results[ScoreTable]:
    """The imported scores in the store at ``root`` and in opened packs, by the id of their run or checkpoint."""
    packs = [folder / FOLDER for folder in list_pack_folders(root)]
    return Results(KIND, _read_table, root, packs, damaged=Quarantine(root))


def find_scores(root: Path, name: str) -> ScoreTable | None:
    """The imported scores of a run or a checkpoint; None if it has none."""
    return imported_scores(root).find(name)


def store_scores(root: Path, name: str, table: ScoreTable) -> None:
    """Store the imported scores of a run or a checkpoint; they replace its earlier ones.

    Raises:
        StoreError: the disk cannot be written to.
    """
    # Writing the table puts its schema in the place of the empty SCORES.
    facts = {"source": table.source, "origin": printable(table.origin, MAX_ORIGIN_CHARACTERS), SCORES: {}}
    imported_scores(root).write(name, facts, {SCORES: table.columns}, what="The scores", replace=True)


def delete_scores(root: Path, name: str) -> None:
    """Remove the imported scores of a run, if it has any. Raises StoreError if they cannot be removed."""
    atomic.remove_entry(root / FOLDER / name, "The scores")


def _read_table(result: Result) -> ScoreTable | None:
    return read_score_table(result.columns(SCORES), str(result.facts["source"]), str(result.facts["origin"]))
