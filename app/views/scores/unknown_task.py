"""The section of Scores on images whose task is unknown, so that the method also chooses the head (the classifier)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data, samples
from app.widgets import page_parts
from merging.engine.evaluation.unknown_task import UNKNOWN_TASK
from merging.images.benchmarks.metrics import average
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

NOTE = (
    "**This score differs** from the scores above, which use the head of the image's task. Here, the router names "
    "tasks that an image may belong to, and the answer is the class with the largest cosine among the heads of these "
    "tasks. An image counts if both its head and its class are right. {}, with 95% intervals; the interval of the mean "
    "is that of an average of independent shares. Unseen data sets have no head, so they are not included."
)
PERCENT_COLUMNS = {
    "accuracy": "Task unknown",
    "low": "Low",
    "high": "High",
    "known": "Task known",
    "own_head": "Right head",
}
SHARE_COLUMNS = ["known", "own_head"]  # shares without an interval in the table


def draw_unknown_task(runs: Sequence[Run]) -> None:
    """Draw every task's accuracy if the task is unknown, for the runs whose method can route an image to a task."""
    with_router = [run for run in runs if UNKNOWN_TASK in run.tables]
    if not with_router:
        return
    st.header("How accurate is it if the task of an image is unknown?", anchor=False)
    rows = _build_accuracies_table(tuple(run.id for run in with_router))
    number = st.column_config.NumberColumn
    columns = {
        "label": st.column_config.TextColumn("Run", pinned=True),
        "title": "Data set",
        **{key: number(title, format="%.1f%%") for key, title in PERCENT_COLUMNS.items()},
        "n": number("n", format="localized"),
        "run": "Id",
    }
    page_parts.draw_table(rows, "Accuracy of every task if the task of an image is unknown", columns, "auto")
    st.caption(NOTE.format(samples.scored_part().capitalize()))


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _build_accuracies_table(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """One row for each run and merged task, and one for each run's mean, in percent."""
    import pandas as pd

    frames = []
    for run_id in run_ids:
        run = page_data.store().get_run(run_id)
        table, scores = run.table(UNKNOWN_TASK), page_data.scores(run)
        table = table[table["split"] == page_data.SCORED_SPLIT]
        known_task_accuracies = {} if scores is None else dict(zip(scores["task"], scores["accuracy"], strict=True))
        table = table.assign(
            label=page_text.title_with_note(run),
            run=run.id,
            known=table["task"].map(known_task_accuracies).astype(float),
        )
        mean = dict(zip(("accuracy", "low", "high"), average(table), strict=True)) | dict(table[SHARE_COLUMNS].mean())
        mean |= {"label": page_text.title_with_note(run), "title": "Mean", "run": run.id, "n": table["n"].sum()}
        frames += [table, pd.DataFrame([mean])]
    rows = pd.concat(frames, ignore_index=True)[["label", "title", *PERCENT_COLUMNS, "n", "run"]]
    return rows.assign(**{key: rows[key] * 100 for key in PERCENT_COLUMNS})
