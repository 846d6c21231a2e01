"""The papers' comparisons of a method with Task Arithmetic on its card, beside our runs of both."""

from __future__ import annotations

from collections.abc import Sequence

from app.reading.papers import paper_facts, published_tables
from app.reading.papers.published_tables import PaperRow
from app.widgets import paper_line
from merging.recipes.papers.claims import compare_figures
from merging.recipes.papers.published_figures import FIGURES, Figure
from merging.study.runs.run import Run

BASE_METHOD = "task_arithmetic"
MAX_LINES = 3  # lines; the tables of the card show all figures


def draw_paper_lines(rows: Sequence[PaperRow], runs: Sequence[Run]) -> None:
    """Draw a line for each of the first rows that have a run and whose paper prints Task Arithmetic, too."""
    pairs, used_runs = [], []
    for row in rows:
        figure, run = row.figures.get(published_tables.main_tower()), row.run
        base_figure = _find_base_figure(figure) if figure else None
        if figure is None or base_figure is None or run is None or run.per_task:
            continue
        base_run = published_tables.match_rows([base_figure], runs)[0].run
        comparison = paper_facts.compare_runs(run, base_run, over="in") if base_run else None
        pairs.append((compare_figures(figure, base_figure), comparison))
        used_runs += [run, *([base_run] if base_run else [])]
    # Without a named source, the sentences name the benchmark's library of runs.
    source = "" if all(map(paper_facts.may_be_source, used_runs)) else paper_line.PAGE_ORIGIN
    paper_line.draw_claims(paper_line.compare_claims(pairs[:MAX_LINES], source))


def _find_base_figure(figure: Figure) -> Figure | None:
    """Task Arithmetic alone in the same tables as a figure of another chain; None if there is none."""
    if figure.uses_unstated_values or _is_base(figure):
        return None
    figures_of_table = (other for other in FIGURES if (other.source, other.model) == (figure.source, figure.model))
    return next((other for other in figures_of_table if _is_base(other) and not other.uses_unstated_values), None)


def _is_base(figure: Figure) -> bool:
    return [key for key, _ in figure.chain] == [BASE_METHOD] and not figure.adapt
