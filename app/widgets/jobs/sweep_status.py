"""The cost and the progress of a sweep, and the buttons that start, pause, cancel and resume it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import page_data, sweeps
from app.reading.sweeps import SweepPoints
from app.widgets.jobs import refused_action
from merging.base.modes import VisitorAction
from merging.base.text import duration_text, estimate_basis
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import NamedPoint, Sweep
from merging.study.sweeps.sweep_tables import estimate_cost
from merging.tasks.queue.job_records import Job
from viz.figure_text import plural


def draw_status(
    results: SweepPoints,
    job: Job | None,
    *,
    can_compute: bool = True,
    draw_more: Callable[[], None] = lambda: None,
    name: str = "sweep",
) -> None:
    """Draw the number of computed points, and the buttons that pause, cancel or, if it ``can_compute``, resume.

    ``draw_more`` draws further buttons. ``name`` makes the keys of the buttons unique.
    """
    unit, is_complete = results.sweep.unit, results.complete
    draw_progress(
        len(results.points), results.total, is_complete, job, unit,
        partial(page_data.job_queue().sweep, results.sweep.id, sweeps.sweep_title(results.sweep))
        if can_compute else None,
        draw_more, name,
    )  # fmt: skip


def draw_progress(
    computed: int,
    total: int,
    is_complete: bool,
    job: Job | None,
    unit: str,
    resume: Callable[[], object] | None,
    draw_more: Callable[[], None] = lambda: None,
    name: str = "sweep",
) -> None:
    """Draw the number of computed points; see ``draw_status``. ``total`` is 0 if it is unknown, ``resume`` submits."""
    is_live = job is not None and job.is_live
    with st.container(border=True, key=f"{name}_status", gap="xsmall"):
        remaining = (
            f", about {duration_text(job.seconds_left)} left"
            if is_live and job and job.seconds_left is not None
            else ""
        )
        if is_live and job is not None:
            workers = job.phase.partition(", on ")[2]  # of "Point 3 of 200, on 8 workers"
            device = f" on {page_text.safe_text(workers, 60)}" if workers else ""
            state = f"queued, position {job.position}" if job.position else f"computing{device}{remaining}"
        else:
            state = "complete" if is_complete else job.state if job is not None and job.state != "done" else "stopped"
        counted = f"{computed:,} of {plural(total, unit)}" if total else plural(computed, unit)
        st.progress(computed / total if total else 0.0, f"{counted}: {state}")
        if job is not None and job.error:
            st.caption(f":material/error: {page_text.safe_text(job.error, 400)}")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if not permissions.is_allowed(VisitorAction.SWEEP) or (
                is_live and job is not None and not page_data.job_queue().may_stop(job.id)
            ):
                pass  # this visitor may not sweep, or the job belongs to another session
            elif is_live and job is not None:
                st.button("Pause", icon=":material/pause:", on_click=page_data.job_queue().pause, args=(job.id,),
                    key=f"{name}_pause",
                          help=f"Stops after the current {unit}.")  # fmt: skip
                st.button("Cancel", icon=":material/stop:", on_click=page_data.job_queue().cancel, args=(job.id,),
                    key=f"{name}_stop",
                          help=f"Stops at once; computed {unit}s stay.")  # fmt: skip
            elif (
                not is_complete
                and resume is not None
                and st.button("Resume", icon=":material/play_arrow:", key=f"{name}_resume", type="primary")
            ):
                resume()
                st.rerun()  # the whole page, so that it and the tray show the job from now on
            draw_more()


def draw_job(sweep: Sweep, label: str, name: str) -> None:
    """Draw the progress of a sweep, or the button with this label that starts it, and why it ended."""
    job = sweeps.sweep_job(sweep)
    if job is not None and job.is_live:
        draw_status(sweeps.sweep_points(sweep), job, name=name)
        return
    with st.container(border=True, gap="xsmall"):
        if job is not None and job.error:
            st.caption(f":material/error: {page_text.safe_text(job.error, 400)}")
        draw_start(sweep, (label, label), key=f"{name}_start", planned=sweeps.sweep_points(sweep).planned_points)


def draw_start(
    new_sweep: Sweep,
    labels: tuple[str, str],
    after: Callable[[], None] | None = None,
    key: str = "sweep_start",
    planned: Sequence[NamedPoint] | None = None,
) -> None:
    """Draw the cost of the sweep and the button that starts or, if it is computed, shows it.

    ``labels`` are those of the button; a click calls ``after``. ``planned`` is its plan, computed if it is None.
    """
    with st.spinner("Reading the checkpoints …"):
        cost = estimate_cost(new_sweep, page_data.store(), page_data.benchmark(), planned)
    missing_count, unit = cost.points - cost.stored, new_sweep.unit
    if missing_count:
        computed = f", {cost.stored:,} of them already computed" if cost.stored else ""
        source = estimate_basis(cost.known, unit)
        st.markdown(
            f":material/timer: **{plural(cost.points, unit)}**{computed}: {plural(missing_count, unit)} × "
            f"{duration_text(cost.seconds_per_point)}, about **{duration_text(cost.seconds)}** ({source}). It runs in "
            "the background, and can be paused and resumed."
        )
    else:
        st.markdown(f":material/check_circle: Already computed: all of its **{plural(cost.points, unit)}**.")
    if missing_count and refused_action.draw_refusal(VisitorAction.SWEEP):
        return
    if st.button(labels[0] if missing_count else labels[1], type="primary", icon=":material/play_arrow:", key=key):
        if permissions.is_allowed(VisitorAction.SWEEP):
            _store(new_sweep)
        if missing_count:
            page_data.job_queue().sweep(new_sweep.id, sweeps.sweep_title(new_sweep))
        if after is not None:
            after()
        st.rerun()


@requires(VisitorAction.SWEEP)
def _store(new_sweep: Sweep) -> None:
    """Store the sweep."""
    sweep_storage.store_sweep(new_sweep, page_data.store())
