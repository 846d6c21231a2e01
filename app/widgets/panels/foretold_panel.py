"""How well losses of a chain are foretold before the merge: what is stored of it, and boxes for what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import measurements, page_data, sweeps
from app.reading.figures import cache_table
from app.reading.sweeps import StoredSubsets
from app.widgets.jobs import measure_button, sweep_status
from merging.recipes.recipe import Recipe
from merging.study.partners.foretell import TeamRow, judge_predictors, list_losses
from merging.study.partners.predictors import PAIRS, list_predictors
from merging.study.runs import edit_pairs
from merging.study.sweeps.sweep import Sweep, with_absolute_paths

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.analysis.measurement_store import StoredMeasurement
    from merging.study.runs.run import Run

NO_PREDICTORS = "What is known of these experts before a merge is not measured yet. It is the same for"
NO_RUN = (
    "What is known of these experts before a merge is measured of a run that merges all of them, and none is stored. "
    "Merge them once on Merge."
)


@dataclass(frozen=True)
class Foretold:
    """A chain on a whole team, its ``stored_subsets``, and the ``measurement`` (None: not yet) of a run's predictors.

    ``whole`` is the sweep of all subsets, ``few`` that of single experts, pairs and triples.
    """

    whole: Sweep
    few: Sweep
    stored_subsets: StoredSubsets
    run: Run | None
    measurement: StoredMeasurement | None

    @property
    def is_ready(self) -> bool:
        """Whether losses and predictors are there."""
        return self.stored_subsets.answers.complete and self.measurement is not None

    @cached_property
    def losses(self) -> dict[TeamRow, float]:
        """The measured losses, see ``list_losses``."""
        return list_losses(self.stored_subsets.answers)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The predictors of every ordered pair; only if ``is_ready``."""
        assert self.measurement is not None
        return measurements.measured_table(self.measurement, PAIRS)

    @property
    def verdicts(self) -> pd.DataFrame:
        """The table of ``judge_predictors``; only if ``is_ready``."""
        assert self.measurement is not None
        return _judge(self.stored_subsets.key, self.measurement, self.pairs, self.losses)

    @property
    def note(self) -> str:
        """The images, seeds and devices of losses and predictors, in sentences; only if ``is_ready``."""
        assert self.measurement is not None
        subsets, notes = self.stored_subsets.answers, self.measurement.notes
        images = max((subsets.count_images(task) for task in subsets.tasks), default=0)
        return (
            f"Losses on {images} images of each data set's choosing half (seed {subsets.seed}), on {subsets.device}; "
            f"predictors from {notes['exemplars']} training images of each task (seed {notes['exemplar_seed']}), on "
            f"{self.measurement.device}."
        )


@cache_table
def _judge(
    key: str, measurement: StoredMeasurement, _pairs: pd.DataFrame, _losses: dict[TeamRow, float]
) -> pd.DataFrame:
    return judge_predictors(_pairs, _losses, list_predictors(_pairs))


def read_foretold(recipe: Recipe, images: int) -> Foretold:
    """What is stored of a chain on its experts. Raises RecipeError or CheckpointError, as ``sweeps.plan_team``."""
    whole, few = sweeps.plan_team(recipe, images), sweeps.plan_few(recipe, images)
    stored = sweeps.read_subsets(whole)
    if not stored.answers.complete:
        stored = sweeps.read_subsets(few)
    models = _read_models(recipe)
    recipes = ((run, edit_pairs.read_recipe(run)) for run in page_data.page_runs())
    runs = [run for run, other in recipes if other is not None and _read_models(other) == models]
    found = ((run, measurements.find_measurement(measurements.PREDICTORS, run.id)) for run in runs[:1])
    run, measured = next(found, (None, None))
    return Foretold(whole, few, stored, run, measured)


def _read_models(recipe: Recipe) -> tuple[str, tuple[tuple[str, str], ...]]:
    absolute = with_absolute_paths(recipe, Path.cwd())
    return absolute.pretrained, absolute.experts


def draw_missing(foretold: Foretold, name: str) -> None:
    """The progress of what is being measured, and buttons for what is missing, with their seconds."""
    if not foretold.stored_subsets.answers.complete:
        job = sweeps.sweep_job(foretold.whole)  # which measures pairs and triples, too
        sweep = foretold.whole if job is not None and job.is_live else foretold.few
        sweep_status.draw_job(sweep, "Measure pairs and triples", name)
    if foretold.measurement is None and foretold.run is not None:
        measure_button.draw_missing(measurements.PREDICTORS, [foretold.run], NO_PREDICTORS)
    elif foretold.measurement is None:
        st.info(NO_RUN)
