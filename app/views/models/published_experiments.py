"""Published experiments on Models & runs: the catalog, and the plan, job and table of one experiment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading.papers import experiments
from app.session import address, view_state
from app.views.models import published_choices, published_job, published_table
from app.widgets import page_parts
from merging.base.errors import MergingError
from merging.base.text import duration_text, size_text
from viz.figure_text import clean_text

if TYPE_CHECKING:
    from merging.sharing.published.experiment_catalogue import Experiment
    from merging.sharing.published.fetch_plan import FetchPlan

PUBLISHED, PICKER_KEY = "published experiments", "pub_experiment"
# In the table's order.
PLAN_COLUMNS = ("For", "Repository", "Size", "Here", "License", "Terms", "Files", "Commit")
INTRODUCTION = (
    "Fetch the models and test sets of the papers once from the Hub, compute the papers' recipes on this machine, and "
    "see the papers' numbers beside ours. Afterwards every page works with them, without a network."
)


def draw_experiments() -> None:
    """Draw the catalog and, below it, the chosen experiment."""
    st.header("Published experiments", anchor=False)
    st.markdown(INTRODUCTION)
    experiments_by_key = {experiment.key: experiment for experiment in experiments.all_experiments()}
    _draw_catalog(list(experiments_by_key.values()))
    key = view_state.resolve_value(address.EXPERIMENT, list(experiments_by_key), next(iter(experiments_by_key)))
    st.selectbox(
        "Experiment", list(experiments_by_key), list(experiments_by_key).index(key),
        format_func=lambda key: f"{key}  ·  {experiments_by_key[key].title}",
        key=PICKER_KEY, on_change=view_state.pick_value_from, args=(address.EXPERIMENT, PICKER_KEY), width=460,
    )  # fmt: skip
    chosen_experiment = experiments_by_key[key]
    with st.container(border=True):
        _draw_experiment(chosen_experiment)
    published_table.draw_table(chosen_experiment)


def _draw_experiment(experiment: Experiment) -> None:
    """Draw the choices, the plan that follows from them, and the button or the job."""
    choice = published_choices.draw_choice(experiment)
    if choice is None:
        return
    try:
        plan = experiments.fetch_plan(experiment, choice)
    except MergingError as error:
        st.error(page_text.safe_text(error, 800), icon=":material/block:")
        return
    _draw_plan(plan)
    published_job.draw_job(experiment, choice, plan)


def _draw_catalog(published_experiments: list[Experiment]) -> None:
    """Draw a table with each experiment's sizes, times and licenses for the default choices."""
    from merging.sharing.published.choice import make_choice

    rows = []
    for experiment in published_experiments:
        plan = experiments.fetch_plan(experiment, make_choice(experiment))
        approximately = "" if plan.has_exact_sizes else "≈ "
        rows.append(
            {
                "Experiment": experiment.key,
                "Models and tasks": experiment.title,
                "Rows": len(plan.rows),
                "To fetch": "nothing" if plan.is_complete else f"{approximately}{size_text(plan.bytes_to_fetch)}",
                "On disk": size_text(plan.local_bytes) if plan.local_bytes else "",
                "Computing": f"≈ {duration_text(plan.compute_seconds)}",
                "Licenses": ", ".join(sorted({clean_text(part.license, 60) for part in plan.parts})),
            }
        )
    text = st.column_config.TextColumn
    columns = {
        "Experiment": text(pinned=True, width=130),
        "Rows": st.column_config.NumberColumn(width=50),
        "On disk": text(width=72),
        "Licenses": text(width=260),
    }
    page_parts.draw_table(rows, "Published experiments with sizes, times and licenses", columns)
    st.caption(
        "With 1,000 images of each test set; the time to compute is an estimate for this machine. Licenses "
        "are those that the cards on the Hub state."
    )


def _draw_plan(plan: FetchPlan) -> None:
    """Draw a table of the repositories that a choice fetches, and the totals."""
    from merging.sharing.published.experiment_texts import plan_rows, plan_sentences

    plan = replace(plan, left_out=())  # rows that need exemplars: the hint to a command-line option does not fit here
    header, *rows = plan_rows(plan)
    titles = [name[:1].upper() + name[1:] for name in header]
    plan_table = [{title: clean_text(cell, 160) for title, cell in zip(titles, row, strict=True)} for row in rows]
    st.markdown("**What it needs**")
    used = [title for title in PLAN_COLUMNS if any(row[title] for row in plan_table)]
    text = st.column_config.TextColumn
    columns = {"For": text(pinned=True, width=150), "Files": text(width=190), "Commit": text(width=110)}
    page_parts.draw_table(
        [{title: row[title] for title in used} for row in plan_table], "Repositories with files, sizes and licenses",
        columns, page_parts.table_height(len(rows), 390),
    )  # fmt: skip
    lines = [page_text.safe_text(line, 400) for line in plan_sentences(plan)]
    st.markdown("  \n".join(lines))
    if plan.bytes_to_fetch > plan.free_bytes:
        st.error("There is not enough free space on the disk.", icon=":material/hard_drive:")
