"""Recipes with an adapt, and with test data: what they say, which ids they give, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in_learners import register_stand_ins

from merging.base.errors import MergingError, ParameterError, RecipeError, UnknownMethodError
from merging.methods.method import Needs
from merging.recipes.chain_text import WrittenChain, parse_chain, parse_test_data
from merging.recipes.recipe import Recipe

EXPERTS = {"a": "a.safetensors", "b": "b.safetensors"}
DIGESTS = {"a": "1" * 64, "b": "2" * 64}


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    register_stand_ins(monkeypatch)


def recipe(merge: str = "ties", **options: Any) -> Recipe:
    return Recipe.build(merge, experts=EXPERTS, **options)


def run_id(of: Recipe, benchmark: str = "x") -> str:
    return of.run_id("0" * 64, DIGESTS, benchmark)


def test_an_adapt_is_the_last_stage_and_no_step_of_the_merge() -> None:
    chain = recipe(edits=["lwptv"], adapt=("lens", {"rank": 8}))
    assert chain.text() == "lwptv → ties + lens(rank=8)"
    assert [step.key for step in chain.steps] == ["lwptv", "ties"]
    assert [method.key for method, _ in chain.stages] == ["lwptv", "ties", "lens"]
    assert chain.needs == {Needs.TEST_DATA}


def test_test_data_are_there_exactly_where_a_method_needs_them() -> None:
    assert recipe(test_data={"per_task": 3}).test_data is None
    assert recipe("guess").test_data is not None
    settings = recipe(adapt="lens", test_data={"split": "reporting", "per_task": 3, "seed": 2}).to_plain()["test_data"]
    assert settings == {"split": "reporting", "per_task": 3, "seed": 2}
    assert recipe(adapt="lens").to_plain()["test_data"] == {"split": "choosing", "per_task": None, "seed": 0}


def test_a_file_that_names_images_which_no_step_needs_opens_and_says_so() -> None:
    written = {"version": 1, "merge": "ties", "experts": EXPERTS}
    both = Recipe.from_plain({**written, "test_data": {"per_task": 3}, "exemplars": {"per_task": 9}})
    assert both == Recipe.from_plain(written) and both.chain_digest == Recipe.from_plain(written).chain_digest
    assert both.unused == (
        "No step of this chain needs exemplars, so exemplars is not used.",
        "No step of this chain learns from test data, so test_data is not used.",
    )
    learning = Recipe.from_plain({**written, "merge": "guess", "test_data": {"per_task": 3}})
    assert not learning.unused and not Recipe.from_plain({**written, "test_data": {}}).unused


def test_everything_comes_back_from_a_file_and_what_is_not_there_is_not_written() -> None:
    chain = recipe("guess", edits=["lwptv"], adapt=("lens", {"rank": 3}), test_data={"split": "exemplars"})
    assert Recipe.from_yaml(chain.to_yaml()) == chain
    assert {"adapt", "test_data"}.isdisjoint(recipe().to_plain())


def test_adapt_and_test_data_make_another_run() -> None:
    plain = recipe("guess")
    others = [
        recipe("guess", adapt="lens"),
        recipe("guess", adapt=("lens", {"rank": 8})),
        recipe("guess", test_data={"split": "reporting"}),
        recipe("guess", test_data={"per_task": 9}),
        recipe("guess", test_data={"seed": 1}),
    ]
    assert len({run_id(one) for one in (plain, *others)}) == 6
    assert run_id(plain) != run_id(plain, "y")
    assert run_id(recipe(adapt="lens")) != run_id(recipe(adapt="lens"), "y")


def test_chains_that_make_no_sense_are_refused_in_one_sentence() -> None:
    with pytest.raises(RecipeError, match=r"^EMR-Merging already gives every task a model of its own, so Lens has"):
        recipe("emr", adapt="lens")
    for several in (["lens", "lens"], [("lens", {}), ("lens", {})], {"lens": {}, "emr": {}}, ("lens", "lens")):
        with pytest.raises(RecipeError, match=r"^A recipe has at most one adapt"):
            recipe(adapt=several)
        with pytest.raises(RecipeError, match=r"^A recipe has at most one adapt"):
            Recipe.from_plain({"version": 1, "merge": "ties", "adapt": several})


def test_a_chain_of_two_adapts_is_refused_in_one_sentence() -> None:
    with pytest.raises(RecipeError, match=r"^A recipe has at most one adapt; got lens and surgery\.$"):
        parse_chain("task_arithmetic;lens:rank=3;surgery")


@pytest.mark.parametrize("adapt", [5, 0.5, True, "", [], {}, [1, 2, 3], {"lens": 5}, {3: {}}, ("lens", 5), ("lens",)])
def test_what_is_no_adapt_is_refused(adapt: Any) -> None:
    for attempt in (
        lambda: recipe(adapt=adapt),
        lambda: Recipe.from_plain({"version": 1, "merge": "ties", "adapt": adapt}),
    ):
        with pytest.raises((RecipeError, UnknownMethodError)):
            attempt()


def test_an_edit_or_a_merge_is_no_adapt() -> None:
    with pytest.raises(UnknownMethodError, match=r"There is no adapt called 'ties'. 'ties' is a merge"):
        recipe(adapt="ties")
    with pytest.raises(UnknownMethodError, match=r"'lens' is an adapt"):
        recipe(edits=["lens"])


@pytest.mark.parametrize(
    ("test_data", "sentence"),
    [
        ({"split": "training"}, "test_data.split must be one of"),
        ({"per_task": 0}, "test_data.per_task"),
        ({"per_task": "all"}, "test_data.per_task"),
        ({"seed": -1}, "test_data.seed"),
        ({"images": 3}, "test_data has no parameter 'images'; it takes split, per_task, seed"),
    ],
)
def test_settings_of_test_data_are_checked(test_data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        recipe(adapt="lens", test_data=test_data)


@pytest.mark.parametrize("test_data", [5, "choosing", ["choosing"]])
def test_test_data_of_another_kind_are_refused(test_data: Any) -> None:
    with pytest.raises(RecipeError, match=r"exemplars and test_data mappings of settings"):
        Recipe.from_plain({"version": 1, "merge": "ties", "adapt": "lens", "test_data": test_data})


def test_a_chain_as_text_has_its_adapt_last_and_says_what_it_learns_from() -> None:
    text = "test_data:split=reporting,per_task=9;lwptv;ties;lens:rank=8"
    chain = parse_chain(text)
    assert chain.adapt == ("lens", {"rank": 8})
    assert chain.test_data == {"split": "reporting", "per_task": 9, "seed": 0}
    assert chain.text() == text
    assert parse_chain("exemplars:per_task=3;test_data:seed=2;lot;lens").text() == (
        "exemplars:per_task=3;test_data:seed=2;lot;lens"
    )
    assert WrittenChain([], ("ties", {}), adapt=("lens", {})).text() == "ties;lens"
    plain = parse_chain("lwptv;ties")
    assert plain.adapt is None and plain.text() == "lwptv;ties"


@pytest.mark.parametrize("text", ["lens", "test_data:seed=2", "lens;ties", "ties;lens;lens", "test_data:seed=x;ties"])
def test_texts_that_are_no_chains_are_refused(text: str) -> None:
    with pytest.raises(MergingError):
        parse_chain(text)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("reporting", ("reporting", None, 0)),
        ("reporting:per_task=128", ("reporting", 128, 0)),
        ("per_task=5,seed=2", ("choosing", 5, 2)),
        ("exemplars:seed=1", ("exemplars", None, 1)),
        ("", ("choosing", None, 0)),
    ],
)
def test_test_data_on_the_command_line(text: str, settings: tuple[Any, ...]) -> None:
    problems: list[str] = []
    assert tuple(parse_test_data(text, problems).values()) == settings and not problems


@pytest.mark.parametrize("text", ["training", "reporting:per_task=0", "choosing:images=3", "reporting:per_task=x"])
def test_problems_of_test_data_are_collected(text: str) -> None:
    problems: list[str] = []
    assert parse_test_data(text, problems) == {}
    assert len(problems) == 1 and "test_data" in problems[0]
