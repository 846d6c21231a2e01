"""The box for runs that a view lacks: their recipes, the expected time, and one button that queues them all."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading import recipes as recipes_reading
from app.session import click_errors
from app.widgets.jobs import refused_action
from app.widgets.jobs.missing_box import GO_ON_NOTE, draw_box
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.base.text import duration_text, estimate_basis, size_text
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run
from merging.tasks.queue.job_kinds import MERGE
from merging.tasks.queue.job_records import Job


def draw_missing(recipes: Sequence[Recipe], key: str, stored: Sequence[Run]) -> None:
    """The box of recipes without a run: those in the queue, those that failed, and a button for the others."""
    if not recipes:
        return
    jobs = {job.recipe_yaml: job for job in reversed(page_data.job_queue().list_benchmark_jobs()) if job.kind == MERGE}

    def draw_running(live: list[Recipe], queued: list[Job]) -> None:
        st.markdown(f":material/hourglass_top: In the queue: {_titles_in_words(live)}. {GO_ON_NOTE}")
        if job_ids := [job.id for job in queued if page_data.job_queue().may_stop(job.id)]:
            st.button("Cancel them", key=f"stop_{key}", on_click=_cancel_jobs, args=(job_ids,), type="tertiary")

    def draw_offer(missing: list[Recipe]) -> None:
        st.markdown(f"Not computed yet: {_titles_in_words(missing)}.")
        _draw_offer(missing, key, stored)

    draw_box(key, [(recipe, jobs.get(recipe.to_yaml())) for recipe in recipes], draw_running, draw_offer)


def _draw_offer(recipes: Sequence[Recipe], key: str, stored: Sequence[Run]) -> None:
    """The expected time and memory, and the button."""
    try:
        estimates = recipes_reading.estimate_recipes(recipes, stored)
    except MergingError as error:
        st.markdown(f"They cannot be computed: {page_text.safe_text(error, 400)}")
        return
    seconds = duration_text(sum(estimate.seconds for estimate in estimates))
    memory = size_text(max(estimate.anonymous_bytes for estimate in estimates))
    is_serial = page_data.job_queue().runner.max_running == 1
    order, per_run = ("one after the other ", "") if is_serial else ("", " each")
    source = estimate_basis(all(estimate.is_from_own_runs for estimate in estimates), "run")
    st.markdown(
        f":material/timer: About **{seconds}** of computing with evaluation ({source}), {order}in the background; up "
        f"to {memory} of memory{per_run}."
    )
    if refused_action.draw_refusal(VisitorAction.MERGE):
        return
    label = f"Compute {'it' if len(recipes) == 1 else f'all {len(recipes)}'}"
    st.button(label, key=f"compute_{key}", on_click=_submit_recipes, args=(recipes,))


@click_errors.guard_callback
def _submit_recipes(recipes: Sequence[Recipe]) -> None:
    for recipe in recipes:
        page_data.job_queue().submit(recipe)


def _cancel_jobs(job_ids: Sequence[str]) -> None:
    for job_id in reversed(job_ids):  # waiting jobs first, so that none of them starts
        page_data.job_queue().cancel(job_id)


def _titles_in_words(recipes: Sequence[Recipe]) -> str:
    return page_text.join_words([f"**{page_text.safe_text(recipe.title or recipe.text(), 60)}**" for recipe in recipes])
