"""Jobs that are learning or paused: their progress, their losses, and the coefficients so far."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data
from app.session.click_errors import guarded_fragment
from app.widgets import chart_view
from app.widgets.jobs import tray
from merging.base.errors import MergingError
from merging.recipes.recipe import Recipe
from merging.tasks.queue.job_kinds import MERGE
from merging.tasks.queue.job_records import Job, State

if TYPE_CHECKING:
    import pandas as pd

POLL_SECONDS = 2.0  # seconds between two updates
STEP_PATTERN = re.compile(r"step (\d+) of \d+ · \w+ ([\d.]+)$")  # the text of a job's progress at a step
ALL_TASKS = "all tasks, mean"
WINDOW_STEPS = 10  # steps of a running mean
LOSS_NOTE = "Thin lines are the losses of each step's batch, thick ones their means over {} steps."
FALLS_NOTE = "Over the last {} steps, the mean loss falls on {} of {} tasks{}."


def draw_live() -> None:
    """Draw each job that is learning or paused, with its progress, its losses and its coefficients so far."""
    jobs = [
        job
        for job in page_data.job_queue().list_benchmark_jobs()
        if (job.is_live or job.state == State.PAUSED) and _is_learning(job)
    ]
    if not jobs:
        return
    running = [job for job in jobs if job.is_live]
    tray.follow_jobs(running)
    guarded_fragment(_draw_jobs, run_every=POLL_SECONDS if running else None)([job.id for job in jobs])


def _is_learning(job: Job) -> bool:
    """Whether a job's recipe learns from images."""
    if job.kind != MERGE or job.words or not job.recipe_yaml:  # ``words``: a command, not a recipe
        return False
    try:
        return any(method.learns(step.params) for method, step in Recipe.from_yaml(job.recipe_yaml).stages)
    except MergingError:
        return False


def _draw_jobs(job_ids: list[str]) -> None:
    jobs = {job.id: job for job in page_data.job_queue().list_benchmark_jobs()}
    for job in [jobs[job_id] for job_id in job_ids if job_id in jobs]:
        with st.container(border=True, key=f"learning_job_{job.id}"):
            tray.draw_job(job, "learning")
            if job.state in (State.RUNNING, State.PAUSED):
                _draw_charts(job)


def _draw_charts(job: Job) -> None:
    """Draw the losses of each task and their mean, and the coefficients once they are written."""
    from merging.engine.learning import learning_so_far

    recipe = Recipe.from_yaml(job.recipe_yaml)
    experts, path = [name for name, _ in recipe.experts], page_data.store().learning_file(job.id)
    table = add_means(learning_so_far.read_losses(path, experts), page_data.job_queue().details(job.id))
    if len(table):
        loss_name = next((method.loss for method, _ in reversed(recipe.stages) if method.loss), "Loss")
        chart_view.draw_live_chart(
            "learning_loss", table, job.id, name=f"learning_{job.id[:8]}", unit=loss_name, experts=experts,
            window=WINDOW_STEPS,
            overall=ALL_TASKS, caption=f"{falls_in_words(table)} {LOSS_NOTE.format(WINDOW_STEPS)}".strip(),
        )  # fmt: skip
    coefficients = learning_so_far.read_coefficients(path, experts)
    if len(coefficients):
        tensor_facts = _read_tensor_facts(recipe.pretrained, tuple(dict.fromkeys(coefficients["tensor"])))
        chart_view.draw_live_chart(
            "coefficient_map", coefficients.merge(tensor_facts, on="tensor"), job.id, name=f"coefficients_{job.id[:8]}",
        )  # fmt: skip


def add_means(tasks: pd.DataFrame, details: list[str]) -> pd.DataFrame:
    """The losses of each task and their mean, which includes steps that the job has reported but not written yet."""
    import pandas as pd

    means_from_progress = {
        int(match[1]) - 1: float(match[2]) for detail in details if (match := STEP_PATTERN.match(detail))
    }
    means = means_from_progress | tasks.groupby("step")["loss"].mean().to_dict()
    rows = [
        *tasks.itertuples(index=False, name=None),
        *((step, ALL_TASKS, loss) for step, loss in sorted(means.items())),
    ]
    return pd.DataFrame(rows, columns=["step", "expert", "loss"]).astype({"step": "int64", "loss": "float64"})


def falls_in_words(table: pd.DataFrame) -> str:
    """A sentence on the tasks on which the running mean falls; empty before there are enough steps."""
    tasks = table[table["expert"] != ALL_TASKS]
    by_step = tasks.pivot(index="step", columns="expert", values="loss").rolling(WINDOW_STEPS, min_periods=1).mean()
    if len(by_step) < 2 * WINDOW_STEPS:
        return ""
    has_fallen = by_step.iloc[-1] < by_step.iloc[-1 - WINDOW_STEPS]
    unimproved = [page_text.safe_text(expert_names.expert_name(name), 40) for name in has_fallen.index[~has_fallen]]
    return FALLS_NOTE.format(
        WINDOW_STEPS,
        int(has_fallen.sum()),
        len(has_fallen),
        f", and not on {page_text.join_words(unimproved)}" if unimproved else "",
    )


@st.cache_data(max_entries=8, show_spinner=False)
def _read_tensor_facts(pretrained: str, tensors: tuple[str, ...]) -> pd.DataFrame:
    """Facts about each of these tensors: order, section, role and part."""
    import pandas as pd

    from merging.models.families import qkv_parameters
    from merging.models.formats.model_sources import ModelRef

    parameters = ModelRef(pretrained).open("pretrained").parameters
    found_parts = [
        part for parameter in parameters for part in (parameter, *qkv_parameters(parameter)) if part.name in tensors
    ]
    rows = [(part.name, part.order, part.section, str(part.role), part.part) for part in found_parts]
    return pd.DataFrame(rows, columns=["tensor", "order", "section", "role", "part"])
