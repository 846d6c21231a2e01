"""Statistics of two or more models that answer the same images: differences, tests, and intervals of 95 %.

Single tasks have McNemar's exact test and Newcombe's interval, averages a bootstrap of images. For a task and its
number of images the bootstrap always draws the same images, so a pair of models has the same interval wherever it is
compared. Importing this loads neither torch nor pandas.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from merging.images.benchmarks.metrics import Z95
from merging.images.benchmarks.resampled_tasks import DRAWS, SEED, Floats, is_whole, resample_task

if TYPE_CHECKING:
    import pandas as pd

Correctness = Mapping[str, Floats]  # {task: (n,)}: 1 if the image is right, 0 if not, or the share of models right
AVERAGE, IN_DOMAIN, OUT_OF_DOMAIN, OTHER = "average", "in domain", "out of domain", "other"
H_SCORE = "H-score"
COLUMNS = ("over", "group", "tasks", "n", "accuracy", "reference", "difference", "low", "high", "p")
PAIR_COLUMNS = ("first", "second", "difference", "low", "high", "family_low", "family_high", "differs")
ENDS = (2.5, 97.5)  # percentiles at the ends of an interval
Z80 = 0.8416212335729143  # 80 % quantile of the normal distribution
LETTERS, SUBSCRIPTS = string.ascii_letters, str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MOST_AT_ONCE = 250  # models that are resampled at a time where there may be thousands, for the sake of memory
ZERO = 1e-12  # differences and standard errors below this are rounding errors


# One task


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value of McNemar's test: the chance that fair coins split at least as unevenly."""
    n, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(n, k) for k in range(fewer + 1))
    share: float = 2 * tail / 2**n  # integers of any size, so only this division rounds
    return min(1.0, share)


def newcombe_interval(
    both: ArrayLike, only_first: ArrayLike, only_second: ArrayLike, neither: ArrayLike
) -> tuple[Floats, Floats]:
    """The ends (low, high) of the 95 % interval of the first model's accuracy minus the second's.

    The arguments are numbers of images, or arrays of one shape, for which both models, one or neither is right. The
    interval adds the squares of two Wilson intervals and allows for their correlation phi, whose numerator is corrected
    for continuity; phi is zero if a model is always or never right (Newcombe 1998, Statistics in Medicine 17:2635,
    method 10). NaN without images.
    """
    e, f, g, h = (np.asarray(cell, np.float64) for cell in (both, only_first, only_second, neither))
    n = e + f + g + h
    with np.errstate(divide="ignore", invalid="ignore"):
        (first, first_low, first_high), (second, second_low, second_high) = (_wilson(e + f, n), _wilson(e + g, n))
        marginals = (e + f) * (g + h) * (e + g) * (f + h)
        product = e * h - f * g
        corrected = np.where(product > 0, np.maximum(product - n / 2, 0), product)
        phi = np.where(marginals > 0, corrected / np.sqrt(marginals), 0)
    difference = first - second
    below = _add_squares(first - first_low, second_high - second, phi)
    above = _add_squares(first_high - first, second - second_low, phi)
    return np.maximum(difference - below, -1), np.minimum(difference + above, 1)


