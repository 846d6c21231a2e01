"""Two runs on the same images: which one is right where, whether that is chance, and how far their scores differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.images.benchmarks.metrics import h_score

CELLS = ("both", "only_a", "only_b", "neither")  # which of the runs predict the class of an image
RESAMPLES, SEED = 2000, 0
INSIDE, OUTSIDE, H_SCORE = "in_domain", "out_of_domain", "h_score"
Floats = NDArray[np.float64]
Right = NDArray[np.bool_]  # (m, n): whether each of m models predicts the class of each of n images


def cells(a: Right, b: Right, matched: bool = False) -> Floats:
    """For every image the share of pairs of models, one of each run, in which each of ``CELLS`` holds (4, n).

    With one model on either side these are ones and zeros. Otherwise every model of A meets every model of B, or only
    the one in the same row if they are ``matched``.
    """
    one, other = a.astype(np.float64), b.astype(np.float64)
    share_a, share_b = one.mean(axis=0), other.mean(axis=0)
    both = (one * other).mean(axis=0) if matched else share_a * share_b
    shares = np.stack([both, share_a - both, share_b - both, 1 - share_a - share_b + both])
    rounded: Floats = np.round(shares, 12) + 0.0  # thirds leave rounding errors, and −0 becomes 0
    return rounded


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact two-sided p-value of McNemar's test: the chance of a split at least as uneven by fair coins."""
    n, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(comb(n, k) for k in range(fewer + 1))
    share: float = 2 * tail / 2**n  # of integers without limit, so only the end is rounded
    return min(1.0, share)


def resample_means(a: Floats, b: Floats, rng: np.random.Generator, resamples: int = RESAMPLES) -> tuple[Floats, Floats]:
    """Mean accuracies of both runs when the same images (n,) are drawn again with replacement (resamples,).

    Images with the same result in both runs are interchangeable, so only the counts of each kind are drawn.
    """
    kinds, counts = np.unique(np.stack([a, b], axis=1), axis=0, return_counts=True)
    drawn = rng.multinomial(len(a), counts / len(a), size=resamples) / len(a)
    means = drawn @ kinds
    return means[:, 0], means[:, 1]


def differences(
    right: Mapping[str, tuple[Floats, Floats]],
    inside: Sequence[str],
    outside: Sequence[str],
    *,
    h: bool = True,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """A row for each average and data set: accuracy of a and of b, difference b − a, low and high of 95 %, and n.

    ``right`` has for each data set, image by image, the share of each run's models that are right. Intervals are
    percentiles of a paired bootstrap: the images of each data set are drawn again, the same ones for both runs.
    Averages are over data sets, unweighted; ``h`` says whether to add the H-score of the two.
    """
    pairs = {task: pair for task, pair in right.items() if len(pair[0])}
    streams = np.random.SeedSequence(seed).spawn(len(pairs))
    drawn = {
        task: np.stack(resample_means(*pair, np.random.default_rng(stream), resamples))
        for (task, pair), stream in zip(pairs.items(), streams, strict=True)
    }
    means = {task: np.array([pair[0].mean(), pair[1].mean()]) for task, pair in pairs.items()}
    groups = {INSIDE: [t for t in inside if t in pairs], OUTSIDE: [t for t in outside if t in pairs]}
    numbers_by_scope: dict[str, tuple[Floats, Floats, int]] = {}
    for name, tasks in groups.items():
        if tasks:
            mean = np.mean([means[task] for task in tasks], axis=0)
            spread = np.mean([drawn[task] for task in tasks], axis=0)
            numbers_by_scope[name] = (mean, spread, sum(len(pairs[task][0]) for task in tasks))
    if h and len(numbers_by_scope) == len(groups):
        numbers_by_scope[H_SCORE] = _harmonic(numbers_by_scope[INSIDE], numbers_by_scope[OUTSIDE])
    numbers_by_scope |= {task: (means[task], drawn[task], len(pair[0])) for task, pair in pairs.items()}
    rows = [(name, *_difference_row(*numbers)) for name, numbers in numbers_by_scope.items()]
    return pd.DataFrame(rows, columns=["scope", "a", "b", "difference", "low", "high", "n"])


def _harmonic(inside: tuple[Floats, Floats, int], outside: tuple[Floats, Floats, int]) -> tuple[Floats, Floats, int]:
    mean = np.array([h_score(x, y) for x, y in zip(inside[0], outside[0], strict=True)])
    total = inside[1] + outside[1]
    spread = np.divide(2 * inside[1] * outside[1], total, out=np.zeros_like(total), where=total > 0)
    return mean, spread, inside[2] + outside[2]


def _difference_row(mean: Floats, resampled_means: Floats, n: int) -> tuple[float, float, float, float, float, int]:
    a, b = float(mean[0]), float(mean[1])
    low, high = np.quantile(resampled_means[1] - resampled_means[0], [0.025, 0.975])
    return a, b, b - a, float(low), float(high), n
