"""Data of the Partners page: the chosen chain, its sweep of subsets, and the tables of the charts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from app.reading import page_data, sweeps
from app.reading.figures import cache_table
from app.reading.sweeps import StoredSubsets
from merging.images.benchmarks.image_draws import REPORTING
from merging.recipes.recipe import Recipe
from merging.study.partners.best_subsets import best_table, choose_best, list_chosen
from merging.study.partners.shapley import shapley_table
from merging.study.partners.subsets import DEFAULT_IMAGES, MeasuredSubsets
from merging.study.partners.who_hurts import AMONG_ALL, loss_table, order_experts
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import SUBSETS, Sweep
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

OFFERED = ("task_arithmetic", "weight_averaging", "ties", "task_arithmetic_lwptv", "tsv_m")  # presets, first of all
IMAGE_COUNTS = (DEFAULT_IMAGES, 16, 32, 128, 0)  # of each data set, to choose from; 0 is all


@dataclass(frozen=True)
class Team:
    """A chain on a team of experts, and what is measured of its subsets with ``sweep``."""

    sweep: Sweep

    @classmethod
    def of_chain(cls, recipe: Recipe, images: int) -> Team:
        """The chain on ``images`` of each data set. Raises RecipeError for fewer than two experts, or too many."""
        return cls(sweeps.plan_team(recipe, images))

    @property
    def recipe(self) -> Recipe:
        """The chain on all experts."""
        return self.sweep.recipes[0]

    @cached_property
    def stored_subsets(self) -> StoredSubsets:
        """What is stored so far. Raises CheckpointError if a file is missing."""
        return sweeps.read_subsets(self.sweep)

    @property
    def answers(self) -> MeasuredSubsets:
        """The answers so far. Raises CheckpointError if a file is missing."""
        return self.stored_subsets.answers

    @cached_property
    def report_sweep(self) -> Sweep | None:
        """The sweep that scores the best subsets on all images of the reporting half; None until they are known."""
        if not self.answers.complete:
            return None
        return sweeps.plan_team(self.recipe, 0, REPORTING, tuple(list_chosen(choose_best(self.answers))))

    @cached_property
    def report(self) -> StoredSubsets | None:
        """The answers on the reporting half; None until all of them are there."""
        stored = None if self.report_sweep is None else sweeps.read_subsets(self.report_sweep)
        return stored if stored and stored.answers.complete else None

    @property
    def is_live(self) -> bool:
        """Whether subsets are being measured, on either half, or only pairs and triples."""
        planned = self.sweep, self.report_sweep, sweeps.plan_few(self.recipe, self.sweep.images)
        jobs = [sweeps.sweep_job(sweep) for sweep in planned if sweep is not None]
        return any(job is not None and job.is_live for job in jobs)

    @property
    def note(self) -> str:
        """The sentence on images and devices under every chart."""
        sample = self.sweep.sample.normalize_on(page_data.benchmark())
        images = f"{sample.images} images" if sample.images else "all images"
        return (
            f"{len(self.answers.right)} of {plural(self.answers.total, 'subset')} measured, each on {images} of each "
            f"data set's choosing half (seed {sample.seed}), on {clean_text(self.answers.device, 80)}."
        )


def list_image_counts(recipe: Recipe) -> list[int]:
    """``IMAGE_COUNTS``, and the other counts with which subsets of this chain were measured.

    Raises RecipeError, see ``Team.of_chain``.
    """
    others = {
        sweep.images
        for sweep_id, sweep in sweep_storage.list_sweeps(page_data.store(), (SUBSETS,)).items()
        if sweep.images not in IMAGE_COUNTS and Team.of_chain(recipe, sweep.images).sweep.id == sweep_id
    }
    return [*IMAGE_COUNTS, *sorted(others)]


@cache_table
def read_losses(key: str, among: str, _measured: MeasuredSubsets) -> pd.DataFrame:
    """The losses of every task by every expert, see ``loss_table``."""
    return loss_table(_measured, among)


@cache_table
def read_values(key: str, _measured: MeasuredSubsets) -> pd.DataFrame:
    """The Shapley values, see ``shapley_table``."""
    return shapley_table(_measured)


@cache_table
def read_best(key: str, report_key: str, _measured: MeasuredSubsets, _report: MeasuredSubsets | None) -> pd.DataFrame:
    """The best subset of each size, see ``best_table``."""
    return best_table(_measured, _report)


def order_team(team: Team) -> list[str]:
    """The experts in the order of the clustering of their losses among all, in every chart of the page."""
    return order_experts(read_losses(team.stored_subsets.key, AMONG_ALL, team.answers), team.answers.experts)
