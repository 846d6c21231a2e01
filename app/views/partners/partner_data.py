"""Data of the Partners page: the chosen chain, its sweep of subsets, and the tables of the charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import page_data, sweeps
from app.reading.figures import cache_table
from merging.recipes.recipe import Recipe
from merging.study.partners.stored_subsets import collect_subsets
from merging.study.partners.subsets import DEFAULT_IMAGES, REPORTING, MeasuredSubsets, plan_subsets
from merging.study.sweeps.sweep import Sweep, with_absolute_paths
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

OFFERED = ("task_arithmetic", "weight_averaging", "ties", "task_arithmetic_lwptv", "tsv_m")  # presets, first of all
IMAGE_COUNTS = (DEFAULT_IMAGES, 16, 32, 128, 0)


@dataclass(frozen=True)
class Team:
    """A chain on a team of experts, and what is measured of its subsets with ``sweep``."""

    recipe: Recipe
    sweep: Sweep

    @classmethod
    def of_chain(cls, recipe: Recipe, images: int) -> Team:
        """The chain on ``images`` of each data set. Raises RecipeError for fewer than two experts, or too many."""
        recipe = replace(with_absolute_paths(recipe, Path.cwd()), title="")
        return cls(recipe, plan_subsets(recipe, images))

    @property
    def key(self) -> tuple[str, str, int]:
        """What the tables depend on: sweep, benchmark, and the number of measured subsets."""
        return self.sweep.id, page_data.benchmark().digest, len(self.measured.right)

    @cached_property
    def measured(self) -> MeasuredSubsets:
        """The answers so far. Raises CheckpointError if a file is missing."""
        return _read_measured(self.sweep)

    @property
    def is_live(self) -> bool:
        """Whether subsets are being measured."""
        return _is_live(self.sweep)

    def plan_report(self, subsets: Sequence[int]) -> Sweep:
        """The sweep that gives the scores of these subsets on all images of the reporting half."""
        return plan_subsets(self.recipe, 0, split=REPORTING, subsets=subsets)

    @property
    def note(self) -> str:
        """The sentence on images and devices under every chart."""
        sample = self.sweep.sample.normalize_on(page_data.benchmark())
        images = f"{sample.images} images" if sample.images else "all images"
        return (
            f"{len(self.measured.right)} of {plural(self.measured.total, 'subset')} measured, each on {images} of each "
            f"data set's choosing half (seed {sample.seed}), on {clean_text(self.measured.device, 80)}."
        )


def read_report(sweep: Sweep) -> MeasuredSubsets | None:
    """The answers on the reporting half; None until all of them are there."""
    measured = _read_measured(sweep)
    return measured if measured.complete else None


def _is_live(sweep: Sweep) -> bool:
    job = sweeps.sweep_job(sweep)
    return job is not None and job.is_live


def _read_measured(sweep: Sweep) -> MeasuredSubsets:
    points = sweeps.sweep_points(sweep)
    return _collect(sweep.id, page_data.benchmark().digest, tuple(points.points), sweep, points)


@st.cache_resource(max_entries=8, show_spinner=False)
def _collect(
    sweep_id: str, benchmark: str, names: tuple[str, ...], _sweep: Sweep, _points: sweeps.SweepPoints
) -> MeasuredSubsets:
    store, on_benchmark = page_data.store(), page_data.benchmark()
    return collect_subsets(_sweep, store, on_benchmark, _points.planned_points, _points.points)


@cache_table
def read_losses(key: tuple[str, str, int], among: str, _measured: MeasuredSubsets) -> pd.DataFrame:
    """The losses of every task by every expert, see ``loss_table``."""
    from merging.study.partners.who_hurts import loss_table

    return loss_table(_measured, among)


@cache_table
def read_values(key: tuple[str, str, int], _measured: MeasuredSubsets) -> pd.DataFrame:
    """The Shapley values, see ``shapley_table``."""
    from merging.study.partners.shapley import shapley_table

    return shapley_table(_measured)


@cache_table
def read_best(
    key: tuple[str, str, int], has_report: bool, _measured: MeasuredSubsets, _report: MeasuredSubsets | None
) -> pd.DataFrame:
    """The best subset of each size, see ``best_table``."""
    from merging.study.partners.best_subsets import best_table

    return best_table(_measured, _report)


def order_team(team: Team) -> list[str]:
    """The experts in the order of the clustering of their losses in pairs, in every chart of the page."""
    from merging.study.partners.who_hurts import IN_PAIRS, order_experts

    return order_experts(read_losses(team.key, IN_PAIRS, team.measured), team.measured.experts)
