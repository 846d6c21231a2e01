"""Imported scores of the chosen run, and the field that uploads a file of scores."""

from __future__ import annotations

import math

import streamlit as st

from app import page_text
from app.permissions import requires
from app.reading import listed_models, page_data
from app.reading.runs import imported_runs
from app.session import click_errors, pages
from app.widgets import page_parts
from app.widgets.jobs import tray
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.study.imported_scores import delete_scores, store_scores
from merging.study.runs.run import Run
from merging.study.score_files import parse_scores
from merging.study.score_table import ScoreTable
from viz.figure_text import clean_text, percent, real

UPLOAD_COUNT_KEY = "given_scores_count"  # in the session's state
JOB_KIND = "scores"
HELP = "CSV with the columns task,split,metric,value,n (split and n may be empty), or the JSON that lm-eval writes."
MAX_TABLE_HEIGHT = 320  # px of the table


def draw_scores(run: Run) -> None:
    """Draw a run's imported scores, and buttons that import some.

    Draws nothing for a CLIP run without imported scores, because this program measures CLIP runs itself.
    """
    scores = imported_runs.find_scores(run.id)
    if not run.network and not scores:
        return
    st.header("Imported scores", anchor=False)
    if scores:
        _draw_table(run, scores)
    else:
        st.markdown(imported_runs.NO_SCORES)
    if listed_models.is_local():
        _draw_program_button(run)
        _draw_upload_field(run)
    elif not scores:
        st.caption("Several people use this server, so scores cannot be uploaded.")


def _draw_table(run: Run, table: ScoreTable) -> None:
    """Draw the scores as a table, the name of their file, and the buttons that open or remove the scores."""
    st.markdown(f"◇ From **{page_text.safe_text(table.origin, 90)}**, not measured by this program.")
    columns = {"Task": [], "Split": [], "Metric": [], "Value": [], "95% interval": [], "n": []}  # type: ignore[var-annotated]
    for score in table.scores:
        format_value = percent if score.proportion else real
        low, high = score.interval
        cells = (
            clean_text(score.task),
            clean_text(score.split),
            clean_text(score.metric) + (f", {score.better} is better" if score.better else ""),
            f"◇ {format_value(score.value)}",
            "—" if math.isnan(low) else f"{format_value(low)} to {format_value(high)}",
            score.n,
        )
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    if not any(columns["Split"]):
        del columns["Split"]
    height = page_parts.table_height(len(table.scores), MAX_TABLE_HEIGHT)
    st.dataframe(columns, hide_index=True, height=height, placeholder="—", alt="Imported scores of this run")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        page_parts.draw_page_link(pages.SCORES, "Scores", "monitoring", runs=run.id)
        if listed_models.is_local():
            st.button("Remove", icon=":material/close:", type="tertiary", key="given_remove",
                      on_click=_remove, args=(run.id,), help="Removes these scores; the run stays.")  # fmt: skip


def _draw_program_button(run: Run) -> None:
    """Draw the button that lets the program of MERGESCOPE_EVALUATOR measure the run; none for CLIP or without it."""
    from merging.sharing.evaluator_program import find_evaluator

    try:
        program = find_evaluator()
    except MergingError as error:
        st.error(page_text.safe_text(str(error), 400), icon=":material/block:")
        return
    if program is None or not run.network:
        return
    jobs = [job for job in page_data.job_queue().list_jobs() if job.kind == JOB_KIND and job.subject == run.id]
    if jobs and (jobs[0].is_live or jobs[0].state != "done"):
        tray.draw_job(jobs[0], f"scores_{run.id}")
        if jobs[0].is_live:
            return
    st.button(
        f"Measure with {page_text.safe_text(program.name, 60)}", icon=":material/play_arrow:", key="given_measure",
        on_click=_measure, args=(run.id, run.name), disabled=not run.has_model,
        help=None if run.has_model else "The weights of this run are not stored; its recipe makes them again.",
    )  # fmt: skip


@click_errors.guard_callback
def _measure(run_id: str, title: str) -> None:
    """Callback: let the program measure a run."""
    page_data.job_queue().command(JOB_KIND, run_id, f"Scores of {title}", ["scores", run_id, "--evaluate"])


def _draw_upload_field(run: Run) -> None:
    """Draw the upload field for a file of scores; each upload resets the field, so that a file is read only once."""
    upload_count = st.session_state.get(UPLOAD_COUNT_KEY, 0)
    file = st.file_uploader(
        "A file of scores", ["csv", "json"], key=f"given_scores_{run.id}_{upload_count}", max_upload_size=1, help=HELP
    )
    if file is None:
        return
    try:
        _store_upload(run.id, file.name, file.getvalue())
    except MergingError as error:
        st.error(page_text.safe_text(str(error), 400), icon=":material/block:")
        return
    st.session_state[UPLOAD_COUNT_KEY] = upload_count + 1
    st.rerun()  # the table above the field then shows the new scores


@requires(VisitorAction.UPLOAD)
def _store_upload(run_id: str, name: str, content: bytes) -> None:
    """Store the scores of an uploaded file."""
    store_scores(page_data.store().root, run_id, parse_scores(content, name))


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _remove(run_id: str) -> None:
    """Callback: delete the imported scores of a run."""
    delete_scores(page_data.store().root, run_id)
