"""Published figures next to ours: the stored run for each row of a paper's tables, and the table of both.

A figure is one row of a paper's table for one tower: the accuracies of a chain. A tower is an image encoder's
architecture, such as ViT-B/32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.score_tables import REFERENCE_NAMES
from app.session import benchmark_choice, view_state
from merging.base.errors import MergingError
from merging.images.benchmarks.benchmark_folders import state_of
from merging.images.benchmarks.metrics import Summary, summarize
from merging.recipes.papers.published_figures import AVERAGES as PRINTED_AVERAGES
from merging.recipes.papers.published_figures import B32, L14, NORMALIZED, REFERENCES, TOWER_NAMES, Figure
from merging.study.runs.run import PRECOMPUTED, Run
from viz import theme
from viz.figure_text import clean_text, percent

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED_COLORS = {False: "#6B7280", True: "#98A2AE"}  # the color of published figures on a light and on a dark ground
COLUMN_HELP = {
    "In": "Mean accuracy over the in-domain data sets.",
    "Out": "Mean accuracy over the out-of-domain data sets.",
    "H": "Harmonic mean of the two.",
    "Passes": "Over the tensors of all checkpoints, including the pass that merges.",
    "Norm.": "Normalized accuracy: mean over in-domain tasks of the accuracy over the task's own expert.",
}


# Published figures and figures measured here never share a mark.
PUBLISHED, OURS = "◇ published", "● measured here"
COMPUTED_MARK = "*"
COMPUTED_NOTE = (
    "Marked *: not printed in the source, but computed by us from printed accuracies. Normalized accuracy is the mean "
    "over tasks of the printed accuracy relative to the printed accuracy of the task's expert."
)
TOWER_HEADS = {model: f"{PUBLISHED}, {model}" for model in TOWER_NAMES}
COMPARED_TOWERS = (B32, L14)  # towers whose columns come before ours; columns of other towers follow
AVERAGES = ("In", "Out", "H", "Norm.")
INTERVALS = ("In, 95%", "Out, 95%")
CELL_FONT, CELL_MARGINS, MAX_CELL_WIDTH = 11, 20, 260  # px; the font is 14, but narrower than those of charts
CHAIN, SOURCE, NOTE = ("", "Chain"), ("", "Source"), ("", "Note")
Line = dict[tuple[str, str], str]  # cells of a row of the table, by the two heads of their columns
Steps = list[tuple[dict[str, Any], dict[str, Any]]]  # values and defaults of the parameters of each step


@dataclass(frozen=True)
class PaperRow:
    """One chain: a paper's figures by model, and the stored run of the same chain."""

    name: str
    figures: Mapping[str, Figure]
    run: Run | None


def printed_color() -> str:
    """The color of published figures in tables."""
    return PUBLISHED_COLORS[view_state.has_dark_ground()]


def benchmark_tower() -> str:
    """The published tower of this session's benchmark models; empty if they have another one."""
    folder = benchmark_choice.benchmark_folder()
    return _find_tower(folder, state_of(folder))


@lru_cache(maxsize=page_data.MAX_CACHED)
def _find_tower(folder: Path, state: tuple[int, ...]) -> str:
    from merging.models.architecture import Architecture
    from merging.models.inspection.checkpoint_facts import published_tower

    try:
        return published_tower(Architecture.from_checkpoint(page_data.benchmark().open_pretrained()))
    except MergingError:
        return ""


def main_tower() -> str:
    """The tower of the published figures next to ours: the benchmark's tower, else the one that most papers print."""
    return benchmark_tower() or B32


def match_rows(figures: Sequence[Figure], runs: Sequence[Run]) -> list[PaperRow]:
    """One row for each row of a paper's tables, then one for each precomputed run that no paper reports.

    A paper's tables for several towers share a row, with columns for every tower. If the benchmark has a published
    tower, only figures of that tower are shown.
    """
    tower, lines = benchmark_tower(), dict[tuple[str, str], dict[str, Figure]]()
    for figure in [candidate for candidate in figures if tower in {"", candidate.model}]:
        lines.setdefault((figure.name, figure.source.split(",")[0]), {})[figure.model] = figure
    names = [name.casefold() for name, _ in lines]
    paper_rows = [
        PaperRow(name if names.count(name.casefold()) == 1 else f"{name} ({paper})", line, _find_same_chain(line, runs))
        for (name, paper), line in lines.items()
    ]
    matched = {row.run.id for row in paper_rows if row.run}
    unmatched = [run for run in runs if run.provenance == PRECOMPUTED and run.id not in matched]
    return paper_rows + [PaperRow(run.name, {}, run) for run in unmatched]


