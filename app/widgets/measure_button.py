"""Buttons that start missing measurements, and the sentence on the origin of measured numbers under every chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data
from app.session import clicks
from app.widgets import tray
from app.widgets.missing_box import GO_ON, box
from merging.analysis.context import Of
from merging.analysis.registry import kind
from merging.analysis.stored import Measured, same_experts
from merging.runs.run import PRECOMPUTED, Run
from merging.text import duration_text
from viz.text import clean_text

if TYPE_CHECKING:
    from merging.jobs.records import Job


def origin(measured: Sequence[Measured]) -> str:
    """Where, on which device and in what time something was measured; plain text."""
    devices = text.listed(sorted({clean_text(one.device, 40) for one in measured}))
    made = {"precomputed" if one.provenance == PRECOMPUTED else "measured on this machine" for one in measured}
    seconds = sorted(one.seconds for one in measured)
    spent = " to ".join(dict.fromkeys(duration_text(seconds[end]) for end in (0, -1)))
    return f"{text.listed(sorted(made)).capitalize()} on {devices} in {spent}{' each' if len(measured) > 1 else ''}."


def missing(key: str, runs: Sequence[Run], why: str, known: Sequence[Measured] = ()) -> None:
    """The box of runs without this measurement: progress, or a button. ``known`` are others, for the expected time."""

    def running(live: list[Run], _: list[Job]) -> None:
        st.markdown(
            f":material/hourglass_top: The measurement “{kind(key).title}” of {_named(live)} is running. {GO_ON}"
        )

    def offer(rest: list[Run]) -> None:
        st.markdown(f"{why} {_named(rest)}. {_effort(key, known)}")
        _button(key, [run.id for run in rest])

    box(key, [(run, _job(key, run)) for run in runs], running, offer)


def missing_benchmark(key: str, why: str) -> None:
    """The same for a measurement of the benchmark; its progress is shown in the box."""

    def running(_: list[str], jobs: list[Job]) -> None:
        tray.show(jobs[0], key)

    def offer(_: list[str]) -> None:
        st.markdown(why)
        _button(key, [""])

    box(key, [("", next((job for job in data.runner().here() if job.kind == key), None))], running, offer)


def _button(key: str, run_ids: Sequence[str]) -> None:
    st.button("Measure", key=f"measure_{key}", on_click=_start, args=(key, run_ids))


def _job(key: str, run: Run) -> Job | None:
    """The newest job that measures this for a run, or for another run with the same result."""
    shared = kind(key).of == Of.EXPERTS
    for job in data.runner().here():
        if job.kind == key and (job.subject == run.id or (shared and _same_experts(job.subject, run))):
            return job
    return None


def _same_experts(run_id: str, run: Run) -> bool:
    other = data.store().find(run_id)
    return other is not None and same_experts(run, other)


@clicks.guarded
def _start(key: str, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        data.runner().measure(key, run_id)


def _named(runs: Sequence[Run]) -> str:
    return text.listed([f"**{text.safe_text(run.title, 60)}**" for run in runs])


def _effort(key: str, known: Sequence[Measured]) -> str:
    """How long it takes, estimated from other measurements."""
    name = f"The measurement “{kind(key).title}”"
    if not known:
        return f"{name} takes about a minute at most for each on the bundled benchmark; it runs in the background."
    seconds = sorted(one.seconds for one in known)[len(known) // 2]
    where = text.safe_text(known[0].device, 40)
    return f"{name} took {duration_text(seconds)} for others, on {where}; it runs in the background."
