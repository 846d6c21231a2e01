"""What each expert brings to each task: Shapley values, exact or from seeded orders of the experts.

The value of expert j for a task is φ_j = Σ_{S∌j} |S|!(K−|S|−1)!/K! · [v(S∪j) − v(S)], the mean of what it adds over all
orders in which the experts may join (Shapley 1953). The values of all experts add up to v(all) − v(∅). They are linear
in v, so that the values of an accuracy are means over images of the values of single answers, and have the intervals of
a bootstrap of images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import factorial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merging.images.benchmarks.paired_scores import OUT_OF_DOMAIN, find_interval
from merging.images.benchmarks.resampled_tasks import resample_task
from merging.study.partners.subsets import MOST_EXACT, MeasuredSubsets, list_orders

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
COLUMNS = ("task", "expert", "value", "low", "high", "n")


def shapley_values(values: Floats) -> Floats:
    """The Shapley values (K, *S) of a game with the ``values`` (2^K, *S) of every subset, which index its bits.

    Raises:
        ValueError: the number of values is no power of two.
    """
    count = len(values).bit_length() - 1
    if len(values) != 1 << count:
        raise ValueError(f"A game of K players has 2^K values; got {len(values)}.")
    subsets = np.arange(len(values))
    sizes = np.array([subset.bit_count() for subset in subsets.tolist()])
    weights = np.array([factorial(s) * factorial(count - s - 1) / factorial(count) for s in range(count)])
    result = []
    for player in range(count):
        without = subsets[subsets >> player & 1 == 0]
        gains = values[without | 1 << player] - values[without]
        result.append(np.tensordot(weights[sizes[without]], gains, axes=1))
    return np.stack(result)


def order_gains(values: Mapping[int, Floats], orders: NDArray[np.int64]) -> Floats:
    """What each player adds (P, K, *S) when the players join in each of the ``orders`` (P, K); values are (*S).

    The mean over random orders estimates the Shapley values (Castro et al. 2009); for each order the gains add up to
    v(all) − v(∅). Raises KeyError if the first players of an order have no value.
    """
    gains = np.zeros((*orders.shape, *np.shape(values[0])))
    for row, order in zip(gains, orders.tolist(), strict=True):
        subset = 0
        for player in order:
            row[player] = values[subset | 1 << player] - values[subset]
            subset |= 1 << player
    return gains


class _TaskGains(NamedTuple):
    """The Shapley values (K,) of one task, their values (K, draws) on resamples of images, and what each expert adds in
    each of the sampled orders (P, K); (0, K) if the values are exact."""

    values: Floats
    draws: Floats
    by_order: Floats


def shapley_table(measured: MeasuredSubsets) -> pd.DataFrame:
    """Rows task, expert, value, low, high, n: what each expert brings to each task, and out of domain (the mean over
    the other data sets), as fractions with 95 % intervals.

    Intervals are of the bootstrap of images. For more than ``MOST_EXACT`` experts, the half-width of Student's interval
    for the mean over the sampled orders is added to each side in quadrature. Empty as long as subsets are missing.
    """
    import pandas as pd

    return pd.DataFrame(_list_rows(measured) if measured.complete else [], columns=list(COLUMNS))


def _list_rows(measured: MeasuredSubsets) -> Iterator[tuple[str, str, float, float, float, int]]:
    rows = {task: [task] for task in measured.experts if task in measured.tasks}
    if outside := measured.groups[OUT_OF_DOMAIN]:
        rows[OUT_OF_DOMAIN] = outside
    for name, tasks in rows.items():
        gains = [_task_gains(measured, task) for task in tasks]
        values, draws, by_order = (np.mean(parts, axis=0) for parts in zip(*gains, strict=True))
        half = _half_width(by_order)
        below, above = (np.hypot(np.abs(end - values), half) for end in find_interval(draws))
        n = sum(measured.count_images(task) for task in tasks)
        for index, expert in enumerate(measured.experts):
            value = float(values[index])
            yield name, expert, value, value - float(below[index]), value + float(above[index]), n


def _task_gains(measured: MeasuredSubsets, task: str) -> _TaskGains:
    count = len(measured.experts)
    if count <= MOST_EXACT:
        by_image = shapley_values(measured.stack(task, range(1 << count)))
        means = np.zeros((0, count))
    else:
        orders = list_orders(count, measured.seed)
        answers = {subset: np.asarray(right[task], np.float64) for subset, right in measured.right.items()}
        by_order = order_gains(answers, orders)
        by_image = by_order.mean(axis=0)
        means = by_order.mean(axis=2)
    return _TaskGains(by_image.mean(axis=1), resample_task(task, by_image), means)


def _half_width(by_order: Floats) -> Floats:
    """The half-width (K,) of the 95 % interval of the means over orders (P, K), by Student's t; 0 without orders."""
    if not (count := len(by_order)):
        return np.zeros(by_order.shape[1])
    from scipy.special import stdtrit

    half: Floats = stdtrit(count - 1, 0.975) * by_order.std(axis=0, ddof=1) / np.sqrt(count)
    return half


def total_gain(measured: MeasuredSubsets, name: str) -> tuple[float, float]:
    """v(∅) and v(all) of a task, or the means out of domain, whose difference the values of ``shapley_table`` are."""
    tasks = measured.groups[OUT_OF_DOMAIN] if name == OUT_OF_DOMAIN else [name]
    nobody, everyone = (
        float(np.mean([measured.right[subset][task].mean() for task in tasks])) for subset in (0, measured.everyone)
    )
    return nobody, everyone
