"""Two of our values with the interval of their difference, and whether it has the direction of a paper's difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merging.images.benchmarks.metrics import Z95, wilson
from merging.images.benchmarks.paired_scores import find_smallest_visible
from merging.images.benchmarks.resampled_tasks import DRAWS, SEED

CONFIDENCE_LEVEL, POWER = 0.95, 0.8
INDEPENDENT, PAIRED, PAIRED_IMAGES, RESAMPLED_TASKS, RANGE, COUNTED = (
    "95% interval of two samples",
    "95% interval of pairs",
    "95% interval, paired by images",
    "95% interval over resampled tasks",
    "range of the rounds",
    "counted in full",
)
MIN_POINTS = 4  # points that Fisher's transformation needs
Floats = NDArray[np.float64]


class Verdict(StrEnum):
    """Whether our difference has the direction of the paper's."""

    SAME = "same direction"
    OTHER = "other direction"
    NOT_REPRODUCED = "not reproduced here"  # the interval of our difference contains zero
    NOT_MEASURED = "not measured here"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two values, their difference (first minus second) with an interval, all in ``unit``.

    ``sample`` describes the sample in words, ``interval`` the kind of interval. Numbers that are counted in full have
    an interval without width. ``texts`` are shown instead of the two values, ``digits`` is the number of decimals.
    ``degrees`` are the degrees of freedom of an interval of Student's t; 0 stands for a normal one.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    sample: str
    unit: str = "%"
    interval: str = INDEPENDENT
    texts: tuple[str, str] | None = None
    digits: int = 1
    degrees: int = 0

    @property
    def smallest_visible(self) -> float:
        """The smallest true difference that is shown with 80 % power; NaN if the interval is not of paired values."""
        if self.interval not in (PAIRED, PAIRED_IMAGES, RESAMPLED_TASKS):
            return math.nan
        if not self.degrees:
            return find_smallest_visible(self.low, self.high)
        from scipy.special import stdtrit

        end, power = (float(stdtrit(self.degrees, share)) for share in ((1 + CONFIDENCE_LEVEL) / 2, POWER))
        return (end + power) * (self.high - self.low) / (2 * end)  # (t.975 + t.80) standard errors

    @property
    def holds_zero(self) -> bool:
        """Whether zero is in the interval or at its end, or the interval is unknown."""
        return not (self.low > 0 or self.high < 0)


class BoundedValue(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def judge(direction: int, ours: Comparison | None) -> Verdict:
    """Whether our comparison agrees with a paper's, whose first value is more (1), the same (0) or less (-1).

    If a paper states "the same", an interval of ours without zero is the other direction. An unknown interval shows
    neither a difference nor its absence.
    """
    if ours is None or math.isnan(ours.difference):
        return Verdict.NOT_MEASURED
    if math.isnan(ours.low) or math.isnan(ours.high):
        return Verdict.NOT_REPRODUCED
    if direction == 0:
        return Verdict.SAME if ours.holds_zero else Verdict.OTHER
    if ours.holds_zero:
        return Verdict.NOT_REPRODUCED
    return Verdict.SAME if (ours.difference > 0) == (direction > 0) else Verdict.OTHER


def compare_estimates(
    first: BoundedValue,
    second: BoundedValue,
    sample: str,
    unit: str = "%",
    scale: float = 100.0,
    interval: str = INDEPENDENT,
) -> Comparison:
    """The difference of two estimates from different samples (Newcombe's square-and-add interval).

    ``scale`` converts the values to ``unit``.
    """
    difference = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Comparison(
        first=scale * first.value,
        second=scale * second.value,
        difference=scale * difference,
        low=scale * (difference - below),
        high=scale * (difference + above),
        sample=sample,
        unit=unit,
        interval=interval,
    )


def compare_shares(first: tuple[int, int], second: tuple[int, int], sample: str) -> Comparison:
    """The difference of two proportions (count, total) of different samples, in percent."""
    return compare_estimates(_share(*first), _share(*second), sample)


def _share(count: int, total: int) -> BoundedValue:
    return BoundedValue(count / total if total else math.nan, *wilson(count, total))


def compare_pairs(first: Floats, second: Floats, sample: str, unit: str = "%", scale: float = 100.0) -> Comparison:
    """The mean difference of pairs (n,), (n,) with the interval of a paired t-test, which is NaN for a single pair.

    ``scale`` converts the values to ``unit``.
    """
    from scipy.special import stdtrit

    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    n, mean = len(differences), float(differences.mean()) if len(differences) else math.nan
    half_width = math.nan
    if n > 1:
        half_width = float(stdtrit(n - 1, (1 + CONFIDENCE_LEVEL) / 2) * differences.std(ddof=1) / math.sqrt(n))
    return Comparison(
        first=scale * float(np.mean(first)),
        second=scale * float(np.mean(second)),
        difference=scale * mean,
        low=scale * (mean - half_width),
        high=scale * (mean + half_width),
        sample=sample,
        unit=unit,
        interval=PAIRED,
        degrees=n - 1,
    )


def compare_counts(
    first: float, second: float, sample: str, unit: str, texts: tuple[str, str] | None = None
) -> Comparison:
    """The difference of two numbers that are counted in full; its interval has no width."""
    difference = first - second
    return Comparison(
        first=first, second=second, difference=difference, low=difference, high=difference, sample=sample, unit=unit,
        interval=COUNTED, texts=texts,
    )  # fmt: skip


def compare_correlation_with_zero(x: Floats, y: Floats, sample: str) -> Comparison:
    """Pearson's r of ``x`` (n,) and ``y`` (n,) compared with zero, with Fisher's interval of independent points."""
    n = len(x)
    r = float(np.corrcoef(x, y)[0, 1]) if n > 1 and np.ptp(x) > 0 and np.ptp(y) > 0 else math.nan
    low = high = math.nan
    if n >= MIN_POINTS and abs(r) < 1:
        half_width = Z95 / math.sqrt(n - 3)
        low, high = math.tanh(math.atanh(r) - half_width), math.tanh(math.atanh(r) + half_width)
    return Comparison(first=r, second=0.0, difference=r, low=low, high=high, sample=sample, unit="", digits=2)


def compare_spreads(first: Sequence[float], second: Sequence[float], sample: str, unit: str) -> Comparison:
    """The difference of two standard deviations (n - 1) over the same tasks, with a bootstrap over these tasks."""
    pairs = np.array([first, second], np.float64)
    n = pairs.shape[1]
    if n < 2:
        nan = math.nan
        return Comparison(first=nan, second=nan, difference=nan, low=nan, high=nan, sample=sample, unit=unit)
    resampled = pairs[:, np.random.default_rng(SEED).integers(0, n, (DRAWS, n))].std(axis=2, ddof=1)
    low, high = np.quantile(resampled[0] - resampled[1], [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    spread_first, spread_second = (float(value) for value in pairs.std(axis=1, ddof=1))
    return Comparison(
        first=spread_first, second=spread_second, difference=spread_first - spread_second, low=float(low),
        high=float(high), sample=sample, unit=unit, interval=RESAMPLED_TASKS, digits=2,
    )  # fmt: skip
