"""The box for results that a view lacks: those being computed, those that failed, and an offer for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from app.widgets.jobs import tray
from merging.tasks.queue.job_records import Job

Item = TypeVar("Item")
GO_ON_NOTE = "You can go on working: the tray on the left shows the progress on every page."


def draw_box(
    key: str,
    items: Sequence[tuple[Item, Job | None]],
    draw_running: Callable[[list[Item], list[Job]], None],
    draw_offer: Callable[[list[Item]], None],
) -> None:
    """Draw the box of items and their newest jobs: ``draw_running`` draws the live ones, ``draw_offer`` the others.

    Errors of failed jobs are above the offer, which includes their items.
    """
    live = [(item, job) for item, job in items if job is not None and job.is_live]
    missing = [(item, job) for item, job in items if job is None or not job.is_live]
    with st.container(border=True, key=f"missing_{key}"):
        if live:
            tray.follow_jobs([job for _, job in live])
            draw_running([item for item, _ in live], [job for _, job in live])
        for _, job in missing:
            if job is not None and job.error:
                tray.draw_job(job, key)
        if missing:
            draw_offer([item for item, _ in missing])
