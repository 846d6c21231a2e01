"""Three searches in a space: by Optuna, at random, and on a grid; each is determined by its seed and the answers.

A search is a generator of batches of values, which receives the scores of each batch; so stored answers, sent in the
same order to a new search, restore it.
"""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from merging.base.errors import MergingError
from merging.study.tuning.space import Dimension, Space, Value
from merging.study.tuning.tuning import CMA_ES, TPE, Tuning

TUNE, RANDOM, GRID = SEARCHES = ("tune", "random", "grid")
Values = dict[str, Value]
Scores = tuple[float, ...] | None  # of each objective; None if the chain is invalid there, or has no such score
Search = Generator[list[Values], list[Scores], None]
MAX_LEVELS = 1000  # of a number, on a grid


def import_optuna() -> Any:
    """The package ``optuna``. Raises MergingError if it is not installed."""
    try:
        import cmaes  # noqa: F401 - a sampler of optuna imports it
        import optuna
    except ImportError as error:
        raise MergingError(f"Tuning needs {error.name or 'optuna'}: pip install 'mergescope[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def start_search(name: str, tuning: Tuning, points: int) -> Search:
    """A search that asks for ``points`` points; a grid that has fewer ends there."""
    if name == TUNE:
        return _ask_optuna(tuning, points)
    space = tuning.checked_space
    return _ask_once(
        _draw_random(space, points, tuning.seed) if name == RANDOM else draw_grid(space, points, tuning.seed)
    )


def _ask_once(batch: list[Values]) -> Search:
    yield batch


def _ask_optuna(tuning: Tuning, points: int) -> Search:
    optuna = import_optuna()
    space = tuning.checked_space
    study = optuna.create_study(sampler=_make_sampler(optuna, tuning), directions=["maximize"] * len(tuning.objectives))
    for start in range(0, points, tuning.batch):
        trials = [study.ask() for _ in range(min(tuning.batch, points - start))]
        batch = [space.choose(partial(_suggest, trial)) for trial in trials]
        for trial, scores in zip(trials, (yield batch), strict=True):
            if scores is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, list(scores))


def _make_sampler(optuna: Any, tuning: Tuning) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that may still change
        if tuning.sampler == TPE:
            return optuna.samplers.TPESampler(seed=tuning.seed, multivariate=True, constant_liar=tuning.batch > 1)
        if tuning.sampler == CMA_ES:
            return optuna.samplers.CmaEsSampler(seed=tuning.seed, warn_independent_sampling=False)
        size = max(8, min(50, tuning.points // 6))  # several generations within the budget
        return optuna.samplers.NSGAIISampler(seed=tuning.seed, population_size=size)


def _suggest(trial: Any, dimension: Dimension) -> Value:
    value: Value
    if dimension.choices:
        value = trial.suggest_categorical(dimension.name, list(dimension.choices))
    elif dimension.is_whole:
        value = trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high))
    else:
        value = trial.suggest_float(dimension.name, dimension.low, dimension.high)
    return value


def _draw_random(space: Space, points: int, seed: int) -> list[Values]:
    draws = random.Random(f"random {seed}")

    def pick(dimension: Dimension) -> Value:
        if dimension.choices:
            return draws.choice(dimension.choices)
        if dimension.is_whole:
            return draws.randint(int(dimension.low), int(dimension.high))
        return draws.uniform(dimension.low, dimension.high)

    return [space.choose(pick) for _ in range(points)]


def draw_grid(space: Space, points: int, seed: int) -> list[Values]:
    """Different points of the coarsest full grid with at least ``points`` of them, in an order drawn with ``seed``.

    Every number has equally many levels from one end of its range to the other; choices have all.
    """
    levels: list[Sequence[Value]] = []
    for count in range(2, MAX_LEVELS + 1):
        finer = [_list_levels(dimension, count) for dimension in space.dimensions]
        if finer == levels:
            break
        levels = finer
        if math.prod(map(len, levels)) >= points:
            break
    names = [dimension.name for dimension in space.dimensions]
    total = math.prod(map(len, levels))
    drawn: dict[tuple[Any, ...], Values] = {}
    for index in _draw_indices(total, random.Random(f"grid {seed}")):
        cell: Values = {}
        for name, values in zip(names, levels, strict=True):
            index, position = divmod(index, len(values))  # noqa: PLW2901 - the digits of a number with mixed bases
            cell[name] = values[position]
        chosen = space.choose(partial(_find_cell, cell))
        drawn.setdefault(tuple(chosen.items()), chosen)  # edits that are not chosen have no values
        if len(drawn) == points:
            break
    return list(drawn.values())


def _find_cell(cell: Values, dimension: Dimension) -> Value:
    return cell[dimension.name]


def _draw_indices(total: int, draws: random.Random) -> Sequence[int]:
    """All whole numbers below ``total`` in a drawn order, or a million of them."""
    return draws.sample(range(total), min(total, 1_000_000))


def _list_levels(dimension: Dimension, count: int) -> Sequence[Value]:
    if dimension.choices:
        return dimension.choices
    steps = (dimension.low + (dimension.high - dimension.low) * i / (count - 1) for i in range(count))
    return list(dict.fromkeys(map(round, steps))) if dimension.is_whole else list(steps)


def is_dominated(scores: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Whether one of the ``others`` is at least as good by every objective, and better by one."""
    return any(
        all(theirs >= own for theirs, own in zip(other, scores, strict=True)) and tuple(other) != tuple(scores)
        for other in others
    )


def harmonic_mean(scores: Sequence[float]) -> float:
    """The harmonic mean of the objectives, by which one point of a front is the best; 0 if one of them is 0."""
    return len(scores) / sum(1 / score for score in scores) if all(score > 0 for score in scores) else 0.0


def accumulate_best(values: Sequence[float]) -> list[float]:
    """The best value so far at each position."""
    return list(itertools.accumulate(values, max))
