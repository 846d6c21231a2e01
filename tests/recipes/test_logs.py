"""The authors' logs beside recipes: which chains have one, and what may differ."""

from __future__ import annotations

from typing import Any

import pytest

from merging.recipes.learning_logs import adapt_logs_of, logs_of
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


@pytest.mark.parametrize(
    ("merge", "adapt", "last"),
    [
        (("task_arithmetic", {}), ("surgery", {"steps": 200}), "80.9"),
        (("adamerging", {}), ("surgery", {"seed": 3}), "86.1"),
        (("adamerging", {"steps": 100}), "surgery", "86.1"),
        (("adamerging", {}), ("surgery", {"rank": 64}), None),
        (("task_arithmetic", {"scaling": 0.4}), "surgery", None),
        (("task_arithmetic", {}), "twin", None),
        (("task_arithmetic", {}), None, None),
    ],
)
def test_a_log_of_surgery_is_of_the_same_merge_and_counts_updates(merge: Any, adapt: Any, last: str | None) -> None:
    curves = adapt_logs_of(Recipe.build(*merge, adapt=adapt))
    assert [curve.values[1000] for curve in curves] == ([last] if last else [])
    assert all(list(curve.values) == [200, 400, 600, 800, 1000] for curve in curves)