def _find_same_chain(figures: Mapping[str, Figure], runs: Sequence[Run]) -> Run | None:
    """The run of the same chain with every value that the paper states, preferably with defaults for the others."""
    for figure in figures.values():
        if not figure.uses_unstated_values:
            keys = tuple(key for key, _ in figure.chain)
            ranked = [(rank, run) for run in runs if run.chain == keys and (rank := _rank_run(figure, run)) is not None]
            if ranked:
                return min(ranked, key=lambda pair: pair[0])[1]
    return None


def _rank_run(figure: Figure, run: Run) -> tuple[int, bool] | None:
    """A run's distance from a figure's chain, None if it is another chain; precomputed runs come first."""
    steps, adapt, exemplars = _read_recipe_values(run.id, run)
    if not steps or (figure.exemplars and exemplars and figure.exemplars != exemplars):
        return None
    adapt_steps = [(run.adapt, values) for values, _ in adapt]
    if not figure.matches_chain(zip(run.chain, (values for values, _ in steps), strict=True), adapt_steps):
        return None
    changed_count = 0
    for (_, stated), (values, defaults) in zip(figure.chain + figure.adapt, steps + adapt, strict=True):
        changed_count += sum(value != defaults[name] for name, value in values.items() if name not in stated)
    return changed_count, run.provenance != PRECOMPUTED


@st.cache_data(max_entries=1000, show_spinner=False)
def _read_recipe_values(run_id: str, _run: Run) -> tuple[Steps, Steps, int | None]:
    """Values and defaults of each step and of the adapt, if there is one, and exemplars per task.

    No steps for an unknown chain.
    """
    try:
        recipe = _run.recipe
    except MergingError:
        recipe = None
    if recipe is None:
        return [], [], None
    stages = [(step.params.values(), type(step.params)().values()) for _, step in recipe.stages]
    steps = len(recipe.steps)
    return stages[:steps], stages[steps:], recipe.exemplars.per_task if recipe.exemplars else None


def paper_table(rows: Sequence[PaperRow], stored: Sequence[Run]) -> pd.DataFrame:
    """The rows, then the reference models, with published and measured columns under their own heads; plain text.

    The column of sources comes before the figures: after both groups of columns it would be out of sight.
    """
    import pandas as pd

    cells = [_make_printed_line(row.name, row.figures) | _make_measured_line(row.run, stored) for row in rows]
    references = _list_references(rows, stored)
    frame = pd.DataFrame(cells + references).fillna("")
    printed = {tower: [(model, name) for name in AVERAGES] for tower, model in TOWER_HEADS.items()}
    before = [column for tower, columns in printed.items() if tower in COMPARED_TOWERS for column in columns]
    after = [column for tower, columns in printed.items() if tower not in COMPARED_TOWERS for column in columns]
    measured = [(OURS, name) for name in (*AVERAGES, *INTERVALS, "Images", "Setting")]
    filled = {column for line in cells for column, cell in line.items() if cell}
    filled |= {NOTE for line in references if line.get(NOTE)}  # references add no other column by themselves
    columns_in_use = [column for column in (CHAIN, SOURCE, *before, *measured, *after, NOTE) if column in filled]
    frame = frame[columns_in_use]
    frame.columns = pd.MultiIndex.from_tuples(columns_in_use)
    return frame


def _make_printed_line(name: str, figures: Mapping[str, Figure]) -> Line:
    cells = {CHAIN: clean_text(name)}
    for model, figure in figures.items():
        cells |= {(TOWER_HEADS[model], head): cell for head, cell in _format_printed(figure).items()}
    if not figures:
        return cells
    sources = dict.fromkeys(figure.source for figure in figures.values())
    notes = dict.fromkeys(note for figure in figures.values() for note in _list_notes(figure, len(figures) > 1))
    return cells | {SOURCE: "; ".join(sources), NOTE: "; ".join(notes)}


def _list_notes(figure: Figure, of_several: bool) -> list[str]:
    """Notes on a figure: its own note, with its tower if there are ``of_several``, and the printed time."""
    tower = f"{figure.model}: " if of_several and figure.model not in COMPARED_TOWERS else ""
    time = "" if figure.seconds is None else f"{figure.model}: merging took {figure.seconds:g} s, device not stated"
    return [note for note in (f"{tower}{figure.note}" if figure.note else "", time) if note]


