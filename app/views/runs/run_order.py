"""The search and the order of the runs on Home. Loads torch and pandas only for an order by score."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.reading import page_data
from merging.study.runs.run import Run
from viz.figure_text import clean_text

ORDER_FIELDS = {"own runs first": "", "H-score": "h_score", "in-domain": "in_domain", "out-of-domain": "out_of_domain"}


def find_runs(runs: Sequence[Run], query: str) -> list[Run]:
    """The runs whose title, chain, experts or id contain all the words."""
    search_words = query.casefold().split()
    return [run for run in runs if all(word in _make_searched_text(run) for word in search_words)]


def _make_searched_text(run: Run) -> str:
    return " ".join([clean_text(f"{run.name} {run.title}", 500), *run.chain, *run.experts, run.id]).casefold()


def sort_runs(runs: Sequence[Run], order: str, stored_runs: Sequence[Run]) -> list[Run]:
    """The runs in one of ``ORDER_FIELDS``, best first; those without a score come last."""
    score_field = ORDER_FIELDS[order]
    return (
        sorted(runs, key=lambda run: _read_score(run, score_field, stored_runs), reverse=True)
        if score_field
        else list(runs)
    )


def _read_score(run: Run, field: str, stored_runs: Sequence[Run]) -> float:
    summary = page_data.summary(run, stored_runs)
    value = math.nan if summary is None else float(getattr(summary, field))
    return -1.0 if math.isnan(value) else value