def _wilson(correct: Floats, n: Floats) -> tuple[Floats, Floats, Floats]:
    """Proportions and the ends of their Wilson intervals."""
    share, z = correct / n, Z95
    center = (correct + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(correct * (n - correct) / n + z * z / 4)
    return share, np.maximum(center - half, 0), np.minimum(center + half, 1)


def _add_squares(a: Floats, b: Floats, phi: Floats) -> Floats:
    total: Floats = np.sqrt(np.maximum(a * a - 2 * phi * a * b + b * b, 0))
    return total


# The bootstrap


def resample_accuracies(models: Mapping[str, Correctness]) -> dict[str, dict[str, Floats]]:
    """{model: {task: accuracies (draws,)}} when the images of each task are sampled again with replacement.

    All models are scored on the same samples. Tasks are those that all models have, with at least one image.

    Raises:
        ValueError: two models answer different numbers of images of a task.
    """
    accuracies: dict[str, dict[str, Floats]] = {name: {} for name in models}
    for task in _list_tasks(models):
        for name, draws in zip(models, resample_task(task, _stack(models, task)), strict=True):
            accuracies[name][task] = draws
    return accuracies


def average_groups(by_task: Mapping[str, Floats], groups: Mapping[str, Sequence[str]]) -> dict[str, Floats]:
    """{group: mean over its tasks}, unweighted, and the H-score, from {task: accuracies of any shape (*S)}.

    ``groups`` are those of ``group_tasks``. A group without tasks is left out, and then the H-score too.
    """
    means = {
        name: _average(by_task[task] for task in groups[name]) for name in (IN_DOMAIN, OUT_OF_DOMAIN) if groups[name]
    }
    return means if len(means) < 2 else means | {H_SCORE: _harmonic_mean(*means.values())}


def group_tasks(
    tasks: Iterable[str], in_domain: Collection[str], out_of_domain: Collection[str] | None = None
) -> dict[str, list[str]]:
    """{"in domain", "out of domain", "other": tasks}; without ``out_of_domain`` all others are out of domain."""
    groups: dict[str, list[str]] = {IN_DOMAIN: [], OUT_OF_DOMAIN: [], OTHER: []}
    for task in tasks:
        is_outside = out_of_domain is None or task in out_of_domain
        groups[IN_DOMAIN if task in in_domain else OUT_OF_DOMAIN if is_outside else OTHER].append(task)
    return groups


def find_interval(draws: ArrayLike, observed: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """The ends (*S) of the interval of a statistic from its values (*S, draws) on resamples.

    The statistic may be any function of ``resample_accuracies``, such as a difference of differences. The ends are
    percentiles. Maxima and ranges are larger on resamples than on the images: with ``observed`` (*S), their value on
    the images, the percentiles are reflected in it, which allows for that (the basic interval; Davison and Hinkley
    1997, section 5.2).
    """
    low, high = np.percentile(np.asarray(draws, np.float64), ENDS, axis=-1)
    return (low, high) if observed is None else (2 * np.asarray(observed) - high, 2 * np.asarray(observed) - low)


def _list_tasks(models: Mapping[str, Correctness]) -> list[str]:
    """The tasks of all models that have images, in the order of the first model. Raises ValueError."""
    first, *others = models.values()
    tasks = [task for task in first if len(first[task]) and all(task in other for other in others)]
    for task in tasks:
        if any(len(other[task]) != len(first[task]) for other in others):
            raise ValueError(f"The models answer different numbers of images of {task}.")
    return tasks


def _stack(models: Mapping[str, Correctness], task: str) -> Floats:
    return np.stack([right[task] for right in models.values()]).astype(np.float64)


def _average(arrays: Iterable[Floats]) -> Floats:
    """The mean, which is summed in order, so that its rounding does not depend on shapes."""
    total: Floats = np.zeros(())
    count = 0
    for array in arrays:  # of which only one is in memory at a time
        total, count = total + array, count + 1
    mean: Floats = total / count
    return mean


def _harmonic_mean(a: Floats, b: Floats) -> Floats:
    """The H-score, which is 0 if both averages are 0."""
    total = np.asarray(a + b)
    return np.divide(2 * a * b, total, out=np.zeros_like(total), where=total > 0)


# Two models


def compare_models(
    first: Correctness,
    second: Correctness,
    in_domain: Collection[str],
    out_of_domain: Collection[str] | None = None,
    only: Collection[str] | None = None,
) -> pd.DataFrame:
    """A row for in domain, out of domain and the H-score (group "average"), then one for each task of both models.

    Columns: over (the average or task), group, tasks (their number), n (images), accuracy (of the first model),
    reference (of the second), difference (first − second) with its 95 % interval low to high, as fractions, and p.
    Averages over several tasks have the interval of the bootstrap and no p (NaN). Tasks have Newcombe's interval and
    the p of McNemar's exact test; if answers are shares of models, the bootstrap and no p. Tasks that are in neither
    domain (group "other") count in no average; without ``out_of_domain`` there are none. With ``only``, the other
    averages and tasks have no row, which is faster.

    Raises:
        ValueError: the models answer different numbers of images of a task.
    """
    models = {"first": first, "second": second}
    right = {task: _stack(models, task) for task in _list_tasks(models)}
    groups = group_tasks(right, in_domain, out_of_domain)
    needed = (IN_DOMAIN, OUT_OF_DOMAIN) if only is None or H_SCORE in only else only
    averaged = {name: groups[name] if name in needed else [] for name in (IN_DOMAIN, OUT_OF_DOMAIN)}
    draws = {task: resample_task(task, right[task]) for tasks in averaged.values() for task in tasks}
    intervals = {task: _compare_answers(task, right[task]) for task in right if only is None or task in only}
    for name, (ours, theirs) in average_groups(draws, averaged).items():
        low, high = find_interval(ours - theirs)
        tasks = averaged.get(name, [])
        is_task = len(tasks) == 1  # an average over one task is that task
        intervals[name] = _compare_answers(tasks[0], right[tasks[0]]) if is_task else (float(low), float(high), nan)
    accuracies = {task: answers.mean(axis=1) for task, answers in right.items()}
    table = _build_table(accuracies, {task: answers.shape[1] for task, answers in right.items()}, groups, intervals)
    return table if only is None else table[table["over"].isin(only)].reset_index(drop=True)


def subtract_scores(
    first: pd.DataFrame, second: pd.DataFrame, in_domain: Collection[str], out_of_domain: Collection[str] | None = None
) -> pd.DataFrame:
    """The rows of ``compare_models`` from the scores (task, accuracy, n) of two models on the same images.

    Intervals and p are NaN: scores do not say which images were right. n is that of the first model.
    """
    columns = ["task", "accuracy", "n"]
    ours, theirs = ({row[0]: row[1:] for row in table[columns].to_numpy().tolist()} for table in (first, second))
    tasks = [task for task, (_, n) in ours.items() if n and task in theirs]
    accuracies = {task: np.array([ours[task][0], theirs[task][0]], np.float64) for task in tasks}
    sizes = {task: int(ours[task][1]) for task in tasks}
    return _build_table(accuracies, sizes, group_tasks(tasks, in_domain, out_of_domain), {})


def _compare_answers(task: str, right: Floats) -> tuple[float, float, float]:
    """(low, high, p) of one task from the answers (2, n) of two models."""
    if not is_whole(right):
        draws = resample_task(task, right)
        low, high = find_interval(draws[0] - draws[1])
        return float(low), float(high), nan
    both, ours, theirs = (int(count) for count in (right.prod(axis=0).sum(), *right.sum(axis=1)))
    low, high = newcombe_interval(both, ours - both, theirs - both, right.shape[1] - ours - theirs + both)
    return float(low), float(high), mcnemar(ours - both, theirs - both)


def _build_table(
    accuracies: Mapping[str, Floats],
    sizes: Mapping[str, int],
    groups: Mapping[str, Sequence[str]],
    intervals: Mapping[str, tuple[float, float, float]],
) -> pd.DataFrame:
    """The table of ``compare_models`` from {task: accuracies (2,)} and {average or task: (low, high, p)}."""
    import pandas as pd

    averages = average_groups(accuracies, groups)
    inside, outside = groups[IN_DOMAIN], groups[OUT_OF_DOMAIN]
    parts = {IN_DOMAIN: inside, OUT_OF_DOMAIN: outside, H_SCORE: [*inside, *outside]}
    labels = [(name, AVERAGE, parts[name], averages[name]) for name in averages]
    labels += [(task, name, [task], accuracies[task]) for name, tasks in groups.items() for task in tasks]
    rows = []
    for name, group, tasks, (ours, theirs) in labels:
        numbers = float(ours), float(theirs), float(ours - theirs), *intervals.get(name, (nan, nan, nan))
        rows.append((name, group, len(tasks), sum(sizes[task] for task in tasks), *numbers))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def find_share_interval(holds: Mapping[str, NDArray[np.bool_]]) -> tuple[float, float, float, int]:
    """The share of all images for which ``holds`` {task: (n_k,)} is true, its interval [low, high], and the number n.

    Images are sampled with replacement within each task. NaN without images.
    """
    n = sum(map(len, holds.values()))
    if not n:
        return nan, nan, nan, 0
    generator = np.random.default_rng(SEED)
    counts = [generator.binomial(len(of_task), of_task.mean(), DRAWS) for of_task in holds.values() if len(of_task)]
    low, high = find_interval(np.sum(counts, axis=0) / n)
    return sum(int(of_task.sum()) for of_task in holds.values()) / n, float(low), float(high), n


def find_smallest_visible(low: float, high: float) -> float:
    """The smallest true difference that a two-sided test at 5 % would show with a power of 80 %.

    ``low`` to ``high`` is the 95 % interval of the difference, whose half-width is 1.96 standard errors.
    """
    return (Z95 + Z80) * (high - low) / (2 * Z95)


# Many models


@dataclass(frozen=True, slots=True, eq=False)
class AllPairs:
    """The comparison of every model with every other one.

    ``order`` has the models from the best to the worst. ``scores`` (model, value, low, high) is in this order.
    ``pairs`` has a row for every two models, of which the first ranks higher: difference (first − second), low and high
    of its own 95 % interval, family_low and family_high of intervals that hold for all pairs at once with 95 %, and
    differs, whether the latter excludes zero. Models share one of the ``letters`` if and only if their pair does not
    differ.
    """

    order: tuple[str, ...]
    scores: pd.DataFrame
    pairs: pd.DataFrame
    letters: Mapping[str, str]


class BestModel(NamedTuple):
    """The best model against the second: the difference with its family-wise interval.

    ``ties`` are the other models that cannot be distinguished from the best.
    """

    best: str
    second: str
    difference: float
    low: float
    high: float
    ties: tuple[str, ...]


def compare_all(models: Mapping[str, Correctness], in_domain: Collection[str], over: str) -> AllPairs:
    """All pairs of two or more models over an average ("in domain", "out of domain", "H-score") or a task.

    Family-wise intervals are d ± q·se, where se is the standard error of a pair over the draws and q the 95 % quantile
    over draws of the largest |d* − d| / se of all pairs (max-T; Westfall and Young 1993).

    Raises:
        ValueError: fewer than two models, no images for ``over``, or different numbers of images.
    """
    import pandas as pd

    if len(models) < 2:
        raise ValueError("There must be at least two models.")
    tasks = group_tasks(_list_tasks(models), in_domain).get(over, ())
    over = tasks[0] if len(tasks) == 1 else over  # an average over one task is that task
    values, draws = _score_models(models, in_domain, over)
    ranks = np.argsort(-values, kind="stable")
    names, values, draws = tuple(np.array(list(models), object)[ranks].tolist()), values[ranks], draws[ranks]
    pairs = pd.DataFrame(_subtract_pairs(values, draws), columns=["a", "b", *PAIR_COLUMNS[2:]])
    if over not in (IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE):
        right = _stack(models, over)[ranks]
        a, b, are_whole = pairs["a"].to_numpy(), pairs["b"].to_numpy(), np.array([is_whole(row) for row in right])
        is_single = are_whole[a] & are_whole[b]  # a pair of one model each has the interval that it has by itself
        for name, ends in zip(("low", "high"), _newcombe_of_pairs(right, a, b), strict=True):
            pairs[name] = np.where(is_single, ends, pairs[name])
    letters = _assign_letters(len(names), pairs.loc[pairs["differs"], ["a", "b"]].to_numpy().tolist())
    pairs.insert(0, "first", [names[a] for a in pairs.pop("a")])
    pairs.insert(1, "second", [names[b] for b in pairs.pop("b")])
    low, high = find_interval(draws)
    scores = pd.DataFrame({"model": names, "value": values, "low": low, "high": high})
    return AllPairs(names, scores, pairs, dict(zip(names, letters, strict=True)))


def compare_with_one(
    models: Mapping[str, Correctness], one: str, in_domain: Collection[str], over: str
) -> list[tuple[str, float, float, float, bool]]:
    """Rows (other, difference, family_low, family_high, differs) of ``one`` of the models against each other one.

    Differences are ``one`` minus the other, and rows are ordered by them. Family-wise intervals are as those of
    ``compare_all``, but hold for these comparisons only.

    Raises:
        ValueError: no images for ``over``, or different numbers of images.
    """
    tasks = _list_tasks(models)
    models = {name: {task: right[task] for task in tasks} for name, right in models.items()}
    others = [name for name in models if name != one]
    (value,), (draws,) = _score_models({one: models[one]}, in_domain, over)
    differences, errors, largest = np.zeros(len(others)), np.zeros(len(others)), np.zeros(DRAWS)
    for start in range(0, len(others), MOST_AT_ONCE):
        block = slice(start, start + MOST_AT_ONCE)
        values, resampled = _score_models({name: models[name] for name in others[block]}, in_domain, over)
        differences[block] = value - values
        errors[block], distances = _measure_distances(draws - resampled, differences[block])
        np.maximum(largest, distances, out=largest)
    halves = float(np.percentile(largest, 95)) * errors
    rows = zip(others, differences.tolist(), halves.tolist(), strict=True)
    table = [(name, change, change - half, change + half, abs(change) > max(half, ZERO)) for name, change, half in rows]
    return sorted(table, key=lambda row: row[1])


def tell_from_best(all_pairs: AllPairs) -> BestModel:
    """The best model, the second, and the models that the family-wise intervals do not distinguish from the best."""
    best, second = all_pairs.order[:2]
    pairs = all_pairs.pairs[all_pairs.pairs["first"] == best]
    difference, low, high = pairs[["difference", "family_low", "family_high"]].to_numpy(np.float64)[0].tolist()
    return BestModel(best, second, difference, low, high, tuple(pairs.loc[~pairs["differs"], "second"].tolist()))


def _score_models(models: Mapping[str, Correctness], in_domain: Collection[str], over: str) -> tuple[Floats, Floats]:
    """The score of each model (m,), and the scores on resamples (m, draws). Raises ValueError without images."""
    tasks = _list_tasks(models)
    groups: dict[str, Sequence[str]] = {**group_tasks(tasks, in_domain)}
    if over in tasks:
        return _stack(models, over).mean(axis=1), resample_task(over, _stack(models, over))
    names = (IN_DOMAIN, OUT_OF_DOMAIN) if over == H_SCORE else (over,)
    if not all(groups.get(name) for name in names):
        raise ValueError(f"The models have no images in common for {over}.")
    values = [_average(_stack(models, task).mean(axis=1) for task in groups[name]) for name in names]
    draws = [_average(resample_task(task, _stack(models, task)) for task in groups[name]) for name in names]
    return (_harmonic_mean(*values), _harmonic_mean(*draws)) if over == H_SCORE else (values[0], draws[0])


def _subtract_pairs(
    values: Floats, draws: Floats
) -> Iterator[tuple[int, int, float, float, float, float, float, bool]]:
    """Rows (a, b, difference, low, high, family_low, family_high, differs) of models a < b in the order of scores."""
    count = len(values)
    largest = np.zeros(draws.shape[1])
    differences, lows, highs, errors = (np.zeros((count, count)) for _ in range(4))
    for a in range(count - 1):  # one model against all below it at a time, for the sake of memory
        below = a, slice(a + 1, None)
        changes, differences[below] = draws[a] - draws[a + 1 :], values[a] - values[a + 1 :]
        lows[below], highs[below] = find_interval(changes)
        errors[below], distances = _measure_distances(changes, differences[below])
        np.maximum(largest, distances, out=largest)
    halves = float(np.percentile(largest, 95)) * errors
    for a, b in zip(*(places.tolist() for places in np.triu_indices(count, 1)), strict=True):
        difference, half = float(differences[a, b]), float(halves[a, b])
        differs = abs(difference) > max(half, ZERO)
        yield a, b, difference, float(lows[a, b]), float(highs[a, b]), difference - half, difference + half, differs


def _measure_distances(changes: Floats, differences: Floats) -> tuple[Floats, Floats]:
    """Standard errors (k,) of differences (k,) on resamples (k, draws), and the largest |d* − d| / se (draws,)."""
    errors: Floats = changes.std(axis=1, ddof=1)
    varies = errors > ZERO
    distances = np.abs(changes[varies] - differences[varies, None]) / errors[varies, None]
    return errors, distances.max(axis=0, initial=0)


def _newcombe_of_pairs(right: Floats, a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Newcombe's intervals of the pairs (a, b) of models whose answers are the rows of ``right`` (m, n)."""
    correct, both = right.sum(axis=1), (right @ right.T)[a, b]
    neither = right.shape[1] - correct[a] - correct[b] + both
    return newcombe_interval(both, correct[a] - both, correct[b] - both, neither)


def _assign_letters(count: int, different: Iterable[Sequence[int]]) -> list[str]:
    """The letters of each model in the order of ranks, from the pairs that differ.

    Each letter stands for a largest set of models that do not differ (insert and absorb; Piepho 2004, Journal of
    Computational and Graphical Statistics 13:456).
    """
    sets = [frozenset(range(count))]
    for a, b in different:
        kept = [members for members in sets if not {a, b} <= members]
        parts = {members - {one} for members in sets if {a, b} <= members for one in (a, b)}
        sets = kept + [part for part in parts if not any(part <= other for other in kept)]
    letters = [""] * count
    for place, members in enumerate(sorted(sets, key=sorted)):
        for model in members:
            letters[model] += _name_letter(place)
    return letters


def _name_letter(place: int) -> str:
    """a to z, A to Z, then the same with an index."""
    round_number, letter = divmod(place, len(LETTERS))
    return LETTERS[letter] + (str(round_number + 1).translate(SUBSCRIPTS) if round_number else "")
