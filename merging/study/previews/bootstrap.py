"""Differences of two models on the same images, with 95 % intervals from a paired bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 2000  # resamples
TINY = 1e-300  # avoids dividing by zero: the harmonic mean of two zeros is zero
AVERAGE, IN_DOMAIN, OUT_OF_DOMAIN = "average", "in domain", "out of domain"
H_SCORE = "H-score"
COLUMNS = ("over", "group", "tasks", "n", "accuracy", "reference", "difference", "low", "high")
# {task: (n,)}: 1 for an image that is right, 0 if not, or a mean over models.
Correctness = Mapping[str, NDArray[np.float64]]
AccuracyPair = tuple[NDArray[np.float64], NDArray[np.float64]]  # accuracies of both models, (draws,) each


def paired_differences(
    right: Correctness, reference: Correctness, in_domain: Sequence[str], *, seed: int = 0, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """A row for in domain, out of domain and the H-score (group "average"), then one for each task.

    Columns: over (the average or task), group, tasks, n (images), accuracy, reference (its accuracy), difference and
    its interval [low, high], as fractions. Images are sampled with replacement within each task, and both models are
    scored on each sample. Rows without images are left out.
    """
    import pandas as pd

    generator = np.random.default_rng(seed)
    resampled = {key: _resample(right[key], reference[key], resamples, generator) for key in right if len(right[key])}
    observed = {key: (right[key].mean(keepdims=True), reference[key].mean(keepdims=True)) for key in resampled}
    groups = {
        IN_DOMAIN: [key for key in resampled if key in in_domain],
        OUT_OF_DOMAIN: [key for key in resampled if key not in in_domain],
    }
    rows = []
    for name, keys in groups.items():
        if keys:
            n = sum(len(right[key]) for key in keys)
            rows.append(
                (name, AVERAGE, len(keys), n, *_summarize_change(_average(observed, keys), _average(resampled, keys)))
            )
    if all(groups.values()):
        n = sum(len(right[key]) for key in resampled)
        pairs = _compute_h_scores(observed, groups), _compute_h_scores(resampled, groups)
        rows.append((H_SCORE, AVERAGE, len(resampled), n, *_summarize_change(*pairs)))
    for name, keys in groups.items():
        rows += [(key, name, 1, len(right[key]), *_summarize_change(observed[key], resampled[key])) for key in keys]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def subtract_scores(scores: pd.DataFrame, reference: pd.DataFrame, in_domain: Sequence[str]) -> pd.DataFrame:
    """The rows of ``paired_differences`` from the scores (task, accuracy, n) of two models on the same images.

    Their intervals are NaN: scores do not say which images were right.
    """
    right, right_of_reference = (
        {task: np.full(n, accuracy) for task, accuracy, n in table[["task", "accuracy", "n"]].itertuples(index=False)}
        for table in (scores, reference)
    )
    return paired_differences(right, right_of_reference, in_domain, resamples=1).assign(low=np.nan, high=np.nan)


def share_interval(
    holds: Mapping[str, NDArray[np.bool_]], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float, float, int]:
    """The share of all images for which ``holds`` {task: (n_k,)} is true, its interval [low, high], and the number n.

    Images are sampled with replacement within each task. NaN without images.
    """
    n = sum(map(len, holds.values()))
    if not n:
        return float("nan"), float("nan"), float("nan"), 0
    generator = np.random.default_rng(seed)
    resampled = (
        sum(
            generator.binomial(len(of_task), of_task.mean(), size=resamples)
            for of_task in holds.values()
            if len(of_task)
        )
        / n
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    return sum(int(of_task.sum()) for of_task in holds.values()) / n, float(low), float(high), n


def _resample(
    right: NDArray[np.float64], reference: NDArray[np.float64], resamples: int, generator: np.random.Generator
) -> AccuracyPair:
    """The accuracies (draws,) of both models on resamples of the same number of images.

    Images with the same results in both models are one kind. The counts of kinds are multinomial, so the cost of a
    resample grows with the number of kinds, not of images.
    """
    kinds, counts = np.unique(np.stack([right, reference], axis=1), axis=0, return_counts=True)
    shares = generator.multinomial(len(right), counts / len(right), size=resamples) / len(right)  # (draws, kinds)
    return shares @ kinds[:, 0], shares @ kinds[:, 1]


def _average(pairs: Mapping[str, AccuracyPair], keys: Sequence[str]) -> AccuracyPair:
    return np.mean([pairs[key][0] for key in keys], axis=0), np.mean([pairs[key][1] for key in keys], axis=0)


def _compute_h_scores(pairs: Mapping[str, AccuracyPair], groups: Mapping[str, Sequence[str]]) -> AccuracyPair:
    """The H-scores of both models."""
    domains = zip(_average(pairs, groups[IN_DOMAIN]), _average(pairs, groups[OUT_OF_DOMAIN]), strict=True)
    model, reference = (
        2 * in_domain * out_of_domain / np.maximum(in_domain + out_of_domain, TINY)
        for in_domain, out_of_domain in domains
    )
    return model, reference


def _summarize_change(observed: AccuracyPair, resampled: AccuracyPair) -> tuple[float, float, float, float, float]:
    """Both accuracies, their difference, and the interval of the difference."""
    low, high = np.percentile(resampled[0] - resampled[1], [2.5, 97.5])
    model, reference = float(observed[0][0]), float(observed[1][0])
    return model, reference, model - reference, float(low), float(high)
