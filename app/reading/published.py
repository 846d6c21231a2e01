"""Published figures beside our own: which stored run belongs to which line of a paper, and the table of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import data
from app.reading.score_tables import NAMES
from merging.benchmarks.metrics import Summary, summarize
from merging.errors import MergingError
from merging.recipes.papers.published import B32, L14, REFERENCES, Figure
from merging.runs.run import PRECOMPUTED, Run
from viz.text import clean_text, percent

if TYPE_CHECKING:
    import pandas as pd

PRINTED = "#6B7280"  # the color of figures that are not ours
HELP = {
    "In": "Mean accuracy over the in-domain data sets.",
    "Out": "Mean accuracy over the out-of-domain data sets.",
    "H": "Harmonic mean of the two.",
    "Norm.": "Normalized accuracy: mean over in-domain tasks of the accuracy over the task's own expert.",
}


# Published figures and ours never share a mark.
PUBLISHED, OURS = "◇ published", "● measured here"
MODELS = {model: f"{PUBLISHED}, {model}" for model in (B32, L14)}
AVERAGES = ("In", "Out", "H", "Norm.")
INTERVALS = ("In, 95%", "Out, 95%")
CHAIN, SOURCE, NOTE = ("", "Chain"), ("", "Source"), ("", "Note")
Line = dict[tuple[str, str], str]
Steps = list[tuple[dict[str, Any], dict[str, Any]]]


@dataclass(frozen=True)
class Row:
    """One chain: what a paper printed for it, by model, and our run of the same chain."""

    name: str
    figures: Mapping[str, Figure]
    run: Run | None


def rows(figures: Sequence[Figure], runs: Sequence[Run]) -> list[Row]:
    """One row for each line of a paper's table, then the precomputed runs that no paper reports."""
    lines: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        lines.setdefault((figure.name, figure.source), {})[figure.model] = figure
    names = [name.casefold() for name, _ in lines]
    found = [
        Row(
            name if names.count(name.casefold()) == 1 else f"{name} ({source.split(',')[0]})", line, _beside(line, runs)
        )
        for (name, source), line in lines.items()
    ]
    shown = {row.run.id for row in found if row.run}
    others = [run for run in runs if run.provenance == PRECOMPUTED and run.id not in shown]
    return found + [Row(run.title, {}, run) for run in others]


def _beside(figures: Mapping[str, Figure], runs: Sequence[Run]) -> Run | None:
    """The run of the same chain with every value that the paper states; what it leaves open had best be default."""
    for figure in figures.values():
        if not figure.unstated:
            keys = tuple(key for key, _ in figure.chain)
            ranked = [(rank, run) for run in runs if run.chain == keys and (rank := _rank(figure, run)) is not None]
            if ranked:
                return min(ranked, key=lambda pair: pair[0])[1]
    return None


def _rank(figure: Figure, run: Run) -> tuple[int, bool] | None:
    """How far a run is from a figure's chain, None if it is another chain; precomputed runs come first."""
    steps, exemplars = _recipe(run.id, run)
    if not steps or (figure.exemplars and exemplars and figure.exemplars != exemplars):
        return None
    if not figure.is_of(zip(run.chain, (values for values, _ in steps), strict=True)):
        return None
    others = 0
    for (_, stated), (values, defaults) in zip(figure.chain, steps, strict=True):
        others += sum(value != defaults[name] for name, value in values.items() if name not in stated)
    return others, run.provenance != PRECOMPUTED


@st.cache_data(max_entries=1000, show_spinner=False)
def _recipe(run_id: str, _run: Run) -> tuple[Steps, int | None]:
    """Values and defaults of each step, and exemplars per task; no steps if this version does not know the chain."""
    try:
        recipe = _run.recipe
    except MergingError:
        recipe = None
    if recipe is None:
        return [], None
    steps = [(step.params.values(), type(step.params)().values()) for step in recipe.steps]
    return steps, recipe.exemplars.per_task if recipe.exemplars else None


def table(rows: Sequence[Row], stored: Sequence[Run]) -> pd.DataFrame:
    """Both groups of columns under their own heads, then the reference models; cells are plain text.

    The source stands before the figures: after both groups it would be out of sight.
    """
    import pandas as pd

    cells = [_printed(row.name, row.figures) | _measured(row.run, stored) for row in rows]
    references = _references(rows, stored)
    frame = pd.DataFrame(cells + references).fillna("")
    printed = [(model, name) for model in MODELS.values() for name in AVERAGES]
    measured = [(OURS, name) for name in (*AVERAGES, *INTERVALS, "Images", "Setting")]
    told = {column for line in cells for column, cell in line.items() if cell}
    told |= {NOTE for line in references if line.get(NOTE)}  # else references alone add no column
    used = [column for column in (CHAIN, SOURCE, *printed, *measured, NOTE) if column in told]
    frame = frame[used]
    frame.columns = pd.MultiIndex.from_tuples(used)
    return frame


def _printed(name: str, figures: Mapping[str, Figure]) -> Line:
    found = {CHAIN: clean_text(name)}
    for model, figure in figures.items():
        normalized = None if figure.normalized is None else round(figure.normalized, 1)
        accuracies = (*figure.printed[:3], normalized)
        shown = {name: value for name, value in zip(AVERAGES, accuracies, strict=True) if value is not None}
        found |= {(MODELS[model], name): _as_printed(value) for name, value in shown.items()}
        found |= {SOURCE: figure.source, NOTE: figure.note}
    return found


def _as_printed(value: float) -> str:
    return f"{value:.1f}%" if abs(value - round(value, 1)) < 1e-9 else f"{value:.2f}%"


def _measured(run: Run | None, stored: Sequence[Run]) -> Line:
    summary = data.summary(run, stored) if run else None
    if run is None or summary is None:
        return {}
    exemplars = _recipe(run.id, run)[1]
    said = (f"{exemplars} exemplars per task" if exemplars else "", "" if run.seed is None else f"seed {run.seed}")
    setting = ", ".join(filter(None, (*said, clean_text(run.device, 40))))
    return _averages(summary) | {(OURS, "Setting"): setting}


def _averages(found: Summary) -> Line:
    cells = (
        *map(percent, (found.in_domain, found.out_of_domain, found.h_score, found.normalized)),
        f"{percent(found.in_low)} to {percent(found.in_high)}",
        f"{percent(found.out_low)} to {percent(found.out_high)}",
        f"{found.n_in:,} in, {found.n_out:,} out",
    )
    return {(OURS, name): cell for name, cell in zip((*AVERAGES, *INTERVALS, "Images"), cells, strict=True)}


def _references(rows: Sequence[Row], stored: Sequence[Run]) -> list[Line]:
    """The pretrained model, the experts and the model trained on all tasks, in the same columns."""
    run = next((row.run for row in rows if row.run), None)
    measured = _of_references(run.benchmark, run.experts, len(stored), stored) if run else {}
    printed = any(row.figures for row in rows)
    found = []
    for kind, figures in REFERENCES.items():
        line = _printed(NAMES[kind], {figure.model: figure for figure in figures if printed}) | measured.get(kind, {})
        if len(line) > 1:
            found.append(line)
    return found


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def _of_references(
    benchmark: str | None, experts: tuple[str, ...], stored_known: int, _stored: Sequence[Run]
) -> dict[str, Line]:
    tables = data.reference_scores(benchmark, experts, _stored)
    own = {task: row["accuracy"] for task, row in data.expert_scores(benchmark, _stored).items()}
    return {kind: _averages(summarize(scores, experts, own, data.SPLIT)) for kind, scores in tables.items()}
