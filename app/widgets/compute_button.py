"""Runs that a view needs and that are not computed yet: their names, time and memory, and a button that queues all."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import text
from app.reading import data
from app.widgets import tray
from merging.errors import MergingError
from merging.jobs.records import MERGE, Job
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.text import duration_text, size_text

PROBLEM = "computing_problem"  # the error of the last click, shown when the page is drawn next


def missing(recipes: Sequence[Recipe], key: str, stored: Sequence[Run]) -> None:
    """Draw the recipes that have no run yet: those in the queue, those that failed, and a button for the rest."""
    if problem := st.session_state.pop(PROBLEM, ""):
        st.error(text.safe_text(problem, 600), icon=":material/error:")
    if not recipes:
        return
    jobs = {job.recipe_yaml: job for job in reversed(data.runner().here()) if job.kind == MERGE}
    live = [recipe for recipe in recipes if _state(jobs, recipe) == "live"]
    rest = [recipe for recipe in recipes if recipe not in live]
    with st.container(border=True, key=f"missing_{key}"):
        if live:
            st.markdown(
                f":material/hourglass_top: In the queue: {_named(live)}. You can go on working: the tray on the left "
                "shows how far they are and follows you to every page."
            )
            waiting = [jobs[recipe.to_yaml()].id for recipe in live]
            st.button("Cancel them", key=f"stop_{key}", on_click=_stop, args=(waiting,), type="tertiary")
        for recipe in rest:
            if _state(jobs, recipe) == "failed":
                tray.show(jobs[recipe.to_yaml()], key)
        if rest:
            st.markdown(f"Not computed yet: {_named(rest)}.")
            _offer(rest, key, stored)


def _state(jobs: dict[str, Job], recipe: Recipe) -> str:
    """The state of a recipe's newest job: "live", "failed", or empty."""
    job = jobs.get(recipe.to_yaml())
    return "" if job is None else "live" if job.live else "failed" if job.error else ""


def _offer(recipes: Sequence[Recipe], key: str, stored: Sequence[Run]) -> None:
    """Draw the time and memory that the recipes take, and the button."""
    try:
        estimates = [data.estimate(recipe, stored) for recipe in recipes]
    except MergingError as error:
        st.markdown(f"They cannot be computed here: {text.safe_text(error, 400)}")
        return
    seconds = duration_text(sum(estimate.seconds for estimate in estimates))
    memory = size_text(max(estimate.anonymous_bytes for estimate in estimates))
    st.markdown(
        f":material/timer: About **{seconds}** of computing with evaluation, one after the other in the background; "
        f"up to {memory} of memory."
    )
    label = f"Compute {'it' if len(recipes) == 1 else f'all {len(recipes)}'}"
    st.button(label, key=f"compute_{key}", on_click=_start, args=(recipes,))


def _start(recipes: Sequence[Recipe]) -> None:
    try:
        for recipe in recipes:
            data.runner().submit(recipe)
    except MergingError as error:
        st.session_state[PROBLEM] = str(error)


def _stop(job_ids: Sequence[str]) -> None:
    for job_id in reversed(job_ids):  # waiting jobs first, so that none of them starts
        data.runner().cancel(job_id)


def _named(recipes: Sequence[Recipe]) -> str:
    return text.listed([f"**{text.safe_text(recipe.title or recipe.text(), 60)}**" for recipe in recipes])
