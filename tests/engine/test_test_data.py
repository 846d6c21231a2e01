"""Test data: who must be given some, what they must have, and that labels are refused."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from stand_in_learners import register_stand_ins

import merging
from merging.base.errors import NeedsError
from merging.engine.needs import check_needs, check_test_data
from merging.recipes.recipe import Recipe

IMAGES, HEAD = torch.zeros(4, 3, tiny.SIZE, tiny.SIZE), torch.eye(5, tiny.EMBED)
EXPERTS = {"a": None, "b": None, "c": None}


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    register_stand_ins(monkeypatch)


def check(recipe: Recipe, test_data: dict[str, Any] | None, layer_inputs: Any = None) -> None:
    check_needs(recipe, EXPERTS, layer_inputs, None, check_test_data(test_data))


def test_every_task_that_lacks_something_is_named() -> None:
    whole = merging.TaskExemplars(IMAGES, head=HEAD)
    check(Recipe.build("guess"), dict.fromkeys(EXPERTS, whole))
    with pytest.raises(
        NeedsError, match=r"guess needs unlabeled test data and .* head. Missing: images for a, b, c. P"
    ):
        check(Recipe.build("guess"), None)
    one_class = merging.TaskExemplars(IMAGES, head=HEAD[:1])
    with pytest.raises(
        NeedsError, match=r"Missing: images for c; a head for a; a head with more than one class for b. Pass test_data="
    ):
        check(Recipe.build("guess"), {"a": IMAGES, "b": one_class, "c": merging.TaskExemplars(IMAGES[:0], head=HEAD)})
    with pytest.raises(NeedsError, match=r"for c. There are images of d, but no such expert. Pass"):
        check(Recipe.build("guess"), dict.fromkeys(("a", "b", "d"), whole))


def test_images_are_needed_and_layer_inputs_are_not_enough() -> None:
    check(Recipe.build("ties", adapt="lens"), dict.fromkeys(EXPERTS, IMAGES))
    with pytest.raises(
        NeedsError, match=r"lens needs unlabeled test data. Missing: images for a, b, c. Pass test_data"
    ):
        check(Recipe.build("ties", adapt="lens"), None, {"a": {}, "b": {}, "c": {}})


def test_labels_are_refused_in_one_sentence() -> None:
    labeled = merging.TaskExemplars(IMAGES, torch.zeros(4, dtype=torch.int64), HEAD)
    with pytest.raises(NeedsError, match=r"^Test data must not have labels, .* those of b do.$"):
        check_test_data({"a": IMAGES, "b": labeled})
    base, experts = tiny.family()
    for options in ({}, {"adapt": "lens"}):  # whether the chain looks at them or not
        with pytest.raises(NeedsError, match=r"^Test data must not have labels"):
            merging.merge(base, experts, "weight_averaging", test_data=dict.fromkeys(experts, labeled), **options)


def test_images_that_no_step_needs_are_named_in_the_warnings() -> None:
    base, experts = tiny.family()
    images = dict.fromkeys(experts, merging.TaskExemplars(IMAGES, head=HEAD))
    plain = merging.merge(base, experts, "weight_averaging")
    given = merging.merge(base, experts, "weight_averaging", test_data=images, exemplars=images)
    assert [text for text in given.warnings if text not in plain.warnings] == [
        "No step of this chain needs exemplars, so exemplars is not used.",
        "No step of this chain learns from test data, so test_data is not used.",
    ]
    learning = merging.merge(base, experts, "weight_averaging", adapt="lens", test_data=images, architecture="heads=2")
    assert not any("is not used" in text for text in learning.warnings)


@pytest.mark.parametrize("test_data", [5, [IMAGES], {"a": "images"}, {"a": IMAGES.to(torch.uint8)}])
def test_what_is_no_test_data_is_refused(test_data: Any) -> None:
    with pytest.raises(NeedsError, match=r"^Test data (are|of 'a')"):
        check_test_data(test_data)
