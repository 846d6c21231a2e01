"""The tray of jobs, on every page. Jobs are stored on disk, so every tab shows the same ones."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import streamlit as st

from app import page_text, permissions
from app.reading import measurements, page_data
from app.reading.recipes import partners_query
from app.session import address, click_errors, pages, run_choice, view_state
from app.session import benchmark_choice as session_benchmark
from app.session.click_errors import guarded_fragment
from app.widgets import page_parts
from merging.base.errors import MergingError, StoreError
from merging.base.modes import VisitorAction
from merging.base.text import duration_text
from merging.study.analysis.measurement_registry import name_in_domain
from merging.study.runs.run import split_run_ids
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import SUBSETS
from merging.tasks.queue.job_kinds import MERGE, PUBLISHED, SWEEP, TUNE
from merging.tasks.queue.job_records import Job


class ResultView(NamedTuple):
    """The view of a result: page, label and icon of the link to it, and the query that chooses the view."""

    page: str
    label: str
    icon: str
    query: Mapping[str, str] = MappingProxyType({})


CONFLICTS = ResultView(pages.CONFLICTS, "Conflicts", "call_split")
FEATURES = ResultView(pages.FEATURES, "Features", "scatter_plot")
DRIFT = ResultView(pages.DRIFT, "Drift", "moving")
IMAGE = ResultView(pages.IMAGE, "Image", "image_search")
LEARNING = ResultView(pages.LEARNING, "Learning", "model_training")
RESULT_VIEWS = {  # measurement -> view of its result; other measurements are on Drift
    measurements.SIGNS: CONFLICTS._replace(query={address.CONFLICTS_VIEW: "sign agreement"}),
    measurements.DRM_ABLATIONS: CONFLICTS._replace(query={address.CONFLICTS_VIEW: "ablations of DRM"}),
    measurements.TASK_COUNTS: CONFLICTS._replace(query={address.CONFLICTS_VIEW: "number of tasks"}),
    measurements.EXPERT_PAIRS: CONFLICTS._replace(query={address.CONFLICTS_VIEW: "experts against experts"}),
    measurements.SPECTRA: CONFLICTS._replace(query={address.CONFLICTS_VIEW: "spectra"}),
    measurements.MODEL_MAP: CONFLICTS._replace(query={address.CONFLICTS_VIEW: "map of models"}),
    measurements.PREDICTORS: ResultView(
        pages.PARTNERS, "Partners", "diversity_3", {address.PARTNERS_VIEW: "what foretells it"}
    ),
    measurements.FEATURES: FEATURES,
    measurements.TSNE: FEATURES._replace(query={address.MAP: "t-SNE alone"}),
    measurements.JOINT_MAP: FEATURES._replace(query={address.MAP: "joint t-SNE"}),
    measurements.MERGE_PATH: FEATURES._replace(query={address.MAP: "along the merge"}),
    measurements.LAYER_DRIFT: DRIFT._replace(query={address.DRIFT_VIEW: "layer by layer"}),
    measurements.SIMILARITY: DRIFT._replace(query={address.DRIFT_VIEW: "model against model"}),
    measurements.ABLATION: DRIFT._replace(query={address.DRIFT_VIEW: "layer by layer"}),
    measurements.RESET_TO_PRETRAINED: DRIFT._replace(query={address.DRIFT_VIEW: "put back"}),
    measurements.RESET_FIRST_ORDER: DRIFT._replace(query={address.DRIFT_VIEW: "put back"}),
    measurements.EXEMPLARS: DRIFT._replace(query={address.DRIFT_VIEW: "exemplars"}),
    measurements.LOSS_BY_LEARNING_STEP: LEARNING._replace(query={address.LEARNING_VIEW: "loss and gain"}),
    measurements.MODULES_ON_TEST_IMAGES: LEARNING._replace(query={address.LEARNING_VIEW: "modules"}),
    measurements.ANSWERS_BY_DEPTH: IMAGE._replace(query={address.IMAGE_VIEW: "whole data sets"}),
    measurements.FEATURE_BANK: IMAGE._replace(query={address.IMAGE_VIEW: "neighbors"}),
    measurements.METHOD_TIMES: ResultView(pages.METHODS, "Methods", "category"),
}
RESULT_VIEWS |= {
    name_in_domain(key): FEATURES._replace(query={**RESULT_VIEWS[key].query, address.IMAGE_DOMAIN: "in domain"})
    for key in (measurements.FEATURES, measurements.TSNE, measurements.JOINT_MAP, measurements.MERGE_PATH)
}
RESULT_VIEWS |= {
    f"{key}{suffix}": ResultView(
        pages.SCORES, "Scores", "monitoring", {address.SCORES_VIEW: "corrupted images", **half}
    )
    for key in (measurements.ROBUSTNESS, measurements.ROBUSTNESS_REFERENCES)
    for suffix, half in (("", {}), ("_choosing", {address.CORRUPTED_HALF: "choosing half"}))
}
PAGE_LABELS = {"data": "Data", PUBLISHED: "Published"}  # of links to the results of commands
PUBLISHED_VIEW = {address.BENCHMARK_SOURCE: "published experiments"}
HALTED_NOTE = "Process {} was halted by a signal. Let it go on, or cancel."
LEARNING_STEP = re.compile(r"\bstep \d")  # in a progress message of learning
POLL_SECONDS = 1.0  # seconds between two readings while a job is live
MAX_JOBS = 4  # jobs in the tray; more if more are running
STATE_ICONS = {
    "failed": "error",
    "cancelled": "cancel",
    "interrupted": "power_off",
    "paused": "pause_circle",
    "done": "check_circle",
}


def draw_tray() -> None:
    """Draw the tray; it polls only while a job is live, or while the page still shows one as live."""
    live = any(job.is_live for job in page_data.job_queue().own_jobs()) or bool(st.session_state.get("_live"))
    guarded_fragment(_draw_tray, run_every=POLL_SECONDS if live else None)(live)


def follow_jobs(jobs: Sequence[Job]) -> None:
    """Note jobs that the page shows as live.

    Otherwise a job that ends before the tray is drawn would stay live there.
    """
    st.session_state["_live"] = st.session_state.get("_live", set()) | {job.id for job in jobs}


def _draw_tray(was_live: bool) -> None:
    jobs = page_data.job_queue().own_jobs()
    live = sorted((job for job in jobs if job.is_live), key=lambda job: job.position)  # running jobs come first
    followed = st.session_state.get("_live", set())  # a page can show another session's job
    live_ids = {job.id for job in live} | {
        job.id for job in page_data.job_queue().list_jobs() if job.is_live and job.id in followed
    }
    if was_live and live_ids != st.session_state.get("_live"):
        had_jobs = "_live" in st.session_state
        st.session_state["_live"] = live_ids
        if had_jobs:
            st.rerun()  # the page shows the new results, and polling ends with the last job
    if not jobs:
        return
    st.markdown("**Jobs**")
    max_shown = max(MAX_JOBS, sum(job.state == "running" for job in live))
    for job in [*live, *(job for job in jobs if not job.is_live)][:max_shown]:
        draw_job(job, "tray")


def draw_job(job: Job, position: str) -> None:
    """Draw one job: its progress, the time left, and its buttons.

    ``position`` names where it is drawn, "tray" or a place on a page, and makes the buttons' keys unique.
    """
    click_errors.rerun_for_problem()
    with st.container(border=True, gap="xsmall"):
        draw_title(job, position)
        if job.state == "running":
            time_left = f", about {duration_text(job.seconds_left)} left" if job.seconds_left is not None else ""
            phase = page_text.safe_text(job.phase or "Starting")
            st.progress(min(max(job.fraction, 0.0), 1.0), f"{phase}{time_left}{_job_location(job)}")
            if LEARNING_STEP.search(job.detail):
                st.caption(f":material/model_training: {page_text.safe_text(job.detail)}")
            elif job.kind == PUBLISHED and job.detail:
                st.caption(f":material/downloading: {page_text.safe_text(job.detail, 120)}")
            if job.halted_pid:
                st.caption(f":material/front_hand: {HALTED_NOTE.format(job.halted_pid)}")
        elif job.state == "queued":
            start_time = (
                f", starts in about {duration_text(job.seconds_until_start)}"
                if job.seconds_until_start is not None
                else ""
            )
            st.caption(f":material/schedule: queued, position {job.position}{start_time}{_job_location(job)}")
        else:
            st.caption(f":material/{STATE_ICONS.get(job.state, 'info')}: {job.state}{_job_location(job)}")
            if job.error:
                st.caption(page_text.safe_text(job.error, 300))
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            draw_buttons(job, position)


def draw_title(job: Job, position: str) -> None:
    """Draw the job's title; in the tray, that of a job on one stored run opens the page of the run."""
    run = page_data.store().find(job.subject) if position == "tray" and job.subject else None
    title = page_text.safe_text(job.title, 60)
    if run is None or run.kind != "merge" or (job.kind == MERGE and job.state != "done"):
        st.markdown(title)
    else:
        page_parts.draw_run_link(run.id, title, f"job_{job.id}")


