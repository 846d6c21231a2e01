"""Scores that the chosen run was given, and the field that takes a file of them."""

from __future__ import annotations

import math

import streamlit as st

from app import text
from app.reading import models
from app.reading.data import store
from app.reading.given import given
from app.session import clicks, pages
from app.widgets import page
from merging.errors import MergingError
from merging.runs.given.scores import GivenScore, forget_scores, keep_scores, scores_in
from merging.runs.run import Run
from viz.text import clean_text, percent, real

COUNT = "given_scores_count"
HELP = "CSV with the columns task,split,metric,value,n (split and n may be empty), or the JSON that lm-eval writes."
MOST_TALL = 320  # px of the table


def section(run: Run) -> None:
    """What the run was given; draws nothing for CLIP, whose runs are measured here, unless one was given scores."""
    file, scores = given.of(run)
    if not run.network and not scores:
        return
    st.header("Scores measured elsewhere", anchor=False)
    if scores:
        _shown(run, file, scores)
    else:
        st.markdown(given.NO_SCORES)
    if models.local():
        _field(run)
    elif not scores:
        st.caption("Several people use this server, so scores cannot be given here.")


def _shown(run: Run, file: str, scores: tuple[GivenScore, ...]) -> None:
    """The scores as a table, their file, and what can be done with them."""
    st.markdown(f":material/diamond: Given in **{text.safe_text(file, 90)}**, not measured by this program.")
    columns = {"Task": [], "Split": [], "Metric": [], "Value": [], "95% interval": [], "n": []}  # type: ignore[var-annotated]
    for score in scores:
        shown = percent if score.proportion else real
        low, high = score.interval
        cells = (
            clean_text(score.task),
            clean_text(score.split),
            clean_text(score.metric) + (f", {score.better} is better" if score.better else ""),
            f"◇ {shown(score.value)}",
            "—" if math.isnan(low) else f"{shown(low)} to {shown(high)}",
            score.n,
        )
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    if not any(columns["Split"]):
        del columns["Split"]
    height = page.table_height(len(scores), MOST_TALL)
    st.dataframe(columns, hide_index=True, height=height, alt="Scores that this run was given")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        page.open_page(pages.SCORES, "Scores", "monitoring", runs=run.id)
        if models.local():
            st.button("Remove", icon=":material/close:", type="tertiary", key="given_remove",
                      on_click=_remove, args=(run.id,), help="Removes these scores; the run stays.")  # fmt: skip


def _field(run: Run) -> None:
    """The place to give a file; a new one each time, so that a file is read once."""
    count = st.session_state.get(COUNT, 0)
    file = st.file_uploader(
        "A file of scores", ["csv", "json"], key=f"given_scores_{run.id}_{count}", max_upload_size=1, help=HELP
    )
    if file is None:
        return
    try:
        keep_scores(store().root, run.id, scores_in(file.getvalue(), file.name), file.name)
    except MergingError as error:
        st.error(text.safe_text(str(error), 400), icon=":material/block:")
        return
    st.session_state[COUNT] = count + 1
    st.rerun()  # what was given stands above the field


@clicks.guarded
def _remove(run_id: str) -> None:
    """Callback: forget the scores that a run was given."""
    if models.local():
        forget_scores(store().root, run_id)
