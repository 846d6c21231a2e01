"""The job that fetches and computes a published experiment: the button that starts it, or its progress."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.papers import experiments
from app.session import click_errors
from app.session.click_errors import guarded_fragment
from app.widgets import fit_report
from app.widgets.jobs import refused_action, tray
from merging.base import settings
from merging.base.modes import VisitorAction
from merging.base.settings import HUB_VARIABLE
from merging.base.text import duration_text, size_text
from merging.models.hub import client
from merging.tasks.queue.job_kinds import PUBLISHED

if TYPE_CHECKING:
    from merging.sharing.published.choice import Choice
    from merging.sharing.published.experiment_catalogue import Experiment
    from merging.sharing.published.fetch_plan import FetchPlan

RUN_COMMAND, FETCH_COMMAND = "run", "fetch"
FORBIDDEN_NOTE = (
    "This server does not download, because it was started with `{}={}`; start it with `{}=on` to allow downloads. Or "
    "run this command in a terminal of this machine, and the table then appears on this page:"
)
UNREAD_CARDS_NOTE = (
    "Commits, licenses and exact sizes are not yet known. First read the cards of these repositories from {}."
)


def draw_job(experiment: Experiment, choice: Choice, plan: FetchPlan) -> None:
    """Draw the progress of the experiment's job, or the button of the next step."""
    job = fit_report.find_job(PUBLISHED, experiment.key)
    if job is not None and (job.is_live or job.state != "done"):
        guarded_fragment(_draw_progress, run_every=tray.POLL_SECONDS if job.is_live else None)(experiment.key)
        if job.is_live:
            tray.follow_jobs([job])
            return
    setting = client.blocked_by_setting()
    if refused_action.draw_refusal(VisitorAction.COMMAND):
        return
    if plan.is_complete:
        _draw_compute(experiment, choice, plan)
    elif setting:
        _draw_forbidden(experiment, choice, plan, setting)
    elif any(part.revision is None for part in plan.parts):
        _draw_read_cards(experiment, choice)
    else:
        _draw_fetch(experiment, choice, plan)


def _draw_progress(key: str) -> None:
    if job := fit_report.find_job(PUBLISHED, key):
        tray.draw_job(job, "published")


def _draw_compute(experiment: Experiment, choice: Choice, plan: FetchPlan) -> None:
    """Draw the button that computes the missing rows from files on the disk."""
    if experiments.is_computed(experiment, choice):
        st.markdown(":material/check_circle: All of this is computed; the table is below.")
        return
    compute_time = duration_text(plan.compute_seconds)
    st.markdown(
        f"All files are on the disk. **Compute {_rows_in_words(plan)}**, for about {compute_time} on {plan.device}?"
    )
    _draw_button("Compute", RUN_COMMAND, experiment, choice, is_primary=True)


def _draw_fetch(experiment: Experiment, choice: Choice, plan: FetchPlan) -> None:
    """Draw the buttons that fetch the missing files, with or without computing."""
    size, fetch_time = size_text(plan.bytes_to_fetch), duration_text(plan.fetch_seconds)
    st.markdown(
        f"**Fetch {size} from {page_text.safe_text(plan.host)}** (about {fetch_time}) **and compute "
        f"{_rows_in_words(plan)}**, for about "
        f"{duration_text(plan.compute_seconds)} on {plan.device}?"
    )
    with st.container(horizontal=True):
        _draw_button("Fetch and compute", RUN_COMMAND, experiment, choice, is_primary=True)
        _draw_button("Only fetch", FETCH_COMMAND, experiment, choice)


def _rows_in_words(plan: FetchPlan) -> str:
    return f"{len(plan.rows)} rows" if len(plan.rows) > 1 else "one row"


def _draw_read_cards(experiment: Experiment, choice: Choice) -> None:
    """Draw the button that reads the cards, which state the licenses."""
    host = page_text.safe_text(client.host())
    st.markdown(UNREAD_CARDS_NOTE.format(host))
    st.button(
        "Read licenses and sizes", type="primary", icon=":material/fact_check:", key=f"pub_read_{experiment.key}",
        on_click=_read_cards, args=(experiment, choice),
    )  # fmt: skip


@click_errors.guard_callback
def _read_cards(experiment: Experiment, choice: Choice) -> None:
    """Callback: ask the Hub about every repository."""
    with st.spinner("Reading the cards …"):
        experiments.read_cards(experiment, choice)


def _draw_forbidden(experiment: Experiment, choice: Choice, plan: FetchPlan, setting: str) -> None:
    """Draw why this server fetches nothing, and the command to type instead."""
    from merging.sharing.published.experiment_texts import command_words

    st.info(FORBIDDEN_NOTE.format(HUB_VARIABLE, setting, HUB_VARIABLE), icon=":material/cloud_off:")
    command_line = [*command_words(RUN_COMMAND, experiment, choice), *settings.store_arguments()]
    st.code(f"{HUB_VARIABLE}=on mergescope {shlex.join(command_line)}", language="sh", wrap_lines=True)
    complete = sum(part.is_complete for part in plan.parts)
    fetched = f"{size_text(plan.local_bytes)} of it, {complete} of {len(plan.parts)} repositories"
    st.caption(f"On the disk: {fetched if plan.local_bytes else 'nothing'}.")


def _draw_button(label: str, action: str, experiment: Experiment, choice: Choice, *, is_primary: bool = False) -> None:
    from merging.sharing.published.experiment_texts import command_words

    command_line = [*command_words(action, experiment, choice), "--yes"]
    command_line += ["--device", page_data.job_queue().device] if action == RUN_COMMAND else []
    st.button(
        label, type="primary" if is_primary else "secondary",
        icon=":material/cloud_download:" if not is_primary else None,
        key=f"pub_{action}_{experiment.key}", on_click=_queue_job, args=(experiment.key, action, command_line),
    )  # fmt: skip


@click_errors.guard_callback
def _queue_job(key: str, action: str, command_line: Sequence[str]) -> None:
    """Callback: queue the job."""
    title = f"Published experiment {key}" if action == RUN_COMMAND else f"Files of the published experiment {key}"
    page_data.job_queue().command(PUBLISHED, key, title, command_line)