def _job_location(job: Job) -> str:
    """The benchmark of a job, if it is not this session's, and whether the job runs on another computer."""
    other = page_data.job_queue().is_on_other_benchmark(job)
    computer = ", on another computer" if job.is_remote else ""
    return computer + (
        f", on {page_text.safe_text(session_benchmark.benchmark_title(Path(job.benchmark)), 40)}" if other else ""
    )


def draw_buttons(job: Job, position: str) -> None:
    """Draw the buttons and links of a job."""
    may_stop = page_data.job_queue().may_stop(job.id)
    if job.is_live:
        if may_stop and job.can_pause and permissions.is_allowed(VisitorAction.MANAGE):
            st.button("Pause", key=f"pause_{position}_{job.id}", on_click=page_data.job_queue().pause, args=(job.id,))
        if may_stop:
            st.button(
                "Cancel", key=f"cancel_{position}_{job.id}", on_click=page_data.job_queue().cancel, args=(job.id,)
            )
        return
    if page_data.job_queue().is_on_other_benchmark(job):
        if benchmark := session_benchmark.find_key(Path(job.benchmark)):
            draw_switch_button(job, position, benchmark)
    elif position == "tray" and job.kind in (SWEEP, TUNE):  # the page can show the computed points of a stopped sweep
        draw_sweep_link(job)
    elif job.state == "done" and position == "tray" and job.kind != MERGE:
        draw_measurement_link(job)
    elif job.state == "done" and position == "tray":
        draw_merge_links(job)
    if not may_stop or not permissions.is_allowed(VisitorAction.MANAGE):
        return
    if job.state != "done":
        draw_again_button(job, position)
    st.button(
        "Dismiss",
        key=f"dismiss_{position}_{job.id}",
        on_click=page_data.job_queue().dismiss,
        args=(job.id,),
        type="tertiary",
    )


