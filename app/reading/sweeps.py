"""What the Sweeps page reads: stored sweeps, which of their points are there, and the tables that the charts take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data
from merging.jobs.records import SWEEP, Job, job_of
from merging.sweeps.compute import NamedPoint, Session, plan, stored
from merging.sweeps.points import Point, folders
from merging.sweeps.sweep import LINE, PLANE, Sweep
from merging.sweeps.tables import averages, table
from viz.text import clean_text, percent, plural

if TYPE_CHECKING:
    import pandas as pd

MANY = 4000  # points that stay in memory, a few kilobytes each


@dataclass(frozen=True)
class SweepResults:
    """A sweep with what is there of it: every planned point, the computed ones by name, and their tables."""

    sweep: Sweep
    every: list[NamedPoint]
    points: Mapping[str, Point]
    tasks: pd.DataFrame
    averages: pd.DataFrame

    @property
    def total(self) -> int:
        """How many points there will be."""
        return len({one.name for one in self.every})

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return len(self.points) == self.total

    def planned(self, point: str) -> NamedPoint:
        """What a point is of."""
        return next(one for one in self.every if one.name == point)

    @property
    def best(self) -> str:
        """The point with the highest H-score; the highest in-domain accuracy where there is no other domain."""
        scores = self.averages["h_score"].fillna(self.averages["in_domain"])
        return str(self.averages["point"].iloc[int(scores.argmax())])


def found(sweep: Sweep) -> SweepResults:
    """What is there of a sweep now. Raises CheckpointError if its files are gone."""
    every = _plan(sweep.id, data.benchmark().digest, sweep)
    points = {one.name: point for one in every if (point := _stored(one, sweep))}
    tasks = table(sweep, every, points)
    labels = ["Weights in the plane"] if sweep.kind == PLANE else titles(sweep)
    tasks["label"] = [labels[int(line)] for line in tasks["line"]]
    means = averages(tasks)
    means["label"] = [labels[int(line)] for line in means["line"]]
    return SweepResults(sweep, every, points, tasks, means)


@st.cache_resource(max_entries=data.KEPT, show_spinner="Reading the checkpoints …")
def _plan(sweep_id: str, benchmark_digest: str, _sweep: Sweep) -> list[NamedPoint]:
    return plan(_sweep, data.benchmark())


def digests(sweep: Sweep) -> tuple[str, list[tuple[str, str]]]:
    """What the points are computed from: the benchmark's digest, and those of all checkpoints with their roles."""
    session = Session(data.benchmark(), sweep.sample)
    read = [pair for recipe in sweep.recipes for pair in session.opened(recipe).digests().items()]
    return data.benchmark().digest, list(dict.fromkeys(read))


def _stored(one: NamedPoint, sweep: Sweep) -> Point | None:
    """The point; read again only when its files have changed."""
    for folder in folders(data.store()):
        try:
            changed = (folder / one.name / "manifest.json").stat().st_mtime_ns
        except OSError:
            continue
        if point := _point(one.name, changed, one, sweep):
            return point
    return stored(one, data.store(), data.benchmark(), sweep.sample) if one.run_id else None


@st.cache_resource(max_entries=MANY, show_spinner=False)
def _point(name: str, changed: int, _one: NamedPoint, _sweep: Sweep) -> Point | None:
    return stored(_one, data.store(), data.benchmark(), _sweep.sample)


def job(sweep: Sweep) -> Job | None:
    """The job that computes a sweep, if it is known."""
    wanted = job_of(SWEEP, sweep.id)
    return next((job for job in data.runner().here() if job.id == wanted), None)


def titles(sweep: Sweep) -> list[str]:
    """What each recipe of a sweep is called: no two alike, so that pickers and legends can tell them apart."""
    names = [recipe.title or text.chain_title(recipe) for recipe in sweep.recipes]
    pairs = zip(names, sweep.recipes, strict=True)
    names = [text.chain_words(recipe) if names.count(name) > 1 else name for name, recipe in pairs]
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    numbered = zip(names, counts, strict=True)
    return [f"{clean_text(name, 50)} ({count})" if names.count(name) > 1 else name for name, count in numbered]


def label(sweep: Sweep) -> str:
    """How the picker calls a sweep; plain text, and another one for every sweep."""
    return f"{clean_text(title(sweep), 90)}  ·  {sweep.id[:6]}"


def title(sweep: Sweep) -> str:
    """What a sweep is called: its own title, or what it varies in what."""
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
    """A score that the sweep has: a plane has no tasks out of domain."""
    return "in_domain" if sweep.kind == PLANE else score


def note(found: SweepResults) -> str:
    """What stands under every picture: which images, how many, drawn how, computed on what."""
    sample, points = found.sweep.sample.on(data.benchmark()), list(found.points.values())
    tasks = len(sample.tasks) or len(data.benchmark().tasks)
    images = f"at most {sample.images:,} images" if sample.images else "all images"
    drawn = f", drawn with seed {sample.seed}" if sample.images else ""
    n = max((point.images for point in points), default=0)
    devices = text.listed(sorted({clean_text(point.device, 40) for point in points}))
    return (
        f"{sample.split.capitalize()} half of each test set: {images} of each of {plural(tasks, 'task')}{drawn}; "
        f"n = {n:,} images a point, on {devices}."
    )


def described(found: SweepResults, point: str) -> str:
    """How pickers call a point: recipe, values, score; plain text."""
    row = found.averages[found.averages["point"] == point].iloc[0]
    values = ", ".join(f"{row[name]:.10g}" for name in "xy" if name in row)
    score = row["in_domain"] if math.isnan(row["h_score"]) else row["h_score"]
    what = "in-domain" if math.isnan(row["h_score"]) else "H-score"
    names = f"{clean_text(row['label'], 60)}  ·  " if len(found.sweep.recipes) > 1 else ""
    return f"{names}{values}  ·  {what} {percent(score)}"
