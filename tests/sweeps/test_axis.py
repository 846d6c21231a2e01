"""What a sweep can vary: bounds that all recipes allow, the step that is meant, values from text."""

from __future__ import annotations

import pytest

from merging.base.errors import ParameterError
from merging.recipes.recipe import Recipe
from merging.study.sweeps import sweep_target


def test_several_recipes_allow_what_each_of_them_allows() -> None:
    """AWD and WUDI both have steps and a learning rate, within different bounds."""
    recipes = [Recipe.build("ties", edits=["awd"]), Recipe.build("wudi")]
    awd, wudi = recipes[0].steps[0].params.bounds(), recipes[1].steps[0].params.bounds()
    for some in (recipes, recipes[::-1]):
        steps, lr = (sweep_target.find_target(some, name).bound for name in ("steps", "lr"))
        assert (steps.low, steps.high, steps.kind) == (0, min(awd["steps"].high, wudi["steps"].high), "integer")
        assert (lr.low, lr.high, lr.open_low) == (0, min(awd["lr"].high, wudi["lr"].high), True)
        assert (steps.high, lr.high) == (10_000, 1.0)


def test_a_parameter_without_its_step_is_that_of_the_last_one() -> None:
    recipe = Recipe.build("ties", edits=[("magnitude", {"prune_ratio": 0.2}), ("lwptv", {"prune_ratio": 0.4})])
    changed = sweep_target.vary_recipe(recipe, "prune_ratio", 0.9)
    assert [step.params.values()["prune_ratio"] for step in changed.edits] == [0.2, 0.9]


def test_the_second_step_of_a_method_has_its_number() -> None:
    recipe = Recipe.build("ties", edits=[("wise_ft", {"alpha": 0.2}), ("wise_ft", {"alpha": 0.4})])
    names = [target.name for target in sweep_target.list_targets([recipe])]
    assert names[:2] == ["wise_ft.alpha", "wise_ft#2.alpha"]
    changed = sweep_target.vary_recipe(recipe, "wise_ft#2.alpha", 0.9)
    assert [step.params.values()["alpha"] for step in changed.edits] == [0.2, 0.9]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0:0.3:0.1", (0, 0.1, 0.2, 0.3)),
        ("0:0.35:0.1", (0, 0.1, 0.2, 0.3)),
        ("0.1:0.7:0.2", (0.1, 0.3, 0.5, 0.7)),
        ("1, 2; 3", (1, 2, 3)),
    ],
)
def test_values_from_text_reach_the_last_one(text: str, values: tuple[float, ...]) -> None:
    assert sweep_target.parse_values(text, "x") == values
    assert sweep_target.parse_values(sweep_target.write_values(values), "x") == values


@pytest.mark.parametrize("text", ["0:1:0", "1:0:0.1", "0:1:0.001", "a", "0:1"])
def test_what_is_no_list_of_values_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="write values as"):
        sweep_target.parse_values(text, "x")


def test_fewer_experts_leave_the_files_of_the_others_out() -> None:
    experts = {name: f"{name}.pt" for name in "abc"}
    for name in experts:
        recipe = Recipe.build("fisher", {}, [], "base.pt", experts, gradients={name: f"{name}.safetensors"})
        kept = dict(sweep_target.vary_recipe(recipe, "experts", 1).experts)
        files = dict(sweep_target.vary_recipe(recipe, "experts", 1).data_files.gradients)
        assert list(files) == [one for one in kept if one == name]
