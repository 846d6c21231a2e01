"""What the Sweeps page reads: stored sweeps, their computed points, and the tables of the charts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading import data
from app.reading.images import drawn as images_drawn
from merging.jobs.records import SWEEP, Job, job_of
from merging.sweeps import compute
from merging.sweeps.compute import Session, plan, stored
from merging.sweeps.points import Point, folders
from merging.sweeps.sweep import LINE, PLANE, NamedPoint, Sweep
from merging.sweeps.tables import averages, table
from viz.text import clean_text, percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

MANY = 4000  # points that stay in memory, a few kilobytes each


@dataclass(frozen=True)
class SweepResults:
    """A sweep's results: every planned point, the computed ones by name, and their tables."""

    sweep: Sweep
    every: list[NamedPoint]
    points: Mapping[str, Point]
    tasks: pd.DataFrame
    averages: pd.DataFrame

    @property
    def total(self) -> int:
        """The number of planned points."""
        return len({point.name for point in self.every})

    @property
    def complete(self) -> bool:
        """Whether every planned point is computed."""
        return len(self.points) == self.total

    @cached_property
    def scores(self) -> dict[str, dict[str, Any]]:
        """The row of ``averages`` of each point."""
        return {row["point"]: row for row in reversed(self.averages.to_dict("records"))}

    def planned(self, point: str) -> NamedPoint:
        """The plan of a point."""
        return next(planned for planned in self.every if planned.name == point)


def results(sweep: Sweep) -> SweepResults:
    """The current results of a sweep. Raises CheckpointError if its files are gone."""
    planned_points = _plan(sweep.id, data.benchmark().digest, sweep)
    points = {planned.name: point for planned in planned_points if (point := _stored(planned, sweep))}
    tasks = table(sweep, planned_points, points)
    labels = ["Weights in the plane"] if sweep.kind == PLANE else titles(sweep)
    tasks = text.with_titles(tasks)
    tasks["label"] = [labels[int(line)] for line in tasks["line"]]
    means = averages(tasks)
    means["label"] = [labels[int(line)] for line in means["line"]]
    return SweepResults(sweep, planned_points, points, tasks, means)


@st.cache_resource(max_entries=data.KEPT, show_spinner="Reading the checkpoints …")
def _plan(sweep_id: str, benchmark_digest: str, _sweep: Sweep) -> list[NamedPoint]:
    return plan(_sweep, data.benchmark())


def doubts(sweep: Sweep) -> list[str]:
    """What may be wrong with the checkpoints of a sweep, in sentences."""
    models = {(one.pretrained, one.experts, one.architecture, one.activation) for one in sweep.recipes}
    references = sorted({path for one in sweep.recipes for path in (one.pretrained, *dict(one.experts).values())})
    files = [data.file_state(path) for path in references]
    return _doubts(str(sorted(models)), str(files), sweep.seen, data.benchmark().digest, sweep)


@st.cache_data(max_entries=data.KEPT, show_spinner="Comparing the checkpoints …")
def _doubts(models: str, files: str, seen: str, benchmark_digest: str, _sweep: Sweep) -> list[str]:
    return compute.doubts(_sweep, Session(data.benchmark(), _sweep.sample))


def digests(sweep: Sweep) -> tuple[str, list[tuple[str, str]]]:
    """The inputs of the points: the benchmark's digest, and those of all checkpoints with their roles."""
    session = Session(data.benchmark(), sweep.sample)
    pairs = [pair for recipe in sweep.recipes for pair in session.opened(recipe).digests().items()]
    return data.benchmark().digest, list(dict.fromkeys(pairs))


def _stored(planned: NamedPoint, sweep: Sweep) -> Point | None:
    """The point; read again only when its files have changed."""
    for folder in folders(data.store()):
        try:
            changed = (folder / planned.name / "manifest.json").stat().st_mtime_ns
        except OSError:
            continue
        if point := _point(planned.name, changed, planned, sweep):
            return point
    return stored(planned, data.store(), data.benchmark(), sweep.sample) if planned.run_id else None


