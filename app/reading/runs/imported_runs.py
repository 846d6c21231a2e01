"""Imported scores, from files and programs: runs that have them, and their table. Never mixed with measured scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app import page_text
from app.reading import page_data
from merging.base.files import atomic
from merging.models.model_references import PRETRAINED, expert_key
from merging.study import imported_scores as stored_scores
from merging.study.runs.run import Run
from merging.study.score_table import ScoreTable

if TYPE_CHECKING:
    import pandas as pd

NO_SCORES = "This run has no scores. Import them from a file, or start the app with MERGESCOPE_EVALUATOR."
CLIP_NAME, EXPERT_PREFIX = "CLIP", expert_key("")


def find_scores(name: str) -> ScoreTable | None:
    """The imported scores of a run (by its id) or of a checkpoint (by its name); None if there are none."""
    root = page_data.store().root
    state = atomic.fingerprint_files(root / stored_scores.FOLDER / name, (atomic.MANIFEST, stored_scores.FACTS))
    return _find_scores(root, name, state) if state else None


@lru_cache(maxsize=256)
def _find_scores(root: Path, name: str, state: tuple[int, ...]) -> ScoreTable | None:
    return stored_scores.find_scores(root, name)


def network_kind(run: Run) -> str:
    """The name of a run's network."""
    return run.network or CLIP_NAME


def runs_with_scores(runs: Sequence[Run]) -> list[Run]:
    """The runs that have imported scores."""
    ids = stored_scores.imported_scores(page_data.store().root).list_locations()
    return [run for run in runs if run.id in ids and find_scores(run.id)]


def imported_table(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each imported score of these runs and of their models; see ``viz.figures.score_bars``."""
    import pandas as pd

    sources: dict[str, tuple[str, Run]] = {}
    for run in runs:
        sources |= {name: (label, run) for name, label in scored_references(run).items() if name not in sources}
    rows = []
    for name, (label, run) in (sources | {run.id: (page_text.title_with_note(run), run) for run in runs}).items():
        table = find_scores(name)
        for row in table.rows(run.experts) if table else ():
            task = f"{row['task']}, {row['split']}" if row["split"] else row["task"]
            rows.append({"run": name, "label": label, **row, "task": task})
    return pd.DataFrame(rows)


def scored_references(run: Run) -> dict[str, str]:
    """{name of the scores: label} of the pretrained model and the experts of a run, if they have imported scores."""
    labels = {name: f"Expert {name.removeprefix(EXPERT_PREFIX)}" for name in run.inputs} | {PRETRAINED: "Pretrained"}
    names = {stored_scores.checkpoint_id(digest): labels[name] for name, digest in run.inputs.items()}
    return {name: label for name, label in names.items() if find_scores(name)}
