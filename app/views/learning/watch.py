"""Jobs that are learning: how far they are, their losses, and the coefficients so far."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import data
from app.session.clicks import fragment
from app.widgets import chart
from app.widgets.jobs import tray
from merging.errors import MergingError
from merging.jobs.records import MERGE, Job
from merging.recipes.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd

POLL = 2.0  # seconds between two readings
STEP = re.compile(r"step (\d+) of \d+ · \w+ ([\d.]+)$")  # what progress says of a step
ALL = "all tasks, mean"
WATCH = "A merge that is learning now. Losses are of each step's batch; what it keeps is written every half minute."


def live() -> None:
    """The jobs that are learning now, each with its progress, its losses and its coefficients so far."""
    jobs = [job for job in data.runner().here() if job.live and _learns(job)]
    if not jobs:
        return
    tray.follow(jobs)
    fragment(_draw, run_every=POLL)([job.id for job in jobs])


def _learns(job: Job) -> bool:
    """Whether a job's recipe learns from images."""
    if job.kind != MERGE or job.words or not job.recipe_yaml:
        return False
    try:
        return any(method.learns(step.params) for method, step in Recipe.from_yaml(job.recipe_yaml).stages)
    except MergingError:
        return False


def _draw(job_ids: list[str]) -> None:
    live = {job.id: job for job in data.runner().here() if job.live}
    for job in [live[job_id] for job_id in job_ids if job_id in live]:
        with st.container(border=True, key=f"learning_{job.id}"):
            tray.show(job, "learning")
            if job.state == "running":
                _charts(job)


def _charts(job: Job) -> None:
    """The losses, of each task once they were written, else their mean; and the coefficients once they were."""
    from merging.engine.learning import watching

    recipe = Recipe.from_yaml(job.recipe_yaml)
    experts, path = [name for name, _ in recipe.experts], data.store().learned_so_far(job.id)
    table = watching.losses(path, experts)
    said = _said(data.runner().details(job.id))
    if len(said) and (table.empty or table["step"].max() < 2):
        table = said
    if len(table):
        unit = next((method.loss for method, _ in reversed(recipe.stages) if method.loss), "Loss")
        chart.live("learning_loss", table, job.id, name=f"learning_{job.id[:8]}", unit=unit, caption=WATCH)
    now = watching.coefficients(path, experts)
    if len(now):
        known = _facts(recipe.pretrained, tuple(dict.fromkeys(now["tensor"])))
        chart.live("coefficient_map", now.merge(known, on="tensor"), job.id, name=f"coefficients_{job.id[:8]}")


def _said(details: list[str]) -> pd.DataFrame:
    """The mean loss of the steps that the job has told of."""
    import pandas as pd

    steps = {int(match[1]): float(match[2]) for detail in details if (match := STEP.match(detail))}
    return pd.DataFrame([(step, ALL, loss) for step, loss in sorted(steps.items())], columns=["step", "expert", "loss"])


@st.cache_data(max_entries=8, show_spinner=False)
def _facts(pretrained: str, tensors: tuple[str, ...]) -> pd.DataFrame:
    """What each of these tensors is."""
    import pandas as pd

    from merging.checkpoints.families import thirds
    from merging.formats.opening import open_checkpoint

    parameters = open_checkpoint(pretrained, "pretrained").parameters
    each = [one for whole in parameters for one in (whole, *thirds(whole)) if one.name in tensors]
    rows = [(one.name, one.order, one.section, str(one.role), one.part) for one in each]
    return pd.DataFrame(rows, columns=["tensor", "order", "section", "role", "part"])
