"""The authors' logs beside recipes: which chains have one, and what may differ."""

from __future__ import annotations

from typing import Any

import pytest

from merging.recipes.logs import logs_of
from merging.recipes.recipe import Recipe

TRIM, LESS = ("trim", {"density": 0.2}), ("trim", {"density": 0.3})


@pytest.mark.parametrize(
    ("params", "edits", "keys"),
    [
        ({}, [], ["lw_adamerging"]),
        ({"steps": 100, "seed": 3, "shrink": 0.7}, [], ["lw_adamerging"]),
        ({"granularity": "task"}, [], ["tw_adamerging"]),
        ({"granularity": "task"}, [TRIM], ["tw_adamerging_pp"]),
        ({}, [TRIM], ["lw_adamerging_pp"]),
        ({}, [LESS], []),
        ({"lr": 0.005}, [], []),
        ({}, [("lwptv", {}), TRIM], []),
    ],
)
def test_a_log_is_of_the_same_chain(params: dict[str, Any], edits: Any, keys: list[str]) -> None:
    assert [curve.key for curve in logs_of(Recipe.build("adamerging", params, edits))] == keys


def test_another_merge_has_none() -> None:
    assert logs_of(Recipe.build("task_arithmetic")) == ()
