"""Scores that runs were given: which runs have some, and their table. Never mixed with measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app import text
from app.reading import data
from merging.runs.given import scores as stored_scores
from merging.runs.given.scores import GivenScore
from merging.runs.given.summary import GivenSummary, summarized
from merging.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

NO_SCORES = "This run has no scores. Give them as a file, or start with MERGESCOPE_EVALUATOR."
CLIP = "CLIP"


def of(run: Run) -> tuple[str, tuple[GivenScore, ...]]:
    """The file that a run's scores were given in, and the scores; an empty name if it was given none."""
    path = data.store().root / stored_scores.FOLDER / f"{run.id}.json"
    try:
        state = path.stat()
    except OSError:
        return "", ()
    return _of(str(data.store().root), run.id, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _of(root: str, run_id: str, changed: int, size: int) -> tuple[str, tuple[GivenScore, ...]]:
    return stored_scores.given_scores(Path(root), run_id)


def summary(run: Run) -> GivenSummary | None:
    """Averages over the proportions that a run was given; None if there are none."""
    return summarized(of(run)[1], run.experts)


def kind(run: Run) -> str:
    """What a run's network is called."""
    return run.network or CLIP


def having(runs: Sequence[Run]) -> list[Run]:
    """The runs that were given scores."""
    ids = stored_scores.runs_with_scores(data.store().root)
    return [run for run in runs if run.id in ids and of(run)[1]]


def table(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each score that these runs were given; see ``viz.figures.scores.given_scores``."""
    import pandas as pd

    rows = []
    for run in runs:
        file, scores = of(run)
        for score in scores:
            low, high = score.interval
            rows.append(
                {
                    "run": run.id,
                    "label": text.titled(run),
                    "task": f"{score.task}, {score.split}" if score.split else score.task,
                    "in_domain": score.task in run.experts,
                    "metric": score.metric,
                    "value": score.value,
                    "low": low,
                    "high": high,
                    "n": float("nan") if score.n is None else score.n,
                    "better": score.better,
                    "proportion": score.proportion,
                    "source": file,
                }
            )
    return pd.DataFrame(rows)
