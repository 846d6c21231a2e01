"""The run that was started last, beside *Run*: its progress, then its result."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.reading import page_data
from app.session import view_state
from app.session.click_errors import guarded_fragment
from app.views.merge import merge_result
from app.widgets.jobs import tray
from merging.base.errors import StoreError
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run


def draw_outcome(started: Sequence[str], stored: Sequence[Run]) -> None:
    """Draw the progress or the result of the first of the started runs, the newest; the others were started before."""
    queue = page_data.job_queue()
    try:
        job = queue.get(started[0])
        if job.words and job.state == "done" and queue.may_stop(job.id):  # it has only read files; next it merges
            job = queue.submit(Recipe.from_yaml(job.recipe_yaml))
            view_state.watch_run(job.subject)
    except StoreError:  # the job was dismissed
        return
    if job.state == "done" and not job.words:
        earlier = [run for one_id in started if one_id != job.subject and (run := page_data.store().find(one_id))]
        merge_result.draw_result(page_data.store().get_run(job.subject), stored, next(iter(earlier), None))
    elif job.is_live:
        is_own = queue.may_stop(job.id)  # a link also shows other sessions' jobs
        if is_own and view_state.watched_run() != job.id:  # after a reload of the page
            view_state.watch_run(job.id)
        guarded_fragment(_draw_progress, run_every=tray.POLL_SECONDS)(job.id)
        if is_own and queue.session in job.followed_by:
            cancel = queue.measure_after
            st.button("Do not measure it afterwards", on_click=cancel, args=(job.id, ()), type="tertiary")
    else:
        tray.draw_job(job, "merge")


def _draw_progress(job_id: str) -> None:
    """Draw the bar of a live job and its time left; when it ends, draw the whole page, which shows the result."""
    job = page_data.job_queue().get(job_id)
    if not job.is_live:
        st.rerun()
    tray.draw_job(job, "merge")
