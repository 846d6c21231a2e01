"""A button for a missing measurement, and the sentence beside a chart that says where its numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data
from app.widgets import tray
from merging.analysis.context import Of
from merging.analysis.registry import kind
from merging.analysis.stored import Measured, same_experts
from merging.runs.run import PRECOMPUTED, Run
from merging.text import duration_text
from viz.text import clean_text

if TYPE_CHECKING:
    from merging.jobs.records import Job


def origin(measured: Sequence[Measured]) -> str:
    """Where, on which devices and in which time something was measured; plain text."""
    devices = text.listed(sorted({clean_text(one.device, 40) for one in measured}))
    places = {"precomputed" if one.provenance == PRECOMPUTED else "measured on this machine" for one in measured}
    seconds = sorted(one.seconds for one in measured)
    range_text = " to ".join(dict.fromkeys(duration_text(seconds[end]) for end in (0, -1)))
    each = " each" if len(measured) > 1 else ""
    return f"{text.listed(sorted(places)).capitalize()} on {devices} in {range_text}{each}."


def missing(key: str, runs: Sequence[Run], why: str, known: Sequence[Measured] = ()) -> None:
    """Draw a button for what is not measured yet, or its progress. ``known`` measurements give the time it takes."""
    jobs = {run.id: job for run in runs if (job := _job(key, run))}
    live = [run for run in runs if run.id in jobs and jobs[run.id].live]
    rest = [run for run in runs if run not in live]
    with st.container(border=True, key=f"missing_{key}"):
        if live:
            st.markdown(
                f":material/hourglass_top: {_named(live)} {'is' if len(live) == 1 else 'are'} being measured. You can "
                "go on working: the tray on the left shows how far it is and follows you to every page."
            )
        for run in rest:
            if run.id in jobs and jobs[run.id].error:
                tray.show(jobs[run.id], key)
        if rest:
            st.markdown(f"{why} {_named(rest)}. {_effort(known)}")
            st.button("Measure", key=f"measure_{key}", on_click=_start, args=(key, [run.id for run in rest]))


def missing_benchmark(key: str, why: str) -> None:
    """Draw the same for a measurement of the benchmark."""
    job = next((job for job in data.runner().here() if job.kind == key), None)
    with st.container(border=True, key=f"missing_{key}"):
        if job is not None and (job.live or job.error):
            tray.show(job, key)
        if job is None or not job.live:
            st.markdown(why)
            st.button("Measure", key=f"measure_{key}", on_click=_start, args=(key, [""]))


def _job(key: str, run: Run) -> Job | None:
    """The newest job that measures this of a run, or of another run whose result is the same."""
    shared = kind(key).of == Of.EXPERTS
    for job in data.runner().here():
        if job.kind == key and (job.subject == run.id or (shared and _same_experts(job.subject, run))):
            return job
    return None


def _same_experts(run_id: str, run: Run) -> bool:
    other = data.store().find(run_id)
    return other is not None and same_experts(run, other)


def _start(key: str, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        data.runner().measure(key, run_id)


def _named(runs: Sequence[Run]) -> str:
    return text.listed([f"**{text.safe_text(run.title, 60)}**" for run in runs])


def _effort(known: Sequence[Measured]) -> str:
    """A sentence on the time that it takes, from stored measurements if there are any."""
    if not known:
        return "On the bundled benchmark it takes about a minute at most for each; it runs in the background."
    seconds = sorted(one.seconds for one in known)[len(known) // 2]
    where = text.safe_text(known[0].device, 40)
    return f"It took {duration_text(seconds)} for others, on {where}; it runs in the background."
