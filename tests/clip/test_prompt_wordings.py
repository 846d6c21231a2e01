"""Class names as the Hub writes them: matched in every wording, offered beside CLIP's, and nowhere invented."""

from __future__ import annotations

import json

import pytest

from merging.base.errors import TaskError
from merging.images.benchmarks.build.class_names import name_classes
from merging.images.prompt_sets import CLIP, HUB, PROMPTS_FOLDER, list_prompt_keys, read_prompts, simplify_name

DIFFERENT = {  # names that differ from CLIP's, of how many
    "cifar100": 10, "fashion_mnist": 1, "flowers102": 3, "imagenet": 622, "kmnist": 10, "oxford_pets": 19,
}  # fmt: skip


@pytest.mark.parametrize("key", list_prompt_keys())
def test_every_name_of_every_wording_means_its_own_class(key):
    data, known = json.loads((PROMPTS_FOLDER / f"{key}.json").read_text("utf-8")), read_prompts(key)
    lists = [data["class_names"], data.get("folders", []), *known.wordings.values()]
    lists += [[alias] for every in data.get("aliases", {}).values() for alias in every]
    for names in known.wordings.values():
        for wording in known.wordings:
            assert known.with_wording(wording).match(names) == list(known.wordings[wording])
            assert not known.describe_first_difference(names)
        assert known.with_wording(CLIP).class_names == known.class_names and len(names) == len(known.class_names)
    for name, aliases in data.get("aliases", {}).items():
        assert {known.numbers[simplify_name(alias)] for alias in aliases} == {known.class_names.index(name)}
    meanings = {}
    for names in lists[1:]:
        for number, name in enumerate(names):
            if len(names) == len(known.class_names):
                meanings.setdefault(simplify_name(name), set()).add(number)
    twice = {name for name, numbers in meanings.items() if len(numbers) > 1}
    assert twice == ({"missile", "sunglasses"} if key == "imagenet" else set())


def test_what_the_hub_writes_in_another_way_is_counted():
    different = {}
    for key in list_prompt_keys():
        known = read_prompts(key)
        if HUB in known.wordings and (n := sum(a != b for a, b in zip(*known.wordings.values(), strict=True))):
            different[key] = n
    assert different == DIFFERENT
    assert [key for key in list_prompt_keys() if HUB not in read_prompts(key).wordings] == ["emnist"]
    with pytest.raises(TaskError, match=r"no wording 'hub' of EMNIST \(digits\): no source states its class names"):
        read_prompts("emnist").with_wording(HUB)


@pytest.mark.parametrize(
    ("key", "published", "name"),
    [
        ("cifar100", "cra", "crab"), ("cifar100", "aquarium_fish", "aquarium fish"), ("kmnist", "を", "wo"),
        ("flowers102", "pink-yellow dahlia?", "pink and yellow dahlia"), ("flowers102", "ball moss", "air plant"),
        ("flowers102", "globe-flower", "globe flower"), ("fashion_mnist", "T - shirt / top", "T-shirt/top"),
        ("imagenet", "cock", "rooster"), ("imagenet", "crane2", "construction crane"),
        ("imagenet", "crane", "crane bird"), ("imagenet", "projectile, missile", "missile"),
        ("mnist", "3 - three", "3"),
    ],
)  # fmt: skip
def test_names_as_published_are_matched_and_offered(key, published, name):
    known = read_prompts(key)
    assert known.match([published]) == [name]
    if key != "mnist" and name != "missile":  # which two classes of ImageNet are called
        assert known.with_wording(HUB).match([name]) == [published]


def test_digits_are_names_and_are_not_counted_from_one():
    assert read_prompts("svhn").match([str(n) for n in range(10)][::-1])[0] == "9"
    with pytest.raises(TaskError, match="'10' is not a class of SVHN"):
        read_prompts("svhn").match([str(n) for n in range(1, 11)])


class _Data:
    """Only what class names are chosen from."""

    def __init__(self, names):
        self.class_names, self.class_count = names, len(names or "0123456789")


def test_another_order_is_matched_or_refused_with_both_lists():
    turned = [*read_prompts("cifar10").class_names[1:], "airplane"]
    classes = name_classes(_Data(turned), None, read_prompts("cifar10"))
    assert list(classes.names) == turned
    assert "lists first differ at label 0: the data set has 'automobile', CIFAR-10 'airplane'" in classes.origin
    same = name_classes(_Data([*turned[-1:], *turned[:-1]]), None, read_prompts("cifar10"))
    assert same.origin == "those of CIFAR-10, matched by name"
    wrong = [*read_prompts("cifar10").class_names[:3], "catt", *read_prompts("cifar10").class_names[4:]]
    with pytest.raises(TaskError, match=r"differ at label 3: the data set has 'catt', CIFAR-10 'cat'\. Give `classes`"):
        name_classes(_Data(wrong), None, read_prompts("cifar10"))
    given = ["cat", "dog", "bear"]
    assert name_classes(_Data(["bear", "cat", "dog"]), given).names == ("bear", "cat", "dog")
    assert name_classes(_Data(["n1", "n2", "n3"]), given).names == tuple(given)
    problem = r"in another order .* differ at label 0: the data set has 'bear', the list 'cat'\. 'cat' is label 1 of"
    with pytest.raises(TaskError, match=problem):
        name_classes(_Data(["bear", "cat", "wolf"]), given)


def test_what_is_assumed_of_numbers_is_said():
    (caution,) = name_classes(_Data(None), None, read_prompts("emnist")).cautions
    assert caution.endswith("it was assumed that they count in this order: the digit.")
    (caution,) = name_classes(_Data(None), [f"class {n}" for n in range(10)]).cautions
    assert caution.endswith("in this order: the list that was given.")
    assert not name_classes(_Data(["a", "b"])).cautions
