"""What a recipe that learns starts from."""

from __future__ import annotations

from merging.recipes.learning_start import start_of
from merging.recipes.recipe import Recipe

PRUNED = [("lwptv", {"prune_ratio": 0.6})]


def built(merge: str, params: dict[str, object], **fields: object) -> Recipe:
    return Recipe.build(merge, params, PRUNED, "p", {"a": "x"}, **fields)  # type: ignore[arg-type]


def test_a_merge_that_learns_starts_from_the_same_task_vectors_at_its_first_coefficients() -> None:
    start = start_of(built("adamerging", {"init": 0.4, "steps": 7}, test_data={"split": "reporting"}))
    assert start is not None
    assert start.chain_digest == built("task_arithmetic", {"scaling": 0.4}).chain_digest
    assert start.test_data is None


def test_an_adapt_starts_from_the_merge_that_it_is_put_on() -> None:
    start = start_of(built("ties", {"density": 0.3}, adapt="surgery"))
    assert start is not None and start.chain_digest == built("ties", {"density": 0.3}).chain_digest
    learned = start_of(built("adamerging", {}, adapt="surgery", test_data={"per_task": 9}))
    assert (
        learned is not None and learned.chain_digest == built("adamerging", {}, test_data={"per_task": 9}).chain_digest
    )


def test_what_learns_nothing_starts_nowhere() -> None:
    assert start_of(built("ties", {})) is None
