"""The job tray: what is being computed, on every page. What it knows lives on disk, so every tab sees the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from app import text
from app.reading import data
from app.reading.measurements import DRM_ABLATIONS, PAIRS, SIGNS, TASK_COUNTS
from app.session import benchmark as session_benchmark
from app.session import pages, state
from app.widgets import page as page_parts
from merging.jobs.records import SWEEP, Job

SHOWN = {  # measurements of other pages than Drift: where they are shown, and what the link there carries
    SIGNS: (pages.CONFLICTS, {state.ABOUT: "sign agreement"}),
    DRM_ABLATIONS: (pages.CONFLICTS, {state.ABOUT: "ablations of DRM"}),
    TASK_COUNTS: (pages.CONFLICTS, {state.ABOUT: "number of tasks"}),
    PAIRS: (pages.CONFLICTS, {state.ABOUT: "experts against experts"}),
}


POLL = 1.0  # seconds between two looks while something is live
SHOWN = 4
ICONS = {
    "failed": "error",
    "cancelled": "cancel",
    "interrupted": "power_off",
    "paused": "pause_circle",
    "done": "check_circle",
}


def tray() -> None:
    """Draw the tray; it polls only while something is live."""
    live = any(job.live for job in data.runner().jobs())
    st.fragment(_tray, run_every=POLL if live else None)(live)


def _tray(was_live: bool) -> None:
    jobs = data.runner().jobs()
    live = sorted((job for job in jobs if job.live), key=lambda job: job.position)  # what runs comes first
    if was_live and {job.id for job in live} != st.session_state.get("_live"):
        changed = "_live" in st.session_state
        st.session_state["_live"] = {job.id for job in live}
        if changed:
            st.rerun()  # the pages show what is finished, and polling ends with the last job
    if not jobs:
        return
    st.markdown("**Jobs**")
    for job in [*live, *(job for job in jobs if not job.live)][:SHOWN]:
        show(job, "tray")


def show(job: Job, place: str) -> None:
    """One job: how far it is, how long it still takes, and a way to stop it."""
    with st.container(border=True, gap="xsmall"):
        st.markdown(text.safe_text(job.title, 60))
        if job.state == "running":
            left = f", about {text.duration(job.seconds_left)} left" if job.seconds_left is not None else ""
            phase = text.safe_text(job.phase or "Starting")
            st.progress(min(max(job.fraction, 0.0), 1.0), f"{phase}{left}{_where(job)}")
        elif job.state == "queued":
            st.caption(f":material/schedule: queued, place {job.position}{_where(job)}")
        else:
            st.caption(f":material/{ICONS.get(job.state, 'info')}: {job.state}{_where(job)}")
            if job.error:
                st.caption(text.safe_text(job.error, 300))
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            buttons(job, place)


def _where(job: Job) -> str:
    """The benchmark that a job works on, if it is not this session's."""
    other = data.runner().elsewhere(job)
    return f", on {text.safe_text(session_benchmark.title(Path(job.benchmark)), 40)}" if other else ""


def buttons(job: Job, place: str) -> None:
    """What can be done with a job."""
    if job.live:
        if job.measures == SWEEP:
            st.button("Pause", key=f"pause_{place}_{job.id}", on_click=data.runner().pause, args=(job.id,))
        st.button("Cancel", key=f"cancel_{place}_{job.id}", on_click=data.runner().cancel, args=(job.id,))
        return
    if data.runner().elsewhere(job):
        if where := session_benchmark.name_of(Path(job.benchmark)):
            go_there(job, place, where)
    elif place == "tray" and job.measures == SWEEP:  # whatever stopped it, the points that are there can be looked at
        door(pages.SWEEPS, "Sweeps", "tune", job, state.pick_sweep, sweep=job.run_id)
    elif job.state == "done" and place == "tray" and job.measures:
        shown_where(job)
    elif job.state == "done" and place == "tray":
        door(pages.SCORES, "Scores", "monitoring", job, lambda run_id: state.pick_runs([run_id]), runs=job.run_id)
    st.button(
        "Dismiss", key=f"dismiss_{place}_{job.id}", on_click=data.runner().dismiss, args=(job.id,), type="tertiary"
    )


def go_there(job: Job, place: str, benchmark: str) -> None:
    """A way to the benchmark that a job works on."""
    if st.button("Switch to it", key=f"go_{place}_{job.id}", type="tertiary"):
        session_benchmark.use(benchmark)
        st.rerun()  # the whole page


def door(page: str, label: str, icon: str, job: Job, pick: Callable[[str], None], **query: str) -> None:
    """A link to what a job has made; on that very page, which reads no second link, a button that picks it there."""
    if Path(page).stem != state.place().partition("?")[0]:
        page_parts.open_page(page, label, icon, **query)
    elif st.button(label, icon=f":material/{icon}:", key=f"show_{job.id}", type="tertiary"):
        pick(job.run_id)
        st.rerun()  # the whole page


def shown_where(job: Job) -> None:
    """A link to the view of what a job has measured."""
    from app.reading import measurements

    if job.words:  # a command about models or runs
        exported = job.measures.startswith("export")
        where = {state.SHELF: "runs", state.CHOSEN: job.run_id} if exported else {}
        where |= {state.SHELF: "data"} if job.measures == "data" else {}
        page_parts.open_page(
            pages.MODELS,
            "Export" if exported else "Data" if job.measures == "data" else "Models",
            "inventory_2",
            **where,
        )
        return
    if job.measures in {measurements.FEATURES, measurements.TSNE}:
        look = {state.MAP: "t-SNE"} if job.measures == measurements.TSNE else {}
        page_parts.open_page(pages.FEATURES, "Features", "scatter_plot", **look)
    elif job.measures == measurements.PREDICTIONS:
        page_parts.open_page(pages.COMPARE, "Compare", "compare")
    elif found := SHOWN.get(job.measures):
        page, query = found
        page_parts.open_page(page, "Conflicts", "call_split", **{state.RUN: job.run_id, **query})
    else:
        where = {"runs": job.run_id} if job.run_id else {"view": job.measures}
        page_parts.open_page(pages.DRIFT, "Drift", "moving", **where)
