"""Losses while a merge learned, beside the loss with labels, and the change of accuracy from start to end."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import page_data as stored_data
from app.reading import score_tables
from app.session import pages
from app.session.draft import Draft
from app.views.learning import along_steps, learning_tables, start_runs
from app.widgets import chart_view, page_parts
from merging.study.runs.run import Run

TRACE_LABELS = {learning_tables.TRACE: "the merge", learning_tables.ADAPT_TRACE: "its adaptation"}
UNKNOWN_START = (
    "To show the effect of learning, the page compares this merge with the model that it started from, evaluated on "
    "the same images. That start is not stored yet."
)
NOT_SCORED = "This run was not evaluated, so the effect of learning on accuracy is unknown."
LOSS_BY_TASK_NOTE = "The loss on every step's images, for each task separately, before the step."
JOINT_LOSS_NOTE = "The loss on every step's images, for all tasks together, before the step."


def draw_view(run: Run, stored_runs: Sequence[Run]) -> None:
    """Draw the losses over the steps, and the arrow from the start to the learned model."""
    if learning_tables.TRACE in run.tables:
        has_both_traces = learning_tables.ADAPT_TRACE in run.tables
        trace = learning_tables.TRACE
        if has_both_traces:
            trace = st.segmented_control(
                "Loss of", list(TRACE_LABELS), default=learning_tables.TRACE, format_func=TRACE_LABELS.__getitem__,
                key=f"loss_{run.id}",
                required=True,
            )  # fmt: skip
        is_of_adaptation = trace == learning_tables.ADAPT_TRACE or not has_both_traces
        table = stored_data.run_table(run.id, trace)
        images = LOSS_BY_TASK_NOTE if set(table["expert"]) & set(run.experts) else JOINT_LOSS_NOTE
        chart_view.draw_chart(
            "learning_loss", table, name=f"{trace}_{run.id[:8]}", unit=start_runs.loss_in_words(run, is_of_adaptation),
            experts=list(run.experts), sources=[run], caption=f"{images} {page_text.adapting_in_words(run)}".strip(),
        )  # fmt: skip
    if learning_tables.STEPS in run.tables:
        along_steps.draw_view(run)
    _draw_arrow(run, stored_runs)


def _draw_arrow(run: Run, stored_runs: Sequence[Run]) -> None:
    """Draw an arrow from the start (the model before learning) to the run, by in-domain and out-of-domain accuracy."""
    if not run.has_scores:
        st.info(NOT_SCORED)
        return
    start = start_runs.find_start(run, stored_runs)
    if start is None:
        if recipe := start_runs.find_start_recipe(run):
            chart_view.draw_question("learning_arrows")
            chain = Draft.from_recipe(recipe).chain()
            page_parts.draw_empty(UNKNOWN_START, "Merge the start", pages.MERGE, chain=chain)
        return
    trace = learning_tables.ADAPT_TRACE if learning_tables.ADAPT_TRACE in run.tables else learning_tables.TRACE
    if run.adapt and trace in run.tables:
        along_steps.draw_ends(run, start, int(stored_data.run_table(run.id, trace)["step"].max()) + 1)
    averages = score_tables.averages_table([start, run], stored_runs)
    table = averages.assign(start=[start.id if run_id == run.id else "" for run_id in averages["run"]])
    sentence = score_tables.describe_averages(averages)
    chart_view.draw_chart(
        "learning_arrows", table, name=f"learning_arrow_{run.id[:8]}", sources=[start, run],
        caption=f"{page_text.adapting_in_words(run)} {sentence}".strip(),
    )  # fmt: skip