def draw_sweep_link(job: Job) -> None:
    """Draw a link to the page that shows a sweep, for subsets to their chain and images on Partners."""
    sweep = None
    with contextlib.suppress(StoreError):
        sweep = sweep_storage.find_sweep(page_data.store(), job.subject)
    if sweep is None or sweep.kind != SUBSETS:
        draw_result_link(pages.SWEEPS, "Sweeps", "tune", job, view_state.pick_sweep, sweep=job.subject)
        return
    query = partners_query(sweep)

    def pick_result(_: str) -> None:
        view_state.pick_value(address.PARTNERS_CHAIN, query.get(address.PARTNERS_CHAIN, ""))
        st.session_state.update({key: value for key, value in query.items() if key != address.PARTNERS_CHAIN})

    draw_result_link(pages.PARTNERS, "Partners", "diversity_3", job, pick_result, **query)


def draw_again_button(job: Job, position: str) -> None:
    """Draw a button that submits an ended job once more, for instance after a restart."""
    label = "Resume" if job.is_resumable else "Run again"
    if not st.button(label, key=f"again_{position}_{job.id}", icon=":material/replay:", type="tertiary"):
        return
    try:
        page_data.job_queue().submit_again(job.id)
    except MergingError as error:
        st.caption(f":material/error: {page_text.safe_text(error, 300)}")
    else:
        st.rerun()  # the whole page, which then follows the job


def draw_switch_button(job: Job, position: str, benchmark: str) -> None:
    """Draw a button that switches to the benchmark that a job works on."""
    if st.button("Switch to it", key=f"go_{position}_{job.id}", type="tertiary"):
        session_benchmark.switch_benchmark(benchmark)
        st.rerun()  # the whole page


def draw_result_link(
    page: str, label: str, icon: str, job: Job, pick_result: Callable[[str], None], **query: str
) -> None:
    """Draw a link to a job's result; on the result's own page, which reads no second link, a button that picks it."""
    if Path(page).stem != view_state.relative_address().partition("?")[0]:
        page_parts.draw_page_link(page, label, icon, **query)
    elif st.button(
        label,
        icon=f":material/{icon}:",
        key=f"show_{job.id}",
        type="tertiary",
        on_click=pick_result,
        args=(job.subject,),
    ):
        st.rerun()  # the whole page


def draw_merge_links(job: Job) -> None:
    """Draw links to the page of a merge's run, and to what it learned."""
    if page_data.store().find(job.subject) is not None:
        draw_result_link(pages.RUN, "Open the run", "hub", job, run_choice.pick_run, run=job.subject)
    if job.can_pause:  # it learned
        draw_result_link(pages.LEARNING, "Learning", "model_training", job, run_choice.pick_run, run=job.subject)


def draw_measurement_link(job: Job) -> None:
    """Draw a link to the view of a job's measurement, or to the result of a command."""
    if job.words:  # those of a command line
        exported = job.kind.startswith("export")
        link_query = {address.MODELS_VIEW: "runs", address.SELECTED_RUNS: job.subject} if exported else {}
        link_query |= {address.MODELS_VIEW: "data"} if job.kind in {"data", PUBLISHED} else {}
        link_query |= PUBLISHED_VIEW | {address.EXPERIMENT: job.subject} if job.kind == PUBLISHED else {}
        label = "Export" if exported else PAGE_LABELS.get(job.kind, "Models")
        page_parts.draw_page_link(pages.MODELS, label, "inventory_2", **link_query)
        return
    page, label, icon, query = RESULT_VIEWS.get(job.kind, DRIFT)
    shows_one_run = page in {pages.CONFLICTS, pages.COMPARE, pages.LEARNING}
    found = map(page_data.store().find, split_run_ids(job.subject))
    run_ids = [run.id for run in found if run is not None and run.kind == "merge"] or split_run_ids(job.subject)
    runs = {address.RUN if shows_one_run else address.RUNS: ",".join(run_ids)} if run_ids else {}

    def pick_result(subject: str) -> None:
        if subject:
            (run_choice.pick_run(subject) if shows_one_run else run_choice.pick_runs(run_ids))
        st.session_state.update(query)

    draw_result_link(page, label, icon, job, pick_result, **runs, **query)
