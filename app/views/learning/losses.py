"""Losses while a merge learned, against the loss with labels, and what learning bought and cost from start to end."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import text
from app.reading import data as stored_data
from app.reading import score_tables
from app.session import pages
from app.views.learning import along_steps, data, starts
from app.widgets import chart, page
from merging.study.runs.run import Run

PARTS = {data.TRACE: "the merge", data.ADAPT_TRACE: "what adapts it"}
UNKNOWN_START = (
    "To see what learning bought, this merge is set beside the model that it started from, evaluated on the same "
    "images. That start is not stored yet."
)
NOT_SCORED = "This run was not evaluated, so what learning bought is not known."
BATCH = "The loss of every step's images, of each task by itself, before the step."
TOGETHER = "The loss of every step's images, of all tasks together, before the step."


def view(run: Run, stored: Sequence[Run]) -> None:
    """The losses over the steps, and the arrow from the start to the learned model."""
    if data.TRACE in run.tables:
        both = data.ADAPT_TRACE in run.tables
        part = data.TRACE
        if both:
            part = st.segmented_control(
                "Loss of", list(PARTS), default=data.TRACE, format_func=PARTS.__getitem__, key=f"loss_{run.id}",
                required=True,
            )  # fmt: skip
        of_adapt = part == data.ADAPT_TRACE or not both
        table = stored_data.table(run.id, part)
        images = BATCH if set(table["expert"]) & set(run.experts) else TOGETHER
        chart.chart(
            "learning_loss", table, name=f"{part}_{run.id[:8]}", unit=starts.loss_of(run, of_adapt),
            experts=list(run.experts), of=[run], caption=f"{images} {text.adapted(run)}".strip(),
        )  # fmt: skip
    if data.STEPS in run.tables:
        along_steps.view(run)
    _arrow(run, stored)


def _arrow(run: Run, stored: Sequence[Run]) -> None:
    """The run beside its start on the plane of in-domain and out-of-domain accuracy."""
    if not run.has_scores:
        st.info(NOT_SCORED)
        return
    start = starts.find(run, stored)
    if start is None:
        if recipe := starts.recipe(run):
            chart.ask("learning_arrows")
            page.empty(UNKNOWN_START, "Merge the start", pages.MERGE, chain=starts.chain(recipe))
        return
    trace = data.ADAPT_TRACE if data.ADAPT_TRACE in run.tables else data.TRACE
    if run.adapt and trace in run.tables:
        along_steps.view_ends(run, start, int(stored_data.table(run.id, trace)["step"].max()) + 1)
    averages = score_tables.averages([start, run], stored)
    table = averages.assign(start=["" if one != run.id else start.id for one in averages["run"]])
    sentence = score_tables.averages_in_words(averages)
    chart.chart(
        "learning_arrows", table, name=f"learning_arrow_{run.id[:8]}", of=[start, run],
        description=sentence, caption=f"{text.adapted(run)} {sentence}".strip(),
    )  # fmt: skip