@st.cache_resource(max_entries=MANY, show_spinner=False)
def _point(name: str, changed: int, _one: NamedPoint, _sweep: Sweep) -> Point | None:
    return stored(_one, data.store(), data.benchmark(), _sweep.sample)


def job(sweep: Sweep) -> Job | None:
    """The job that computes a sweep, None if the queue has none."""
    job_id = job_of(SWEEP, sweep.id)
    return next((job for job in data.runner().here() if job.id == job_id), None)


def titles(sweep: Sweep) -> list[str]:
    """A title for each recipe of a sweep; no two are alike, so that pickers and legends distinguish them."""
    names = [recipe.title or text.chain_title(recipe) for recipe in sweep.recipes]
    pairs = zip(names, sweep.recipes, strict=True)
    names = [text.chain_words(recipe) if names.count(name) > 1 else name for name, recipe in pairs]
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    numbered = zip(names, counts, strict=True)
    return [f"{clean_text(name, 50)} ({count})" if names.count(name) > 1 else name for name, count in numbered]


def label(sweep: Sweep) -> str:
    """A sweep's name in the picker; plain text, and unique."""
    return f"{clean_text(title(sweep), 90)}  ·  {sweep.id[:6]}"


def title(sweep: Sweep) -> str:
    """A sweep's own title, or one made of what it varies and its recipes."""
    if sweep.title:
        return sweep.title
    names = " and ".join(clean_text(name, 40) for name in titles(sweep)[:2])
    more = f" and {len(sweep.recipes) - 2} more" if len(sweep.recipes) > 2 else ""
    if sweep.kind == LINE:
        return f"From pretrained through {names}{more}"
    if sweep.kind == PLANE:
        first, second = (clean_text(axis.target, 30) for axis in sweep.axes)
        return f"Plane of {first} and {second}"
    varied = " × ".join(label.partition(": ")[2] or label for label in sweep.labels)
    return f"{varied[:1].upper()}{varied[1:]} of {names}{more}"


def value(sweep: Sweep, score: str) -> str:
    """``score``, or the in-domain accuracy for a plane, which has no tasks out of domain."""
    return "in_domain" if sweep.kind == PLANE else score


def note(results: SweepResults) -> str:
    """The note under every chart: which images, how many, how they were drawn, and the computing device."""
    sample, points = results.sweep.sample.on(data.benchmark()), list(results.points.values())
    tasks = len(sample.tasks) or len(data.benchmark().tasks)
    images = f"at most {sample.images:,} images" if sample.images else "all images"
    drawn = f", drawn with seed {sample.seed}" if sample.images else ""
    devices = text.listed(sorted({clean_text(point.device, 40) for point in points}))
    return (
        f"{images_drawn.of_each(sample.split).capitalize()}: {images} of each of {plural(tasks, 'task')}{drawn}; "
        f"n = {span(point.images for point in points)} images a point, on {devices}."
        f"{images_drawn.sentence(sample.split)}{_differing(results.averages)}"
    )


def _differing(means: pd.DataFrame) -> str:
    """A sentence if points have averages over other tasks, and so other images; empty if all are over the same."""
    if means["n_in"].nunique() < 2 and means["n_out"].nunique() < 2:
        return ""
    inside, outside = (span(means[name]) for name in ("n_in", "n_out"))
    return f" Averages differ in their tasks: n = {inside} images in domain, {outside} out of domain."


def described(results: SweepResults, point: str) -> str:
    """A point's name in pickers: recipe, values, score; plain text."""
    row = results.scores[point]
    values = ", ".join(f"{row[name]:.10g}" for name in "xy" if name in row)
    score = row["in_domain"] if math.isnan(row["h_score"]) else row["h_score"]
    score_name = "in-domain" if math.isnan(row["h_score"]) else "H-score"
    names = f"{clean_text(row['label'], 60)}  ·  " if len(results.sweep.recipes) > 1 else ""
    return f"{names}{values}  ·  {score_name} {percent(score)}"