def _format_printed(figure: Figure) -> dict[str, str]:
    """A figure's averages by the heads of their columns; those that its source does not print are marked."""
    normalized = None if figure.normalized is None else round(figure.normalized, 1)
    values = zip(AVERAGES, (*PRINTED_AVERAGES, NORMALIZED), (*figure.printed[:3], normalized), strict=True)
    return {
        head: _format_value(value) + ("" if figure.is_printed(average) else f" {COMPUTED_MARK}")
        for head, average, value in values
        if value is not None
    }


def _format_value(value: float) -> str:
    """The value with one decimal, or with two where the source prints two."""
    return f"{value:.1f}%" if abs(value - round(value, 1)) < 1e-9 else f"{value:.2f}%"


def _make_measured_line(run: Run | None, stored: Sequence[Run]) -> Line:
    summary = page_data.summary(run, stored) if run else None
    if run is None or summary is None:
        return {}
    *_, exemplars = _read_recipe_values(run.id, run)
    sources = (
        f"{page_text.per_task_in_words(run)} ‡" if page_text.per_task_in_words(run) else "",
        "† adapted on the scored images" if run.adapts_on_test else "",
        f"{exemplars} exemplars per task" if exemplars else "",
        "" if run.seed is None else f"seed {run.seed}",
    )
    setting = ", ".join(filter(None, (*sources, clean_text(run.device, 40))))
    return _format_summary(summary) | {(OURS, "Setting"): setting}


def _format_summary(summary: Summary) -> Line:
    cells = (
        *map(percent, (summary.in_domain, summary.out_of_domain, summary.h_score, summary.normalized)),
        f"{percent(summary.in_low)} to {percent(summary.in_high)}",
        f"{percent(summary.out_low)} to {percent(summary.out_high)}",
        f"{summary.n_in:,} in, {summary.n_out:,} out",
    )
    return {(OURS, name): cell for name, cell in zip((*AVERAGES, *INTERVALS, "Images"), cells, strict=True)}


def _list_references(rows: Sequence[PaperRow], stored: Sequence[Run]) -> list[Line]:
    """The pretrained model, the experts and the model trained on all tasks, in the same columns."""
    run = next((row.run for row in rows if row.run), None)
    measured = _reference_lines(run.benchmark, run.experts, len(stored), stored) if run else {}
    towers = {tower for row in rows for tower in row.figures}
    lines = []
    for kind, figures in REFERENCES.items():
        first_figures = {figure.model: figure for figure in reversed(figures)}  # the first of each tower in the file
        shown_figures = {
            tower: first_figures[tower] for tower in TOWER_HEADS if tower in first_figures and tower in towers
        }
        line = _make_printed_line(REFERENCE_NAMES[kind], shown_figures) | measured.get(kind, {})
        if len(line) > 1:
            lines.append(line)
    return lines


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _reference_lines(
    benchmark: str | None, experts: tuple[str, ...], stored_known: int, _stored: Sequence[Run]
) -> dict[str, Line]:
    tables = page_data.reference_scores(benchmark, experts, _stored)
    expert_accuracies = {task: row["accuracy"] for task, row in page_data.expert_scores(benchmark, _stored).items()}
    return {
        kind: _format_summary(summarize(scores, experts, expert_accuracies, page_data.SCORED_SPLIT))
        for kind, scores in tables.items()
    }


def column_settings(table: pd.DataFrame) -> dict[int, Any]:
    """Settings of the columns of ``paper_table`` by index: each wide enough for its cells and for both of its heads."""
    widths = [max(_cell_width(text) for text in (name, *table[group, name])) for group, name in table.columns]
    groups = [group for group, _ in table.columns]
    for group in set(groups) - {""}:
        indices = [index for index, other_group in enumerate(groups) if other_group == group]
        missing_width = _cell_width(group) - sum(widths[index] for index in indices)
        for index in indices:
            widths[index] += max(0, math.ceil(missing_width / len(indices)))
    return {  # column 0 of the shown table is its index
        index + 1: _make_column(group, name, width)
        for index, ((group, name), width) in enumerate(zip(table.columns, widths, strict=True))
    }


def _cell_width(cell: str) -> int:
    """The width of a cell with its margins, px, at most ``MAX_CELL_WIDTH``."""
    return min(round(theme.text_width(cell, CELL_FONT)) + CELL_MARGINS, MAX_CELL_WIDTH)


def _make_column(group: str, name: str, width: int) -> Any:
    if not group:
        return st.column_config.TextColumn(width=width, pinned=name == CHAIN[1], help=COLUMN_HELP.get(name))
    right = name in COLUMN_HELP or name.endswith("change")
    return st.column_config.TextColumn(width=width, alignment="right" if right else "left", help=COLUMN_HELP.get(name))
