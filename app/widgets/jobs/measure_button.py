"""Buttons that start missing measurements, and the sentence on the origin of measured numbers under every chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data
from app.session import clicks
from app.widgets.jobs import own_machine, tray
from app.widgets.jobs.missing_box import GO_ON, box
from merging.base.modes import Act
from merging.base.text import duration_text
from merging.study.analysis.registry import kind, refusal
from merging.study.analysis.stored import MEMORY, Measured, share_measurements
from merging.study.analysis.subject import Of
from merging.study.runs.run import PRECOMPUTED, THIS_MACHINE, Run
from viz.text import clean_text

if TYPE_CHECKING:
    from merging.tasks.queue.records import Job


def origin(measured: Sequence[Measured]) -> str:
    """Where and on which device something was measured; plain text."""
    devices = text.listed(sorted({clean_text(one.device, 40) for one in measured}))
    made = {"precomputed" if one.provenance == PRECOMPUTED else "measured on this machine" for one in measured}
    short = sorted({clean_text(one.notes[MEMORY], 200) for one in measured if MEMORY in one.notes})
    return " ".join([f"{text.listed(sorted(made)).capitalize()} on {devices}.", *short])


def missing(key: str, runs: Sequence[Run], why: str, known: Sequence[Measured] = ()) -> None:
    """The box of runs without this measurement: progress, or a button. ``known`` are others, for the expected time."""

    def running(live: list[Run], _: list[Job]) -> None:
        st.markdown(
            f":material/hourglass_top: The measurement “{kind(key).title}” of {_named(live)} is running. {GO_ON}"
        )

    def offer(rest: list[Run]) -> None:
        st.markdown(f"{why} {_named(rest)}. {_effort(key, known)}")
        _button(key, [run.id for run in rest])

    able = [run for run in runs if not refusal(kind(key), run.network)]
    for network in dict.fromkeys(run.network for run in runs if run not in able):
        st.info(refusal(kind(key), text.safe_text(network, 60)))
    if able:
        box(key, [(run, _job(key, run)) for run in able], running, offer)


def missing_benchmark(key: str, why: str) -> None:
    """The same for a measurement of the benchmark; its progress is shown in the box."""

    def running(_: list[str], jobs: list[Job]) -> None:
        tray.show(jobs[0], key)

    def offer(_: list[str]) -> None:
        st.markdown(why)
        _button(key, [""])

    box(key, [("", next((job for job in data.runner().here() if job.kind == key), None))], running, offer)


def _button(key: str, run_ids: Sequence[str]) -> None:
    if not own_machine.refused(Act.MEASURE) and st.button("Measure", key=f"measure_{key}"):
        start(key, run_ids)
        st.rerun()  # the whole page: where only a part of it is drawn, the tray would not follow the job


def _job(key: str, run: Run) -> Job | None:
    """The newest job that measures this for a run, or for another run with the same result."""
    shared = kind(key).of == Of.EXPERTS
    for job in data.runner().here():
        if job.kind == key and (job.subject == run.id or (shared and _same_experts(job.subject, run))):
            return job
    return None


def _same_experts(run_id: str, run: Run) -> bool:
    other = data.store().find(run_id)
    return other is not None and share_measurements(run, other)


@clicks.guarded
def start(key: str, run_ids: Sequence[str]) -> None:
    """Measure this for each of these runs; the id is empty for a measurement of the benchmark."""
    for run_id in run_ids:
        data.runner().measure(key, run_id)


def _named(runs: Sequence[Run]) -> str:
    return text.listed([f"**{text.safe_text(run.name, 60)}**" for run in runs])


def _effort(key: str, known: Sequence[Measured]) -> str:
    """How long it takes, estimated from other measurements."""
    name = f"The measurement “{kind(key).title}”"
    own = [one for one in known if one.provenance == THIS_MACHINE]
    took = [one.seconds for one in own if one.seconds is not None]
    if not took:
        guess = "takes about a minute at most for each on the bundled benchmark (a guess)"
        return f"{name} {guess}; it runs in the background."
    seconds, where = statistics.median(took), text.safe_text(own[0].device, 40)
    others = f"took about {duration_text(seconds)} for others on this machine, on {where}"
    return f"{name} {others}; it runs in the background."
