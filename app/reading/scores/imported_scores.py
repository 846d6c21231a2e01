"""Scores that runs were given: which runs have some, and their table. Never mixed with measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import text
from app.reading import data
from merging.checkpoints.references import PRETRAINED, expert_key
from merging.runs.given import scores as stored_scores
from merging.runs.given.scores import GivenScore
from merging.runs.given.summary import GivenSummary, summarized
from merging.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

NO_SCORES = "This run has no scores. Give them as a file, or start with MERGESCOPE_EVALUATOR."
CLIP, EXPERTS = "CLIP", expert_key("")


def of(run: Run) -> tuple[str, tuple[GivenScore, ...]]:
    """The file that a run's scores were given in, and the scores; an empty name if it was given none."""
    return _kept(run.id)


def _kept(key: str) -> tuple[str, tuple[GivenScore, ...]]:
    path = data.store().root / stored_scores.FOLDER / f"{key}.json"
    try:
        state = path.stat()
    except OSError:
        return "", ()
    return _of(str(data.store().root), key, state.st_mtime_ns, state.st_size)


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
    """A row for each score that these runs and what they merged were given; see ``viz.figures.scores.given_scores``."""
    import pandas as pd

    rows, known = [], set()
    for run in runs:
        for digest, label in references(run).items():
            if digest not in known:
                known.add(digest)
                rows += _rows(digest, label, run, *_kept(digest))
    for run in runs:
        rows += _rows(run.id, text.titled(run), run, *of(run))
    return pd.DataFrame(rows)


def references(run: Run) -> dict[str, str]:
    """{the name of its scores: label} of the pretrained model and the experts of a run that were given scores."""
    labels = {name: f"Expert {name.removeprefix(EXPERTS)}" for name in run.inputs} | {PRETRAINED: "Pretrained"}
    ids = {stored_scores.given_id(digest): labels[name] for name, digest in run.inputs.items()}
    return {digest: label for digest, label in ids.items() if _kept(digest)[1]}


def _rows(key: str, label: str, run: Run, file: str, scores: Sequence[GivenScore]) -> list[dict[str, Any]]:
    rows = []
    for score in scores:
        low, high = score.interval
        rows.append(
            {
                "run": key,
                "label": label,
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
    return rows
