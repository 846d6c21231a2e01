"""Spaces of tunings: what they vary in a chain, and every bad space is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from small_sweeps import recipe

from merging.base.errors import MergingError, RecipeError
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.tuning.space import Space, parse_entries
from merging.study.tuning.tuning import Tuning


def space(benchmark: Benchmark, *texts: str, **said: Any) -> Space:
    return Space(recipe(benchmark, **said), parse_entries(texts))


def test_ranges_are_those_of_the_parameters_or_narrower(tiny_benchmark: Benchmark) -> None:
    first, second, third = space(
        tiny_benchmark, "lwptv.prune_ratio", "task_arithmetic.scaling=0.1:0.9", "lwptv.shared"
    ).dimensions
    assert (first.low, first.high, first.choices) == (0.0, 1.0, ())
    assert (second.name, second.low, second.high) == ("task_arithmetic.scaling", 0.1, 0.9)
    assert third.choices == (False, True)
    assert space(tiny_benchmark, "scaling=0.5|1|2").dimensions[0].choices == (0.5, 1.0, 2.0)


def test_values_become_a_recipe(tiny_benchmark: Benchmark) -> None:
    made = space(tiny_benchmark, "edits=none|magnitude:prune_ratio=0.2|lwptv", "scaling", "lwptv.prune_ratio")
    assert [one.name for one in made.dimensions] == ["edits", "task_arithmetic.scaling", "lwptv.prune_ratio"]
    chosen = made.choose(lambda one: one.choices[1] if one.choices else 0.25)
    assert chosen == {"edits": "magnitude:prune_ratio=0.2", "task_arithmetic.scaling": 0.25}  # lwptv is not chosen
    made_recipe = made.apply(chosen)
    assert [step.key for step in made_recipe.edits] == ["magnitude"]
    assert made_recipe.edits[0].params.values()["prune_ratio"] == 0.2
    assert made_recipe.merge.params.values()["scaling"] == 0.25
    assert made.apply({"edits": "none", "task_arithmetic.scaling": 1.0}).edits == ()
    assert made.choose(lambda one: one.choices[-1] if one.choices else 0.5)["lwptv.prune_ratio"] == 0.5


def test_coefficients_of_experts_in_groups_of_blocks(tiny_benchmark: Benchmark) -> None:
    made = space(tiny_benchmark, "coefficients.0=0:1.5", "coefficients.output", edits=[])
    experts = list(tiny_benchmark.experts)
    assert [(one.expert, one.blocks, one.high) for one in made.dimensions[: len(experts)]] == [
        (name, "0", 1.5) for name in experts
    ]
    values = made.choose(lambda one: 0.5 if one.blocks == "0" else 2.0)
    assert len(values) == 2 * len(experts)
    (manual,) = made.apply(values).edits
    rules = manual.params.values()["rules"]
    assert {(rule.experts, rule.blocks, rule.sections, rule.factor) for rule in rules} == {
        *(((name,), ("0",), (), 0.5) for name in experts), *(((name,), (), ("output",), 2.0) for name in experts)
    }  # fmt: skip


BAD_SPACES = {
    "empty": ([], "The space is empty"),
    "unknown": (["lwptv.prune_rato"], "cannot be varied in the recipe. Did you mean 'lwptv.prune_ratio'?"),
    "out of bounds": (["lwptv.prune_ratio=0:3"], "must be a number in [0, 1]. Got '3'"),
    "wrong type": (["lwptv.prune_ratio=a:b"], "must be a number in [0, 1]. Got 'a'"),
    "wrong choice": (["lwptv.shared=yes|maybe"], "must be true or false. Got 'maybe'"),
    "no choice": (["lwptv.shared=true"], "write 2 to 50 different choices"),
    "not a number": (["lwptv.prune_ratio=nan:1"], "must be a number in [0, 1]"),
    "empty range": (["lwptv.prune_ratio=0.5:0.5"], "is empty"),
    "reversed": (["lwptv.prune_ratio=0.9:0.1"], "is empty"),
    "one value": (["lwptv.prune_ratio=0.2"], "write a range as 0.1:0.9"),
    "too many parts": (["lwptv.prune_ratio=0:1:0.1"], "write a range as 0.1:0.9"),
    "unknown edit": (["edits=none|bogus"], "There is no edit called 'bogus'"),
    "edits without choices": (["edits"], "write 2 to 50 different choices"),
    "malformed blocks": (["coefficients.9-3"], "blocks are written as 3 or 0-1"),
    "large coefficient": (["coefficients=0:99"], "must be a number in [-10, 10]"),
    "experts": (["experts"], "The number of experts cannot be tuned"),
    "twice": (["scaling", "task_arithmetic.scaling"], "names 'task_arithmetic.scaling' twice"),
}


@pytest.mark.parametrize("name", BAD_SPACES)
def test_bad_spaces_are_refused_in_one_sentence(tiny_benchmark: Benchmark, name: str) -> None:
    texts, expected = BAD_SPACES[name]
    with pytest.raises(MergingError) as refused:
        space(tiny_benchmark, *texts)
    assert expected in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"objectives": ("accuracy",)}, "'accuracy' is no objective"),
        ({"objectives": ("h", "h")}, "one to three different objectives"),
        ({"sampler": "grid"}, "A sampler is one of tpe, cmaes, nsga2"),
        ({"sampler": "nsga2"}, "nsga2 takes two or three objectives"),
        ({"objectives": ("in", "out"), "sampler": "tpe"}, "nsga2 takes two or three objectives"),
        ({"sampler": "cmaes"}, "cmaes moves at least two numbers"),
        ({"points": 1}, "The budget is 2 to 1,000 points"),
        ({"points": 5, "minutes": 3}, "The budget is 2 to 1,000 points"),
        ({"points": 0, "minutes": float("nan")}, "The budget is"),
        ({"batch": 0}, "asks for 1 to 64 points at once"),
        ({"images": -1}, "whole numbers of at least 0"),
    ],
)
def test_bad_tunings_are_refused(tiny_benchmark: Benchmark, said: dict[str, Any], expected: str) -> None:
    with pytest.raises(MergingError, match=expected):
        Tuning(recipe=recipe(tiny_benchmark), space=(("lwptv.prune_ratio", ""),), **said)


def test_yaml_gives_an_equal_tuning(tiny_benchmark: Benchmark) -> None:
    made = Tuning(recipe=recipe(tiny_benchmark), space=(("lwptv.prune_ratio", "0:0.5"),), minutes=0.5, points=0)
    assert (read := Tuning.from_yaml(made.to_yaml())) == made and read.id == made.id
    for old, new, expected in (
        ("prune_ratio: '0:0.5'", "prune_ratio: [0, 0.5]", "space is a mapping of names to texts"),
        ("seed: 0", "seed: true", "seed is a number; got True"),
        ("- h", "- 3", "objectives is a list of names"),
    ):
        assert old in made.to_yaml()
        with pytest.raises(RecipeError, match=expected):
            Tuning.from_yaml(made.to_yaml().replace(old, new))
