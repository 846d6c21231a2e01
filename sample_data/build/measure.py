"""Measures models and merges once each, on the images that may be reported on, and keeps what it found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from sample_data.build.bench import Bench, Recipe, percent

LWPTV = (("lwptv", {"prune_ratio": 0.7}),)
DISJOINT_MEAN = {"density": 1.0, "aggregation": "mean", "scaling": 1.0}
TATR = (("tatr", {}),)
MAGNITUDE, RANDOM = (("magnitude", {}),), (("random_mask", {}),)
AVERAGING = Recipe("weight averaging", "weight_averaging")
TASK_ARITHMETIC = Recipe("task arithmetic", "task_arithmetic", {"scaling": 0.3}, grid=(0.1, 0.15, 0.2, 0.3, 0.4))
MASKED = Recipe("lwptv, task arithmetic", "task_arithmetic", {"scaling": 0.3}, LWPTV, grid=(0.2, 0.3, 0.4, 0.5))
LOT = Recipe("LOT, 64 exemplars", "lot", {"scaling": 1.0}, exemplars=64, grid=(0.8, 1.0, 1.2, 1.5))
TIES_MEAN = Recipe("TIES, mean", "ties", {"aggregation": "mean", "scaling": 1.0}, grid=(0.6, 0.8, 1.0))
RECIPES = (
    AVERAGING,
    TASK_ARITHMETIC,
    Recipe("TIES, sum", "ties", {"scaling": 0.3}, grid=(0.2, 0.3, 0.4, 0.5)),
    TIES_MEAN,
    MASKED,
    Recipe("lwptv, TIES, sum", "ties", {"scaling": 0.3}, LWPTV, grid=(0.3, 0.4, 0.5, 0.7)),
    Recipe("dare, task arithmetic", "task_arithmetic", {"scaling": 0.3}, (("dare", {}),), grid=(0.1, 0.2, 0.3)),
    Recipe("dare, TIES, mean", "ties", DISJOINT_MEAN, (("dare", {"drop_rate": 0.8}),), grid=(0.3, 0.5, 0.7, 1.0)),
    Recipe("magnitude, task arithmetic", "task_arithmetic", {"scaling": 0.3}, MAGNITUDE, grid=(0.2, 0.3, 0.4, 0.5)),
    Recipe("random mask, task arithmetic", "task_arithmetic", {"scaling": 0.3}, RANDOM, grid=(0.3, 0.5, 0.7, 1.0)),
    Recipe("awd, task arithmetic", "task_arithmetic", {"scaling": 0.3}, (("awd", {}),), grid=(0.2, 0.3, 0.4)),
    Recipe("lines, task arithmetic", "task_arithmetic", {"scaling": 1.0}, (("lines", {}),), grid=(0.4, 0.6, 0.8, 1.0)),
    Recipe("Consensus", "consensus", {"scaling": 0.3}, grid=(0.2, 0.3, 0.4, 0.5)),
    Recipe("Consensus, TIES", "consensus", {"scaling": 0.3, "base": "ties"}, grid=(0.3, 0.4, 0.5, 0.7)),
    Recipe("PCB", "pcb", {"scaling": 1.2}, grid=(0.8, 1.0, 1.2, 1.6)),
    Recipe("lwptv, PCB", "pcb", {"scaling": 1.2}, LWPTV, grid=(0.8, 1.2, 1.6, 2.0)),
    Recipe("Model Stock", "model_stock"),
    Recipe("DRM, horizontal", "drm", {"scaling": 1.0}, grid=(0.5, 0.7, 1.0, 1.3)),
    Recipe("DRM, vertical", "drm", {"scaling": 1.0, "direction": "vertical"}, grid=(0.5, 0.7, 1.0, 1.3)),
    Recipe("TSV-M", "tsv_m", {"scaling": 1.0}, grid=(0.5, 0.7, 1.0, 1.3)),
    Recipe("Iso-C", "iso_c", {"scaling": 1.5}, grid=(0.5, 0.75, 1.0, 1.5)),
    Recipe("Iso-CTS", "iso_cts", {"scaling": 1.5}, grid=(0.5, 0.75, 1.0, 1.5)),
    Recipe("WUDI", "wudi", {"scaling": 1.0}, grid=(0.5, 0.7, 1.0, 1.3)),
    Recipe("cat, task arithmetic", "task_arithmetic", {"scaling": 0.4}, (("cat", {}),), 2, (0.2, 0.3, 0.4, 0.5)),
    Recipe("WUDI, learning rate 1e-4", "wudi", {"scaling": 1.0, "lr": 1e-4}, grid=(0.5, 0.7, 1.0, 1.3)),
    Recipe("cat, TIES, sum", "ties", {"scaling": 0.3}, (("cat", {}),), 2, (0.2, 0.3, 0.4, 0.5)),
    Recipe("tatr, task arithmetic", "task_arithmetic", {"scaling": 0.3}, TATR, 64, (0.2, 0.3, 0.4)),
    Recipe("tatr, TIES, sum", "ties", {"scaling": 0.3}, TATR, 64, (0.3, 0.4, 0.5)),
    Recipe("Fisher, 64 exemplars", "fisher", exemplars=64),
    Recipe("RegMean, 64 exemplars", "regmean", exemplars=64),
    LOT,
)


class Measured:
    """Everything measured once: models in, correctness per image and summaries out."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.bench, self.say = Bench(folder), say
        self.inside, self.outside = self.bench.inside, self.bench.outside
        self.everything = [*self.inside, *self.outside]
        self._merged: dict[str, dict[str, np.ndarray]] = {}

    @cached_property
    def pretrained(self) -> dict[str, np.ndarray]:
        """The pretrained model on the reporting images of every data set."""
        return self.bench.correct(self.bench.pretrained, self.everything)

    @cached_property
    def experts(self) -> dict[str, dict[str, np.ndarray]]:
        """Each expert on its own task and out of domain."""
        return {key: self.bench.correct(model, [key, *self.outside]) for key, model in self.bench.experts.items()}

    @cached_property
    def own(self) -> dict[str, float]:
        """Each expert's accuracy on its own task."""
        return {key: percent(found, [key]) for key, found in self.experts.items()}

    @cached_property
    def multitask(self) -> dict[str, np.ndarray]:
        """The multi-task model on the reporting images of every data set."""
        return self.bench.correct(self.bench.model("multitask"), self.everything)

    def correct(self, recipe: Recipe) -> dict[str, np.ndarray]:
        """A merged model on the reporting images of every data set, measured once per recipe."""
        if recipe.title not in self._merged:
            self._merged[recipe.title] = self.bench.correct(self.bench.merged(recipe), self.everything)
        return self._merged[recipe.title]

    def chosen(self, recipe: Recipe) -> Recipe:
        """The recipe at the scaling that does best in domain on the choosing images."""
        if not recipe.grid:
            return recipe
        tries = [recipe.at(scaling) for scaling in recipe.grid]
        scores = [
            percent(self.bench.correct(self.bench.merged(each), self.inside, "choosing"), self.inside) for each in tries
        ]
        return tries[int(np.argmax(scores))]

    @cached_property
    def merges(self) -> dict[str, tuple[float, float]]:
        """In-domain and out-of-domain accuracy of every recipe, at its published and at its chosen scaling."""
        table: dict[str, tuple[float, float]] = {}
        for recipe in RECIPES:
            try:
                published = recipe.at(recipe.params["scaling"]) if recipe.grid else recipe
                for each in dict.fromkeys([published.title, (best := self.chosen(recipe)).title]):
                    found = self.correct(published if each == published.title else best)
                    label = each + (" (chosen)" if recipe.grid and each == best.title else "")
                    table[label] = percent(found, self.inside), percent(found, self.outside)
                    self.say(f"{label}: in domain {table[label][0]:.1f}, out of domain {table[label][1]:.1f}")
            except Exception as problem:  # a method that is missing or fails must not hide the other rows
                self.say(f"{recipe.title}: not measured: {problem}")
        return table
