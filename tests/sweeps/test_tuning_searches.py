"""The three searches of a tuning: on a planted objective, their seeds, their numbers of points, and fronts."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from small_sweeps import recipe

from merging.base.errors import MergingError
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.tuning import searches
from merging.study.tuning.searches import GRID, RANDOM, SEARCHES, TUNE, Scores, Values, start_search
from merging.study.tuning.tuning import Tuning

SPACE = (("coefficients", "0:1"),)  # four experts: four numbers
PLANTED, WEIGHTS = (0.31, 0.62, 0.17, 0.8), (1, 0.5, 0.3, 0.1)


def score(values: Values) -> float:
    pairs = zip(values.values(), PLANTED, WEIGHTS, strict=True)
    return 1 - sum(weight * (float(value) - best) ** 2 for value, best, weight in pairs)


def ask(
    tuning: Tuning, name: str = TUNE, points: int = 60, score: Callable[[Values], Scores] = lambda v: (score(v),)
) -> list[Values]:
    """Every values that a search asks for."""
    search, asked = start_search(name, tuning, points), []
    batch = next(search)
    while True:
        asked += batch
        try:
            batch = search.send([score(values) for values in batch])
        except StopIteration:
            return asked


@pytest.fixture
def tuning(tiny_benchmark: Benchmark) -> Tuning:
    return Tuning(recipe=recipe(tiny_benchmark, edits=[]), space=SPACE)


def count_wins(tuning: Tuning, seeds: int) -> int:
    """The number of seeds with which the search finds a better point than random search does."""
    best = [
        [max(map(score, ask(replace(tuning, seed=seed), name))) for name in (TUNE, RANDOM)] for seed in range(seeds)
    ]
    return sum(found > drawn for found, drawn in best)


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_the_search_beats_random_search_on_a_planted_objective(tuning: Tuning, sampler: str) -> None:
    assert count_wins(replace(tuning, sampler=sampler), 20) >= 16


@pytest.mark.full
def test_the_search_beats_random_search_with_few_seeds(tuning: Tuning) -> None:
    assert count_wins(tuning, 4) >= 3


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_the_same_seed_gives_the_same_points_and_another_seed_others(tuning: Tuning, sampler: str) -> None:
    tuning = replace(tuning, sampler=sampler)
    for name in SEARCHES:
        first = ask(tuning, name, 24)
        assert ask(tuning, name, 24) == first and len(first) == 24
        assert ask(replace(tuning, seed=1), name, 24) != first


def test_the_search_learns_only_from_its_answers(tuning: Tuning) -> None:
    first, other = ask(tuning, points=32), ask(tuning, points=32, score=lambda values: (1 - score(values),))
    assert first[:8] == other[:8] and first != other  # the sampler begins at random
    assert len(ask(tuning, points=20, score=lambda values: None)) == 20  # all chains are invalid


def test_a_grid_spans_the_space(tuning: Tuning) -> None:
    points = ask(tuning, GRID, 60)
    assert len({tuple(values.values()) for values in points}) == 60  # of 3 ** 4
    assert {value for values in points for value in values.values()} == {0.0, 0.5, 1.0}
    small = replace(tuning, space=(("edits", "none|lwptv"), ("lwptv.shared", "")))
    assert sorted(map(str, ask(small, GRID, 60, lambda values: None))) == sorted(
        ["{'edits': 'none'}", *(f"{{'edits': 'lwptv', 'lwptv.shared': {flag}}}" for flag in (True, False))]
    )


def test_several_objectives_give_a_front(tuning: Tuning) -> None:
    two = replace(tuning, objectives=("in", "out"), sampler="", points=80)

    def both(values: Values) -> Scores:
        return float(values["coefficients circles"]), 1 - float(values["coefficients circles"]) ** 2

    asked = ask(two, points=80, score=both)
    assert two.sampler == "nsga2" and len(asked) == 80 and ask(two, points=80, score=both) == asked


def test_no_point_of_a_front_is_dominated() -> None:
    draws = random.Random(0)
    points = [(draws.randint(0, 9), draws.randint(0, 9), draws.randint(0, 9)) for _ in range(200)]
    front = [one for one in points if not searches.is_dominated(one, points)]
    for one in points:
        better = [other for other in points if other != one and all(a >= b for a, b in zip(other, one, strict=True))]
        assert (one in front) == (not better)


def test_a_missing_optuna_names_the_extra(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("optuna", "cmaes"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MergingError, match=rf"Tuning needs {name}: pip install 'mergescope\[tune\]'"):
            ask(tuning, points=4)
        monkeypatch.undo()
