"""What a benchmark's tables say about other ways to train its models: other seeds, and gentler fine-tuning.

``seeds.csv`` has the scores of merges of several seeds, ``gentle_study.csv`` a row for each setting of fine-tuning, and
``gentle_claims.csv`` what each setting says of claims of papers. Programs under ``sample_data/build`` write them.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from merging.base.files.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

SEEDS, SETTINGS, SETTING_CLAIMS = "seeds.csv", "gentle_study.csv", "gentle_claims.csv"
# part: an average of tasks, as ``paired_scores.average_groups`` names it; value: the accuracy (a share), with the ends
# of its 95 % interval over images; n: the number of images.
SEEDS_COLUMNS = {
    "seed": "int64", "label": "str", "part": "str", "value": "float64", "low": "float64", "high": "float64",
    "n": "int64",
}  # fmt: skip
# norm: of the task vectors, relative to the weights, the mean over experts (%); own and own_least: the accuracy of
# experts on their own tasks, the mean and the least (%); claims and same: claims that are measured, and those with the
# paper's direction; turned and lost: those that have it with this setting only, and with the stored experts only, of
# which the significant ones have an interval of the change that excludes zero; n_in and n_out: the numbers of images.
ACCURACIES = ("own", "experts_out", "task_arithmetic in", "task_arithmetic out")  # with 95 % intervals over images
SETTINGS_COLUMNS = {
    "setting": "str", "words": "str", "norm": "float64", "cosine": "float64", "own_least": "float64",
    **dict.fromkeys((f"{name}{end}" for name in ACCURACIES for end in ("", " low", " high")), "float64"),
    "barrier": "float64", "n_in": "int64", "n_out": "int64", "claims": "int64", "same": "int64", "turned": "int64",
    "turned_significant": "int64", "lost": "int64", "lost_significant": "int64",
}  # fmt: skip
# difference: of a claim's two values; change: that difference minus the stored experts', paired by images; both with
# their 95 % intervals, in points.
CLAIMS_COLUMNS = {
    "setting": "str", "claim": "str", "difference": "float64", "low": "float64", "high": "float64",
    "change": "float64", "change_low": "float64", "change_high": "float64", "verdict": "str",
}  # fmt: skip
STORED, CONTROL = "stored", "seed1"  # the setting of the benchmark's own experts, and the same with another seed
REFERENCES = ("Pretrained", "Own experts")  # rows that are no merges
COVERAGE = 0.95


def read_seeds(folder: Path) -> pd.DataFrame | None:
    """The scores of each seed, with ``SEEDS_COLUMNS``; None if the benchmark has no such table."""
    path = folder / SEEDS
    return read_table(path, SEEDS_COLUMNS) if path.is_file() else None


def read_settings(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The settings of fine-tuning, and what they say of claims, with ``SETTINGS_COLUMNS`` and ``CLAIMS_COLUMNS``.

    None if the benchmark has no such tables.
    """
    if not (folder / SETTINGS).is_file():
        return None
    return read_table(folder / SETTINGS, SETTINGS_COLUMNS), read_table(folder / SETTING_CLAIMS, CLAIMS_COLUMNS)


def summarize_seeds(scores: pd.DataFrame, part: str) -> pd.DataFrame:
    """A row for each merge: the mean over k seeds, and the 95 % interval of the mean over seeds.

    The merges share one standard deviation s, from the variances of all: mean ± t s / sqrt(k). A seed moves all of its
    merges together, so Student's t has k - 1 degrees of freedom, as for one merge. The columns: label, value (the
    mean), low, high, deviation (s).

    Raises:
        ValueError: fewer than two seeds.
    """
    from scipy.stats import t as student

    rows = scores[(scores["part"] == part) & ~scores["label"].isin(REFERENCES)]
    values = rows.pivot(index="label", columns="seed", values="value").loc[list(dict.fromkeys(rows["label"]))]
    seeds = values.shape[1]
    if seeds < 2:
        raise ValueError(f"A spread between seeds needs two or more seeds, and the table has {seeds}.")
    deviation = float(np.sqrt(values.var(axis=1, ddof=1).mean()))
    half = float(student.ppf((1 + COVERAGE) / 2, seeds - 1)) * deviation / seeds**0.5
    means = values.mean(axis=1).rename("value").reset_index()
    return means.assign(low=means["value"] - half, high=means["value"] + half, deviation=deviation)


def count_swapped_pairs(scores: pd.DataFrame, part: str) -> tuple[int, int]:
    """Of all pairs of merges, how many have another order with some seed; and the number of pairs."""
    rows = scores[(scores["part"] == part) & ~scores["label"].isin(REFERENCES)]
    values = rows.pivot(index="seed", columns="label", values="value").to_numpy()  # (seeds, merges)
    signs = [np.sign(values[:, a] - values[:, b]) for a, b in combinations(range(values.shape[1]), 2)]
    return sum(bool((pair != pair[0]).any()) for pair in signs), len(signs)
