"""The result of a merge on the Merge page: its averages beside the references, and links to its charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text, permissions
from app.reading import page_data, samples, score_tables
from app.session import pages
from app.widgets import page_parts, run_picker
from merging.base.modes import VisitorAction
from merging.images.benchmarks.metrics import Summary
from merging.study.runs.run import Run
from viz.figure_text import percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

INTERVAL_TO = "\u00a0to\u00a0"  # non-breaking spaces, so that an interval does not wrap
THIS_RUN, BEST_RUN = "This run", "Best stored run"
NO_OTHER_RUN = "No other stored run merges these experts into one model, so there is no best one to show."
MISSING_REFERENCES = "{} {} not stored for these models and this benchmark."
RANKED_NOTE = "The best stored run has the highest {} of {} that merge{} the same experts, chosen on these same images."
IMAGES_NOTE = "All rows: the same tasks, the {}, 95% intervals; n = {} images in domain, {} out of domain.{}"


def draw_result(run: Run, stored_runs: Sequence[Run]) -> None:
    """Draw the averages beside those of the reference models, and links to the run's charts."""
    summary = page_data.summary(run, stored_runs)
    with st.container(border=True, key="result"):
        st.markdown(f":material/check_circle: **{page_text.safe_text(run.name)}** is done. Run {run.id[:8]}.")
        run_picker.draw_cautions(run)
        best = None
        if summary is None:
            reasons = " ".join(page_text.safe_text(reason, 300) for reason in run.evaluation_warnings)
            st.caption(reasons or "It was not evaluated.")
        else:
            _draw_averages(summary)
            best = _draw_comparison(run, stored_runs)
        for sentence in page_text.marks_in_words([run]):
            st.caption(sentence)
        with st.container(horizontal=True, vertical_alignment="center"):
            page_parts.draw_page_link(pages.RUN, "Open the run", "hub", run=run.id)
            page_parts.draw_page_link(pages.MASKS, "See its masks", "grid_on", run=run.id)
            if run.adapted_on:
                page_parts.draw_page_link(pages.LEARNING, "See what it learned", "model_training", run=run.id)
            if summary is not None:
                page_parts.draw_page_link(pages.SCORES, "See its scores", "monitoring", runs=run.id)
            if best is not None:
                page_parts.draw_page_link(pages.COMPARE, "Compare with the best", "compare", run=run.id, run_b=best.id)
            if permissions.is_allowed(VisitorAction.EXPORT):
                page_parts.draw_page_link(pages.MODELS, "Export", "output", models_view="runs", selected_runs=run.id)
            run_picker.draw_recipe_button(run, "result")


def _draw_averages(summary: Summary) -> None:
    """Draw the three averages of the run."""
    with st.grid(3, min_column_width=130):
        _draw_average("In-domain", summary.in_domain, (summary.in_low, summary.in_high), summary.tasks_in, summary.n_in)
        _draw_average(
            "Out-of-domain",
            summary.out_of_domain,
            (summary.out_low, summary.out_high),
            summary.tasks_out,
            summary.n_out,
        )
        with st.container(gap="xsmall"):
            st.metric("H-score", percent(summary.h_score))
            st.caption("harmonic mean of the two")


def _draw_average(name: str, value: float, interval: tuple[float, float], task_count: int, image_count: int) -> None:
    """Draw one average with its interval and its numbers of tasks and images."""
    with st.container(gap="xsmall"):
        st.metric(name, percent(value))
        low, high = map(percent, interval)
        counts = f"{low} to {high}, {plural(task_count, 'task')}, n = {image_count:,}"
        st.caption(counts if task_count else "the benchmark has no such task")


def _draw_comparison(run: Run, stored_runs: Sequence[Run]) -> Run | None:
    """Draw a table of the run, the reference models and the best other run on the same tasks; returns the best run."""
    other_runs = [
        other_run
        # The first group has the runs on the same models, this run first.
        for other_run in run_picker.group_by_models([run, *page_data.scored_runs(stored_runs)])[0][1:]
        if other_run.id != run.id and not other_run.needs_task and other_run.benchmark == run.benchmark
    ]
    table = score_tables.averages_table([run, *other_runs], stored_runs)
    score_name = "H-score" if table["h_score"].notna().any() else "in-domain average"
    best = _find_best(table, other_runs, "h_score" if score_name == "H-score" else "in_domain")
    rows = list(_list_rows(table, run, best))
    columns = ("", "In-domain", "Out-of-domain", "H-score")
    st.table(
        {name: [row[index] for row in rows] for index, name in enumerate(columns)},
        border="horizontal", hide_index=True, alt="Averages of this run, of the reference models and of the best run",
    )  # fmt: skip
    # The first two: the pretrained model and the individual experts.
    missing_names = [name for kind, name in score_tables.REFERENCE_NAMES.items() if kind not in set(table["kind"])][:2]
    ranked_note = RANKED_NOTE.format(
        score_name, plural(len(other_runs), "stored run"), "s" if len(other_runs) == 1 else ""
    )
    sentences = [
        IMAGES_NOTE.format(
            samples.scored_part(), span(table["n_in"]), span(table["n_out"]), samples.sampling_sentence()
        ),
        ranked_note if best else NO_OTHER_RUN,
    ]
    if missing_names:
        sentences.append(
            MISSING_REFERENCES.format(page_text.join_words(missing_names), "is" if len(missing_names) == 1 else "are")
        )
    st.caption(" ".join(sentences))
    return best


def _find_best(table: pd.DataFrame, other_runs: Sequence[Run], score: str) -> Run | None:
    """The run with the highest score; None if no run has a score."""
    scores = dict(zip(table["run"], table[score], strict=True))
    scored_runs = [other_run for other_run in other_runs if not math.isnan(scores.get(other_run.id, math.nan))]
    return max(scored_runs, key=lambda other_run: float(scores[other_run.id]), default=None)


def _list_rows(table: pd.DataFrame, run: Run, best: Run | None) -> Iterator[list[str]]:
    """The Markdown cells of each row: name, both averages with their intervals, H-score."""
    by_run: dict[str, dict[Any, Any]] = {row["run"]: row for row in table.to_dict("records")}
    names = {run.id: f"**{THIS_RUN}**", **score_tables.REFERENCE_NAMES}
    if best is not None:
        names[best.id] = f"{BEST_RUN}: {page_text.safe_text(best.name, 60)}"
    for key, name in names.items():
        if row := by_run.get(key):
            inside, outside = (
                f"{percent(row[mean])} ({percent(row[f'{side}_low'])}{INTERVAL_TO}{percent(row[f'{side}_high'])})"
                if row[f"tasks_{side}"]
                else "no such task"
                for mean, side in (("in_domain", "in"), ("out_of_domain", "out"))
            )
            yield [name, inside, outside, percent(row["h_score"])]
