"""Data of a tuning on the Sweeps page: its trials so far, and their names and scores in words."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data, samples
from merging.study.sweeps import points
from merging.study.tuning import tuning_tables
from merging.study.tuning.searches import TUNE
from merging.study.tuning.space import write_values
from merging.study.tuning.tuning import OBJECTIVES, Tuning, read_spent
from merging.study.tuning.tuning_session import Trial, TuningSession, TuningTrace, find_best
from merging.tasks.queue import job_kinds
from merging.tasks.queue.job_records import Job, name_job
from viz.figure_text import clean_text, percent, span

if TYPE_CHECKING:
    import pandas as pd

MIN_IDLE_RATIO = 10.0  # while points are computed: least idle time between two readings, in reading times
OBJECTIVE_TITLES = {name: title[0].upper() + title[1:] for name, title in OBJECTIVES.items()}
SEARCH_NAMES = {"tune": "Tuning", "random": "Random search", "grid": "Grid"}


@dataclass(frozen=True)
class TuningResults:
    """A tuning's trace, with its tables."""

    trace: TuningTrace

    @cached_property
    def trials(self) -> pd.DataFrame:
        """``trial_table``, with values in words, and the run only where it is stored."""
        table = tuning_tables.trial_table(self.trace)
        stored = page_data.store().list_ids()
        words = [clean_text(write_values(values), 200) for values in table["values"]]
        return table.assign(values=words, run=[run if run in stored else "" for run in table["run"]])

    @cached_property
    def dimensions(self) -> pd.DataFrame:
        """``dimension_table``, with values in words."""
        table = tuning_tables.dimension_table(self.trace)
        return table.drop(columns="run").merge(
            self.trials[["search", "trial", "values", "run"]], on=["search", "trial"]
        )

    @cached_property
    def best(self) -> pd.DataFrame:
        """``best_table``."""
        return tuning_tables.best_table(self.trace, page_data.benchmark())

    @cached_property
    def importances(self) -> pd.DataFrame:
        """``importance_table``, with objectives in words."""
        table = tuning_tables.importance_table(self.trace)
        return table.assign(objective=table["objective"].map(OBJECTIVE_TITLES))

    @cached_property
    def by_point(self) -> dict[str, Trial]:
        """{point: the first computed trial that asked for it}."""
        found: dict[str, Trial] = {}
        for trial in self.trace.trials:
            if trial.planned is not None and trial.point is not None:
                found.setdefault(trial.planned.name, trial)
        return found

    @property
    def best_point(self) -> str:
        """The best point of the tuning, else of another search; empty without points."""
        best = find_best(self.trace.trials, self.trace.tuning.objectives)
        trial = best.get(TUNE) or next(iter(best.values()), None)
        return trial.planned.name if trial is not None and trial.planned is not None else ""

    @property
    def score_name(self) -> str:
        """What the value of a trial is."""
        return score_name(self.trace.tuning)

    @property
    def note(self) -> str:
        """The note under every chart: the images, and the devices."""
        found = [trial.point for trial in self.by_point.values() if trial.point is not None]
        devices = page_text.join_words(sorted({clean_text(point.device, 40) for point in found}))
        images = f"n = {span({point.images for point in found})} images a point" if found else "no point"
        return f"{samples.scored_part_of_each('choosing').capitalize()}: {images}, on {devices}."


class _Holder:
    """The latest results of a tuning, with the state of the store that they were read from."""

    results: TuningResults | None = None
    state: tuple[object, ...] = ()
    read_at = seconds = 0.0


@st.cache_resource(max_entries=8, show_spinner=False)
def _hold(tuning_id: str, benchmark: str, root: Path) -> _Holder:
    return _Holder()


def read_results(tuning: Tuning, is_live: bool) -> TuningResults:
    """What is stored of a tuning now; while points are computed (``is_live``), of a little earlier.

    Raises MergingError if a file is missing, or Optuna is.
    """
    store, benchmark = page_data.store(), page_data.benchmark()
    held = _hold(tuning.id, benchmark.digest, store.root)
    state = len(points.point_results(store).list_locations()), len(store.list_ids()), read_spent(store, tuning.id)
    is_early = is_live and time.monotonic() - held.read_at < MIN_IDLE_RATIO * held.seconds
    if held.results is None or (state != held.state and not is_early):
        started = time.monotonic()
        held.results, held.state = TuningResults(TuningSession(tuning, store, benchmark).read()), state
        held.read_at, held.seconds = time.monotonic(), time.monotonic() - started
    return held.results


def tuning_job(tuning: Tuning) -> Job | None:
    """The job that computes a tuning, None if the queue has none."""
    job_id = name_job(job_kinds.TUNE, tuning.id)
    return next((job for job in page_data.job_queue().list_benchmark_jobs() if job.id == job_id), None)


def tuning_title(tuning: Tuning) -> str:
    """A tuning's own title, or one made from its recipe."""
    recipe = tuning.recipe
    return tuning.title or f"Best values of {clean_text(recipe.title or page_text.chain_title(recipe), 60)}"


def tuning_label(tuning: Tuning) -> str:
    """A tuning's name in the picker; plain text, and unique."""
    return f"{clean_text(tuning_title(tuning), 90)}  ·  {tuning.id[:6]}"


def score_name(tuning: Tuning) -> str:
    """What the value of a trial is: its objective, or the harmonic mean of several."""
    names = [OBJECTIVE_TITLES[name] for name in tuning.objectives]
    name = names[0] if len(names) == 1 else "harmonic mean"
    return f"{name[:1].upper()}{name[1:]}"


def trial_label(results: TuningResults, point: str) -> str:
    """A trial's name in pickers: search, number, score, values; plain text."""
    trial = results.by_point[point]
    scores = " / ".join(percent(trial.score(name)) for name in results.trace.tuning.objectives)
    values = clean_text(write_values(trial.values), 100)
    return f"{SEARCH_NAMES[trial.search]} {trial.number}  ·  {scores}  ·  {values}"
