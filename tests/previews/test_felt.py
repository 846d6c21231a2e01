"""In which tensors two recipes differ."""

from __future__ import annotations

import pytest
import tiny

from merging.recipes.recipe import Recipe
from merging.study.previews.affected_tensors import find_affected_tensors, find_pretrained_tensors

PARAMETERS = tiny.checkpoint(tiny.pretrained()).parameters
FIRST = frozenset(p.name for p in PARAMETERS if p.block == 0)
LAST = frozenset(p.name for p in PARAMETERS if p.block == 1)


def recipe(merge="task_arithmetic", edits=(), **more) -> Recipe:
    return Recipe.build(merge, {}, edits, experts={"a": "x", "b": "y"}, **more)


def manual(rules, when="before"):
    return ("manual", {"rules": rules, "when": when})


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (recipe(), recipe(title="other"), frozenset()),
        (recipe(), recipe("ties"), None),
        (recipe(), recipe(count_dead_params=True), None),
        (recipe(), recipe(edits=[manual("b0=0")]), FIRST),
        (recipe(edits=[manual("b0=0.5")]), recipe(edits=[manual("b0=0.5+b1=2")]), LAST),
        (recipe(edits=[manual("b0=0")]), recipe(edits=[manual("b0=1")]), FIRST),
        (recipe(edits=[manual("b0/e.a=0")]), recipe(edits=[manual("b0/e.b=0")]), FIRST),
        (recipe("ties"), recipe("ties", [manual("b0=0")]), None),  # the threshold moves
        (recipe("ties"), recipe("ties", [manual("b0=0", "after")]), FIRST),
        (recipe(edits=["lwptv"]), recipe(edits=["lwptv", manual("b0=0")]), FIRST),
        (recipe(edits=["lwptv"]), recipe(edits=[manual("b0=0"), "lwptv"]), None),
        (recipe(edits=["lwptv"]), recipe(edits=["lwptv", manual("b1=0", "after")]), LAST),
        (recipe(edits=[manual("b0=0")]), recipe(edits=[manual("b0=0", "after")]), FIRST),
    ],
)
def test_names(one, other, names):
    assert find_affected_tensors(one, other, PARAMETERS) == find_affected_tensors(other, one, PARAMETERS) == names


def test_only_factors_of_zero_for_all_put_back():
    assert find_pretrained_tensors(recipe(edits=[manual("b0=0+b1=0.5")]), PARAMETERS) == FIRST
    assert find_pretrained_tensors(recipe(edits=[manual("e.a=0"), manual("e.b=0")]), PARAMETERS) == frozenset()
    assert (
        find_pretrained_tensors(recipe("ties", [manual("b1=0"), manual("b0=0", "after")]), PARAMETERS) == FIRST | LAST
    )
    assert find_pretrained_tensors(recipe(), PARAMETERS) == frozenset()
