"""Cumulative drift on the Drift page: by depth, against accuracy lost, and the spread of the loss over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import measurements, samples
from app.reading.figures import cache_table
from app.reading.measurements import MeasuredRuns
from app.session import address
from app.widgets import chart_view, page_parts, paper_line
from app.widgets.jobs import measure_button
from app.widgets.run_picker import pick_one
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import span

if TYPE_CHECKING:
    import pandas as pd

# Label in pickers and links -> name in tables and charts.
TOKENS = {"class token": "class", "mean of all tokens": "mean"}
DISTANCES = {"1 − cosine": "cosine", "mean |difference|": "l1"}
HALVES_NOTE = (
    "Drift of the final features on n = {} images per task of the choosing half; accuracy on n = {} images per "
    "task of the reporting half. The halves do not overlap."
)
CORRELATION_LABELS = {
    "all points": "all points",
    "tasks of one run": "tasks of one run (mean)",
    "runs on one task": "runs on one task (mean)",
}


def draw_view(pairs: MeasuredRuns, stored_runs: Sequence[Run]) -> None:
    """Draw the charts and tables of the chosen runs."""
    with st.container(horizontal=True, gap="medium"):
        token = st.selectbox("Features", TOKENS, key=address.TOKEN, bind=address.BIND, width=220)
        distance = pick_distance()
        band_run = pick_one([run for run, _ in pairs], "Band over the tasks of").id
    draw_lines(pairs, token, distance, band_run)
    draw_accuracy(pairs, stored_runs, distance)
    draw_consistency([run for run, _ in pairs], stored_runs)


def pick_distance() -> str:
    """Draw the picker of the distance; returns the distance's name in charts."""
    return DISTANCES[st.selectbox("Distance", DISTANCES, key=address.DISTANCE, bind=address.BIND, width=220)]


def draw_lines(pairs: MeasuredRuns, token: str, distance: str, band_run: str) -> None:
    """Draw drift by depth, a curve for each run, and the band over the tasks of ``band_run`` (LOT, Fig. 1b)."""
    measured = [measurement for _, measurement in pairs]
    table = measurements.drift_by_depth(pairs, TOKENS[token])
    runs = [run for run, _ in pairs]
    chart_view.draw_chart(
        "drift_depth", table, name=f"drift_by_depth_{distance}", value=distance, runs=[run.id for run in runs],
        band=band_run, caption=lines_in_words(table, measured, token), sources=runs,
        claims=paper_line.claims_in_words("drift/by_depth"),
    )  # fmt: skip


def lines_in_words(table: pd.DataFrame, measured: Sequence[StoredMeasurement], token: str) -> str:
    """A caption on the curves: tasks, band, images and origin."""
    tasks = table.groupby("run")["task"].nunique().tolist() if "run" in table else []
    return (
        f"Curves are means over {_tasks_in_words(tasks)}; the band spans the task that drifts least to the one that "
        "drifts most. Each task's images pass through the merged model and the task's own expert, and the features "
        f"({page_text.safe_text(token)}) are compared after every part. n = {span(table['n'])} images per task "
        f"of the choosing half, never the reporting half. {measure_button.origin_in_words(measured)}"
    )


def _tasks_in_words(tasks: Sequence[int]) -> str:
    """'tasks', or their numbers if the runs merge different numbers of experts."""
    return f"{span(tasks)} tasks, which differ between the runs, as do the images" if len(set(tasks)) > 1 else "tasks"


def draw_accuracy(pairs: MeasuredRuns, stored_runs: Sequence[Run], distance: str) -> None:
    """Draw a point for each task and run (LOT, Fig. 1a), and correlations."""
    points = measurements.drift_and_accuracy(pairs, stored_runs)
    fit = measurements.fit_drift_line(points, distance) if len(points) else None
    fit_values = None if fit is None else (fit.slope, fit.intercept, fit.pearson, fit.spearman, fit.n)
    runs = [run for run, _ in pairs]
    images = "" if points.empty else HALVES_NOTE.format(span(points["n"]), span(points["n_scored"]))
    chart_view.draw_chart(
        "drift_accuracy",
        points,
        name=f"drift_against_accuracy_{distance}",
        value=distance,
        fit=fit_values,
        runs=[run.id for run in runs],
        tasks=list(measurements.titles_by_task()),
        caption=images,
        claims=paper_line.claims_in_words("drift/against_accuracy"),
        sources=runs,
    )
    if len(points):
        draw_correlations(points, distance)


def draw_correlations(points: pd.DataFrame, value: str) -> None:
    """Draw a table of correlations over all points, within runs and within tasks."""
    table = _compute_correlations(points, value)
    table["over"] = table["over"].map(CORRELATION_LABELS)
    number = st.column_config.NumberColumn
    columns = {
        "over": st.column_config.TextColumn("Correlation", width="medium"),
        "pearson": number("Pearson r", format="%.2f"),
        "spearman": number("Spearman ρ", format="%.2f"),
        "points": "Points",
        "groups": "Groups",
    }
    page_parts.draw_table(table, "Correlations of drift with accuracy lost", columns)
    st.caption(
        "The points are not independent: runs share tasks, and tasks share runs. The coefficient of all points mixes "
        "hard and easy tasks with good and bad merges; each of the other two fixes the run or the task."
    )


@cache_table
def _compute_correlations(points: pd.DataFrame, value: str) -> pd.DataFrame:
    from merging.study.analysis.correlation import correlations

    return correlations(points, value, "lost")


def draw_consistency(runs: Sequence[Run], stored_runs: Sequence[Run]) -> None:
    """Draw LOT's Table 10 from stored accuracies."""
    st.header("How evenly does each merge serve its tasks?", anchor=False)
    table = measurements.loss_spread(runs, stored_runs)
    if table.empty:
        st.info("None of these runs was evaluated together with its experts.")
        return
    number = st.column_config.NumberColumn
    columns = {
        "run": st.column_config.TextColumn("Run", width="medium", pinned=True),
        "spread": number("Std of drops", format="%.2f", help="Sample standard deviation over tasks, in points."),
        "mean": number("Mean drop", format="%.1f"),
        "worst": "Worst task",
        "largest_drop": number("Its drop", format="%.1f"),
        "tasks": "Tasks",
        "n": number("Images", format="localized"),
    }
    page_parts.draw_table(table, "Consistency of every run over its tasks", columns)
    st.caption(
        "A drop is the accuracy of the task's own expert minus that of the merge, in percentage points, on the "
        f"{samples.scored_part()}. Its standard deviation over tasks (n − 1) is LOT's measure of inconsistency "
        f"(Table 10)."
    )
    paper_line.draw_claims(paper_line.claims_in_words("drift/consistency"), runs)
