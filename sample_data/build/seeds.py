"""Ten merges of the experts of several seeds, each measured on the same images: ``seeds.csv``.

    python -m sample_data.build.seeds FOLDER [FOLDER ...]    folders made by ``make.py --seed``, besides sample_data/

A row for each seed, recipe and average of tasks: the accuracy on the reporting images, and its 95 % interval over
images. What training draws differs between seeds, in pretraining and in fine-tuning; images do not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import safe_open

from merging.base import settings
from merging.images.benchmarks import paired_scores
from merging.images.benchmarks.paired_scores import average_groups as average
from merging.study.training_tables import SEEDS, SEEDS_COLUMNS
from sample_data.build.measure import RECIPES, MeasuredModels

TITLES = {  # the titles of ``measure.RECIPES`` that are measured, and the names of their presets
    "weight averaging": "Weight Averaging",
    "task arithmetic": "Task Arithmetic",
    "TIES, mean": "TIES-Merging",
    "dare, task arithmetic": "DARE",
    "lwptv, task arithmetic": "Task Arithmetic w/ LwPTV",
    "PCB": "PCB-Merging",
    "RegMean, 64 exemplars": "RegMean",
    "LOT, 64 exemplars": "LOT Merging",
    "TSV-M": "TSV-Merge",
    "Iso-C": "Iso-C",
}
DIGITS = 5


def measure_seed(folder: Path) -> list[tuple[object, ...]]:
    """The rows of one folder, with ``SEEDS_COLUMNS``."""
    models = MeasuredModels(folder, print)
    with safe_open(folder / "models/pretrained.safetensors", "pt") as file:
        seed = int(file.metadata()["seed"])
    found = {"Pretrained": models.pretrained}
    found |= {TITLES[recipe.title]: models.correct(recipe) for recipe in RECIPES if recipe.title in TITLES}
    own = {key: models.experts[key][key] for key in models.inside}
    rows = [(seed, "Own experts", paired_scores.IN_DOMAIN, *_summarize(own, models.inside)[paired_scores.IN_DOMAIN])]
    for title, right in found.items():
        rows += [(seed, title, part, *numbers) for part, numbers in _summarize(right, models.inside).items()]
    return [tuple(round(each, DIGITS) if isinstance(each, float) else each for each in row) for row in rows]


def _summarize(right: Mapping[str, np.ndarray], inside: list[str]) -> dict[str, tuple[float, float, float, int]]:
    """Of each average of tasks the accuracy, the ends of its interval, and the number of images."""
    groups = paired_scores.group_tasks(right, inside)
    draws = paired_scores.resample_accuracies({"": {task: each.astype(float) for task, each in right.items()}})[""]
    intervals = {part: paired_scores.find_interval(values) for part, values in average(draws, groups).items()}
    found = average({task: each.mean() for task, each in right.items()}, groups)
    n = {part: sum(len(right[task]) for task in groups.get(part, right)) for part in found}
    return {part: (float(value), *map(float, intervals[part]), n[part]) for part, value in found.items()}


def main() -> None:
    """Measure all seeds and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    folders = [settings.BUNDLED_FOLDER, *parser.parse_args().folders]
    rows = [row for folder in folders for row in measure_seed(folder)]
    pd.DataFrame(rows, columns=list(SEEDS_COLUMNS)).to_csv(settings.BUNDLED_FOLDER / SEEDS, index=False)


if __name__ == "__main__":
    main()
