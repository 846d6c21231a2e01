"""Buttons that start missing measurements, and the sentence on the origin of measured numbers under every chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text, permissions
from app.reading import page_data, recipes
from app.session import click_errors, run_choice
from app.widgets.jobs import refused_action, shown_measurements, tray
from app.widgets.jobs.missing_box import GO_ON_NOTE, draw_box
from merging.base.modes import VisitorAction
from merging.base.text import duration_text
from merging.study.analysis.measurement_registry import Measurement, find_measurement, find_refusal
from merging.study.analysis.measurement_store import MEMORY_NOTE, StoredMeasurement, have_same_measurement
from merging.study.analysis.measurement_subject import SubjectKind
from merging.study.runs.run import PRECOMPUTED, THIS_MACHINE, Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.tasks.queue.job_records import Job


def origin_in_words(measurements: Sequence[StoredMeasurement]) -> str:
    """The machine and the device of measurements, in words; plain text."""
    devices = page_text.join_words(sorted({clean_text(measurement.device, 40) for measurement in measurements}))
    origins = {
        "precomputed" if measurement.provenance == PRECOMPUTED else "measured on this machine"
        for measurement in measurements
    }
    memory_notes = sorted(
        {
            clean_text(measurement.notes[MEMORY_NOTE], 200)
            for measurement in measurements
            if MEMORY_NOTE in measurement.notes
        }
    )
    return " ".join([f"{page_text.join_words(sorted(origins)).capitalize()} on {devices}.", *memory_notes])


def draw_missing(
    key: str, runs: Sequence[Run], reason: str, measured: Sequence[StoredMeasurement] = (), suffix: str = "",
    together: tuple[str, str] | None = None, seconds: float | None = None,
) -> None:  # fmt: skip
    """The box of runs without this measurement: progress, or a button.

    ``measured`` are stored measurements, for the expected time. ``suffix`` tells two boxes of a page apart. The button
    orders ``together`` instead, the key and the subject of a measurement that measures ``key`` of its runs first.
    ``seconds`` is the expected time of all that the button measures, if it measures more than ``key``.
    """

    def draw_running(live: list[Run], _: list[Job]) -> None:
        st.markdown(
            f":material/hourglass_top: The measurement “{find_measurement(key).title}” of {_titles_in_words(live)} "
            f"is running. {GO_ON_NOTE}"
        )

    def draw_offer(missing: list[Run]) -> None:
        order, label = (key, [run.id for run in missing]), "Measure"
        if together:
            whole = shown_measurements.expected_seconds([*(key for _ in missing), together[0]])
            order, label = (together[0], [together[1]]), f"Measure, with one map of all, about {duration_text(whole)}"
        time_note = "" if together else f" {_expected_time(key, measured)}"
        if seconds is not None:
            time_note = f" That takes about {duration_text(seconds)} in all and runs in the background."
        st.markdown(f"{reason} {_titles_in_words(missing)}.{time_note}")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            _draw_button(*order, suffix, label)
            if not suffix:
                _draw_button_of_all(key, missing)

    measurable = [run for run in runs if not find_refusal(find_measurement(key), run.network)]
    for network in dict.fromkeys(run.network for run in runs if run not in measurable):
        st.info(find_refusal(find_measurement(key), page_text.safe_text(network, 60)))
    if measurable:
        live_job = find_live_job(*together) if together else None
        jobs = [(run, live_job or _find_job(key, run)) for run in measurable]
        draw_box(f"{key}{suffix}", jobs, draw_running, draw_offer)


def draw_missing_benchmark(key: str, reason: str, subject: str = "") -> None:
    """The box of a missing measurement of the benchmark, or of runs together (``subject``); its progress is in it."""

    def draw_running(_: list[str], jobs: list[Job]) -> None:
        tray.draw_job(jobs[0], key)

    def draw_offer(_: list[str]) -> None:
        st.markdown(reason)
        _draw_button(key, [subject], suffix=f"_{subject}" if subject else "")

    jobs = page_data.job_queue().list_benchmark_jobs()
    live_job = next((job for job in jobs if job.kind == key and job.subject == subject), None)
    draw_box(key, [(subject, live_job)], draw_running, draw_offer)


def _draw_button(key: str, run_ids: Sequence[str], suffix: str = "", label: str = "Measure") -> None:
    if not refused_action.draw_refusal(VisitorAction.MEASURE) and st.button(label, key=f"measure_{key}{suffix}"):
        start_measuring(key, run_ids)
        st.rerun()  # the whole page: after drawing only a part of it, the tray would not follow the job


def _draw_button_of_all(key: str, runs: Sequence[Run]) -> None:
    """Draw a button that measures all that pages show of the run in hand, or of the only run that lacks ``key``."""
    run = next((run for run in runs if run.id in run_choice.runs_in_hand()[:1]), runs[0] if len(runs) == 1 else None)
    if run is None or len(keys := shown_measurements.list_missing(run)) < 2:
        return
    if not permissions.is_allowed(VisitorAction.MEASURE):
        return
    label = f"Measure all that pages show, about {duration_text(shown_measurements.expected_seconds(keys))}"
    titles = page_text.join_words([find_measurement(one).title for one in keys])
    if st.button(
        label, key=f"measure_all_{key}", type="tertiary", help=f"Of {page_text.safe_text(run.name)}: {titles}."
    ):
        start_all(run.id, keys)
        st.rerun()  # the whole page, as after "Measure"


def find_live_job(key: str, subject: str) -> Job | None:
    """The job that is measuring the benchmark (``subject`` is empty), a run, or runs together."""
    jobs = page_data.job_queue().list_benchmark_jobs()
    return next((job for job in jobs if (job.kind, job.subject) == (key, subject) and job.is_live), None)


def _find_job(key: str, run: Run) -> Job | None:
    """The newest job with this measurement of the run, or of another run with the same result."""
    measurement = find_measurement(key)
    shared = measurement.subject == SubjectKind.EXPERTS  # runs that merge the same experts have one result
    for job in page_data.job_queue().list_benchmark_jobs():
        if job.kind == key and (job.subject == run.id or (shared and _share_result(measurement, job.subject, run))):
            return job
    return None


def _share_result(measurement: Measurement, run_id: str, run: Run) -> bool:
    other_run = page_data.store().find(run_id)
    return other_run is not None and have_same_measurement(measurement, run, other_run)


@click_errors.guard_callback
def start_measuring(key: str, run_ids: Sequence[str]) -> None:
    """Start the measurement ``key`` of each run; the id is empty for a measurement of the benchmark."""
    for run_id in run_ids:
        page_data.job_queue().measure(key, run_id)


def draw_measure_switch(recipe: Recipe, stored: Sequence[Run]) -> list[str]:
    """Draw the switch beside *Run*; returns the measurements that follow the merge.

    It is on at first if all that takes less than ``SHORT_SECONDS``.
    """
    network = recipes.network_name(recipe.pretrained, recipe.family)
    if not permissions.is_allowed(VisitorAction.MEASURE):
        return []
    if not network and page_data.why_not_evaluated(recipe.pretrained):
        return []  # without images nothing is measured
    keys = shown_measurements.list_for_recipe(recipe, network, stored)
    if not keys:
        return []
    seconds = shown_measurements.expected_seconds(keys)
    is_short = seconds < shown_measurements.SHORT_SECONDS
    titles = page_text.join_words([find_measurement(key).title for key in keys])
    is_on = st.checkbox(
        f"with everything that pages show, about {duration_text(seconds)} more", is_short,
        key=f"measure_after_{is_short}",
        help=f"After the merge, each as a job of its own, which can be canceled alone: {titles}. Putting weights back "
        "takes minutes; Drift offers it.",
    )  # fmt: skip
    return keys if is_on else []


def order_after(job: Job, keys: Sequence[str]) -> None:
    """Let these measurements follow a started run; of a run that was stored already, start those that are missing."""
    if keys and job.state == "done" and (run := page_data.store().find(job.subject)):
        start_all(run.id, shown_measurements.list_missing(run))
    elif keys:
        page_data.job_queue().measure_after(job.id, keys)


@click_errors.guard_callback
def start_all(run_id: str, keys: Sequence[str]) -> None:
    """Start these measurements of a run, each as a job of its own."""
    for key in keys:
        page_data.job_queue().measure(key, run_id)


def _titles_in_words(runs: Sequence[Run]) -> str:
    return page_text.join_words([f"**{page_text.safe_text(run.name, 60)}**" for run in runs])


def _expected_time(key: str, measured: Sequence[StoredMeasurement]) -> str:
    """The expected time, estimated from stored measurements, in a sentence."""
    name = f"The measurement “{find_measurement(key).title}”"
    own_measurements = [measurement for measurement in measured if measurement.provenance == THIS_MACHINE]
    seconds_taken = [measurement.seconds for measurement in own_measurements if measurement.seconds is not None]
    if not seconds_taken:
        guess = "takes about a minute at most for each on the bundled benchmark (a guess)"
        return f"{name} {guess}; it runs in the background."
    seconds, device = statistics.median(seconds_taken), page_text.safe_text(own_measurements[0].device, 40)
    experience = f"took about {duration_text(seconds)} for others on this machine, on {device}"
    return f"{name} {experience}; it runs in the background."
