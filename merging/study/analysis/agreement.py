"""Two runs on the same images: which run is right on which image, whether the difference is chance, and its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.images.benchmarks.metrics import h_score

CELLS = ("both", "only_a", "only_b", "neither")  # the runs that predict an image's class
RESAMPLES, SEED = 2000, 0
INSIDE, OUTSIDE, H_SCORE = "in_domain", "out_of_domain", "h_score"
Floats = NDArray[np.float64]
Right = NDArray[np.bool_]  # (m, n): whether each of m models predicts the class of each of n images


def compute_cells(a: Right, b: Right, is_matched: bool = False) -> Floats:
    """For every image the share of pairs of models, one of each run, in which each of ``CELLS`` holds (4, n).

    ``a`` (m_a, n) and ``b`` (m_b, n) say whether a model is right. With one model on either side the shares are ones
    and zeros. Otherwise every model of A is paired with every model of B, or only with the one in the same row if they
    are ``is_matched``.
    """
    right_a, right_b = a.astype(np.float64), b.astype(np.float64)
    share_a, share_b = right_a.mean(axis=0), right_b.mean(axis=0)
    both_right = (right_a * right_b).mean(axis=0) if is_matched else share_a * share_b
    shares = np.stack([both_right, share_a - both_right, share_b - both_right, 1 - share_a - share_b + both_right])
    rounded: Floats = np.round(shares, 12) + 0.0  # thirds leave rounding errors, and −0 becomes 0
    return rounded


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact two-sided p-value of McNemar's test: the chance that fair coins split at least as unevenly."""
    n, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(comb(n, k) for k in range(fewer + 1))
    share: float = 2 * tail / 2**n  # integers of any size, so only this division rounds
    return min(1.0, share)


def resample_means(a: Floats, b: Floats, rng: np.random.Generator, resamples: int = RESAMPLES) -> tuple[Floats, Floats]:
    """Mean accuracies (resamples,) of both runs when the same images (n,) are sampled again with replacement.

    Images with the same results (a, b) are interchangeable, so only the counts of each kind are sampled.
    """
    kinds, counts = np.unique(np.stack([a, b], axis=1), axis=0, return_counts=True)
    shares = rng.multinomial(len(a), counts / len(a), size=resamples) / len(a)  # (resamples, kinds)
    means = shares @ kinds
    return means[:, 0], means[:, 1]


def compare_accuracies(
    right: Mapping[str, tuple[Floats, Floats]],
    inside: Sequence[str],
    outside: Sequence[str],
    *,
    with_h_score: bool = True,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """A row for each average and data set: scope, accuracies a and b, difference b − a, low and high of 95 %, and n.

    ``right`` is {data set: (run A, run B)}: for every image (n,) the share of the run's models that are right.
    Intervals are percentiles of a paired bootstrap, which samples the images of each data set again, the same ones for
    both runs. Averages are over data sets, unweighted. With ``with_h_score`` there is also the H-score of both
    averages.
    """
    pairs = {task: pair for task, pair in right.items() if len(pair[0])}
    streams = np.random.SeedSequence(seed).spawn(len(pairs))
    resampled = {
        task: np.stack(resample_means(*pair, np.random.default_rng(stream), resamples))
        for (task, pair), stream in zip(pairs.items(), streams, strict=True)
    }
    means = {task: np.array([pair[0].mean(), pair[1].mean()]) for task, pair in pairs.items()}
    groups = {INSIDE: [t for t in inside if t in pairs], OUTSIDE: [t for t in outside if t in pairs]}
    numbers_by_scope: dict[str, tuple[Floats, Floats, int]] = {}
    for name, tasks in groups.items():
        if tasks:
            mean = np.mean([means[task] for task in tasks], axis=0)
            spread = np.mean([resampled[task] for task in tasks], axis=0)
            numbers_by_scope[name] = (mean, spread, sum(len(pairs[task][0]) for task in tasks))
    if with_h_score and len(numbers_by_scope) == len(groups):
        numbers_by_scope[H_SCORE] = _compute_h_scores(numbers_by_scope[INSIDE], numbers_by_scope[OUTSIDE])
    numbers_by_scope |= {task: (means[task], resampled[task], len(pair[0])) for task, pair in pairs.items()}
    rows = [(name, *_build_difference_row(*numbers)) for name, numbers in numbers_by_scope.items()]
    return pd.DataFrame(rows, columns=["scope", "a", "b", "difference", "low", "high", "n"])


def _compute_h_scores(
    in_domain: tuple[Floats, Floats, int], out_of_domain: tuple[Floats, Floats, int]
) -> tuple[Floats, Floats, int]:
    """The H-scores of both runs (2,), resampled (2, resamples), and the number of images."""
    mean = np.array([h_score(x, y) for x, y in zip(in_domain[0], out_of_domain[0], strict=True)])
    total = in_domain[1] + out_of_domain[1]
    spread = np.divide(2 * in_domain[1] * out_of_domain[1], total, out=np.zeros_like(total), where=total > 0)
    return mean, spread, in_domain[2] + out_of_domain[2]


def _build_difference_row(
    mean: Floats, resampled_means: Floats, n: int
) -> tuple[float, float, float, float, float, int]:
    a, b = float(mean[0]), float(mean[1])
    low, high = np.quantile(resampled_means[1] - resampled_means[0], [0.025, 0.975])
    return a, b, b - a, float(low), float(high), n
