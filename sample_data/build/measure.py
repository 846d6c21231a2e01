"""Measures models and merges once each, on the images that may be reported on, and keeps what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from sample_data.build import scalings
from sample_data.build.stored_models import Recipe, StoredModels, percent

LWPTV = (("lwptv", {"prune_ratio": 0.7}),)
DISJOINT_MEAN = {"density": 1.0, "aggregation": "mean", "scaling": 1.0}
TATR = (("tatr", {}),)
MAGNITUDE, RANDOM = (("magnitude", {}),), (("random_mask", {}),)
AVERAGING = Recipe("weight averaging", "weight_averaging")
TASK_ARITHMETIC = Recipe("task arithmetic", "task_arithmetic", {"scaling": 0.3})
MASKED = Recipe("lwptv, task arithmetic", "task_arithmetic", {"scaling": 0.3}, LWPTV)
LOT = Recipe("LOT, 64 exemplars", "lot", {"scaling": 1.0}, exemplars=64)
TIES_MEAN = Recipe("TIES, mean", "ties", {"aggregation": "mean", "scaling": 1.0})
RECIPES = (
    AVERAGING,
    TASK_ARITHMETIC,
    Recipe("TIES, sum", "ties", {"scaling": 0.3}),
    TIES_MEAN,
    MASKED,
    Recipe("lwptv, TIES, sum", "ties", {"scaling": 0.3}, LWPTV),
    Recipe("dare, task arithmetic", "task_arithmetic", {"scaling": 0.3}, (("dare", {}),)),
    Recipe("dare, TIES, mean", "ties", DISJOINT_MEAN, (("dare", {"drop_rate": 0.8}),)),
    Recipe("magnitude, task arithmetic", "task_arithmetic", {"scaling": 0.3}, MAGNITUDE),
    Recipe("random mask, task arithmetic", "task_arithmetic", {"scaling": 0.3}, RANDOM),
    Recipe("awd, task arithmetic", "task_arithmetic", {"scaling": 0.3}, (("awd", {}),)),
    Recipe("lines, task arithmetic", "task_arithmetic", {"scaling": 1.0}, (("lines", {}),)),
    Recipe("Consensus", "consensus", {"scaling": 0.3}),
    Recipe("Consensus, TIES", "consensus", {"scaling": 0.3, "base": "ties"}),
    Recipe("PCB", "pcb", {"scaling": 1.2}),
    Recipe("lwptv, PCB", "pcb", {"scaling": 1.2}, LWPTV),
    Recipe("Model Stock", "model_stock"),
    Recipe("DRM, horizontal", "drm", {"scaling": 1.0}),
    Recipe("DRM, vertical", "drm", {"scaling": 1.0, "direction": "vertical"}),
    Recipe("TSV-M", "tsv_m", {"scaling": 1.0}),
    Recipe("Iso-C", "iso_c", {"scaling": 1.5}),
    Recipe("Iso-CTS", "iso_cts", {"scaling": 1.5}),
    Recipe("WUDI", "wudi", {"scaling": 1.0}),
    Recipe("WUDI, learning rate 1e-4", "wudi", {"scaling": 1.0, "lr": 1e-4}),
    Recipe("cat, task arithmetic, 2 exemplars", "task_arithmetic", {"scaling": 0.4}, (("cat", {}),), 2),
    Recipe("cat, TIES, sum, 2 exemplars", "ties", {"scaling": 0.3}, (("cat", {}),), 2),
    Recipe("tatr, task arithmetic, 64 labeled exemplars", "task_arithmetic", {"scaling": 0.3}, TATR, 64),
    Recipe("tatr, TIES, sum, 64 labeled exemplars", "ties", {"scaling": 0.3}, TATR, 64),
    Recipe("Fisher, 64 exemplars", "fisher", exemplars=64),
    Recipe("RegMean, 64 exemplars", "regmean", exemplars=64),
    LOT,
)


class MeasuredModels:
    """Everything measured once: models in, correctness per image and summaries out."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.bench, self.say = StoredModels(folder), say
        self.inside, self.outside = self.bench.inside, self.bench.outside
        self.everything = [*self.inside, *self.outside]
        self._merged: dict[str, dict[str, np.ndarray]] = {}

    @cached_property
    def pretrained(self) -> dict[str, np.ndarray]:
        """The pretrained model on the reporting images of every data set."""
        return self.bench.find_correct(self.bench.pretrained, self.everything)

    @cached_property
    def experts(self) -> dict[str, dict[str, np.ndarray]]:
        """Each expert on its own task and out of domain."""
        return {key: self.bench.find_correct(model, [key, *self.outside]) for key, model in self.bench.experts.items()}

    @cached_property
    def own_accuracies(self) -> dict[str, float]:
        """Each expert's accuracy on its own task."""
        return {key: percent(found, [key]) for key, found in self.experts.items()}

    @cached_property
    def multitask(self) -> dict[str, np.ndarray]:
        """The multi-task model on the reporting images of every data set."""
        return self.bench.find_correct(self.bench.model("multitask"), self.everything)

    def correct(self, recipe: Recipe) -> dict[str, np.ndarray]:
        """A merged model on the reporting images of every data set, measured once per recipe."""
        label = f"{recipe.title}, {recipe.scaling}"
        if label not in self._merged:
            self._merged[label] = self.bench.find_correct(self.bench.merge(recipe), self.everything)
        return self._merged[label]

    @cached_property
    def all_scalings(self) -> pd.DataFrame:
        """Every recipe at every scaling of the grid: one row each, as ``scalings.table`` has them."""
        tables = []
        for recipe in RECIPES:
            try:
                tables.append(self._measure_scalings(recipe))
            except Exception as problem:  # a method that is missing or fails must not hide the other rows
                self.say(f"{recipe.title}: not measured: {problem}")
        return pd.concat(tables, ignore_index=True)

    def _measure_scalings(self, recipe: Recipe) -> pd.DataFrame:
        """The rows of one recipe: choosing images at every scaling, reporting images at the published and the best."""
        choosing: dict[float, int] = {}
        if recipe.scaling is not None:
            models = self.bench.merge_at_scalings(recipe, scalings.GRID)
            for scaling, weights in zip(scalings.GRID, models, strict=True):
                choosing[scaling] = _count_correct(
                    self.bench.find_correct(weights, self.inside, "choosing"), self.inside
                )
        reported = {}
        for scaling in scalings.reported_scalings(recipe.scaling, choosing):
            found = self.correct(recipe if scaling is None else recipe.with_scaling(scaling))
            reported[scaling] = percent(found, self.inside), percent(found, self.outside)
        rows = scalings.table(recipe.title, recipe.scaling, choosing, reported)
        for label, row in scalings.reported_rows(rows):
            self.say(f"{label}: {row['in_domain']:.1f} % in domain, {row['out_of_domain']:.1f} % out of domain")
        return rows


def _count_correct(correct: Mapping[str, np.ndarray], keys: Sequence[str]) -> int:
    """How many images of some tasks are classified right."""
    return int(sum(correct[key].sum() for key in keys))
