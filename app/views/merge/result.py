"""The result of a merge on the Merge page: its averages beside the references, and links to its charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import permission, text
from app.reading import data, samples, score_tables
from app.session import pages
from app.widgets import page, run_picker
from merging.base.modes import Act
from merging.images.benchmarks.metrics import Summary
from merging.study.runs.run import Run
from viz.text import percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

TO = "\u00a0to\u00a0"  # an interval stays on one line
THIS, BEST = "This run", "Best stored run"
NO_OTHER = "No other stored run merges these experts into one model, so there is no best one to show."
MISSING = "{} {} not stored for these models and this benchmark."
RANKED = "The best stored run has the highest {} of {} that merge{} the same experts, chosen on these same images."
SAME = "All rows: the same tasks, the {}, 95% intervals; n = {} images in domain, {} out of domain.{}"


def view(run: Run, stored: Sequence[Run]) -> None:
    """The averages beside those of the reference models, and links to the run's charts."""
    summary = data.summary(run, stored)
    with st.container(border=True, key="result"):
        st.markdown(f":material/check_circle: **{text.safe_text(run.name)}** is done. Run {run.id[:8]}.")
        run_picker.cautions(run)
        best = None
        if summary is None:
            reasons = " ".join(text.safe_text(reason, 300) for reason in run.not_evaluated)
            st.caption(reasons or "It was not evaluated.")
        else:
            _averages(summary)
            best = _beside(run, stored)
        for sentence in text.marks([run]):
            st.caption(sentence)
        with st.container(horizontal=True, vertical_alignment="center"):
            page.open_page(pages.MASKS, "See its masks", "grid_on", run=run.id)
            if run.adapted_on:
                page.open_page(pages.LEARNING, "See what it learned", "model_training", run=run.id)
            if summary is not None:
                page.open_page(pages.SCORES, "See its scores", "monitoring", runs=run.id)
            if best is not None:
                page.open_page(pages.COMPARE, "Compare with the best", "compare", run=run.id, run_b=best.id)
            if permission.allows(Act.EXPORT):
                page.open_page(pages.MODELS, "Export", "output", models_view="runs", selected_runs=run.id)
            run_picker.recipe_buttons(run, "result")


def _averages(s: Summary) -> None:
    """The three averages of the run."""
    with st.grid(3, min_column_width=130):
        _average("In-domain", s.in_domain, (s.in_low, s.in_high), s.tasks_in, s.n_in)
        _average("Out-of-domain", s.out_of_domain, (s.out_low, s.out_high), s.tasks_out, s.n_out)
        with st.container(gap="xsmall"):
            st.metric("H-score", percent(s.h_score))
            st.caption("harmonic mean of the two")


def _average(name: str, value: float, interval: tuple[float, float], tasks: int, n: int) -> None:
    """One average with its interval, tasks and images."""
    with st.container(gap="xsmall"):
        st.metric(name, percent(value))
        low, high = map(percent, interval)
        counts = f"{low} to {high}, {plural(tasks, 'task')}, n = {n:,}"
        st.caption(counts if tasks else "the benchmark has no such task")


def _beside(run: Run, stored: Sequence[Run]) -> Run | None:
    """A table of the run, the reference models and the best other run, on the same tasks; returns that run."""
    others = [
        other
        for other in run_picker.one_set([run, *data.scored_runs(stored)])[0][1:]
        if other.id != run.id and not other.needs_task and other.benchmark == run.benchmark
    ]
    table = score_tables.averages([run, *others], stored)
    by_score = "H-score" if table["h_score"].notna().any() else "in-domain average"
    best = _best(table, others, "h_score" if by_score == "H-score" else "in_domain")
    rows = list(_rows(table, run, best))
    columns = ("", "In-domain", "Out-of-domain", "H-score")
    st.table(
        {name: [row[place] for row in rows] for place, name in enumerate(columns)},
        border="horizontal", hide_index=True, alt="Averages of this run, of the reference models and of the best run",
    )  # fmt: skip
    lacking = [name for kind, name in score_tables.NAMES.items() if kind not in set(table["kind"])][:2]
    ranked = RANKED.format(by_score, plural(len(others), "stored run"), "s" if len(others) == 1 else "")
    sentences = [
        SAME.format(samples.part(), span(table["n_in"]), span(table["n_out"]), samples.sentence()),
        ranked if best else NO_OTHER,
        *([MISSING.format(text.listed(lacking), "is" if len(lacking) == 1 else "are")] if lacking else []),
    ]
    st.caption(" ".join(sentences))
    return best


def _best(table: pd.DataFrame, others: Sequence[Run], score: str) -> Run | None:
    """The other run with the highest score."""
    scores = dict(zip(table["run"], table[score], strict=True))
    known = [other for other in others if scores.get(other.id) == scores.get(other.id)]  # NaN differs from itself
    return max(known, key=lambda other: float(scores[other.id]), default=None)


def _rows(table: pd.DataFrame, run: Run, best: Run | None) -> Iterator[list[str]]:
    """Cells of each row: name, both averages with their intervals, H-score; Markdown."""
    by_run: dict[str, dict[Any, Any]] = {row["run"]: row for row in table.to_dict("records")}
    names = {run.id: f"**{THIS}**", **score_tables.NAMES}
    if best is not None:
        names[best.id] = f"{BEST}: {text.safe_text(best.name, 60)}"
    for key, name in names.items():
        if row := by_run.get(key):
            inside, outside = (
                f"{percent(row[mean])} ({percent(row[f'{side}_low'])}{TO}{percent(row[f'{side}_high'])})"
                if row[f"tasks_{side}"]
                else "no such task"
                for mean, side in (("in_domain", "in"), ("out_of_domain", "out"))
            )
            yield [name, inside, outside, percent(row["h_score"])]
