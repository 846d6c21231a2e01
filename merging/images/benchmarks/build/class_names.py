"""The class names for a text tower's prompts: the data set's own, the user's, or those of the papers."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merging.base.errors import TaskError
from merging.base.text import did_you_mean, first_few, printable
from merging.images.data_sets.labeled_images import DataSet
from merging.images.prompt_sets import Prompts, describe_first_difference, simplify_name

MAX_NAME_LENGTH = 300
NUMBERS_ONLY_CAUTION = "Labels are numbers without names; it was assumed that they count in this order: {}."
ClassNames = Sequence[str] | Mapping[str, str] | None  # in the order of labels, or {the data set's own name: name}


@dataclass(frozen=True, slots=True)
class Classes:
    """Class names in the order of labels; ``origin`` is a phrase on their source."""

    names: tuple[str, ...]
    origin: str
    cautions: tuple[str, ...] = ()  # assumptions about the labels


def name_classes(data: DataSet, chosen: ClassNames = None, prompts: Prompts | None = None) -> Classes:
    """The class names of a data set, in the order of its labels.

    Raises:
        TaskError: the number of names is wrong, a name occurs twice, or the meaning of the labels is unknown.
    """
    data_set_names = data.class_names
    if isinstance(chosen, Mapping):
        classes = Classes(_map_names(data_set_names, chosen), "as given, by the data set's own names")
    elif chosen is not None:
        classes = _match_list(data_set_names, tuple(chosen), data.class_count)
    elif prompts is not None:
        classes = _match_published(data_set_names, prompts, data.class_count)
    elif data_set_names is not None:
        spaced = tuple(name.replace("_", " ") for name in data_set_names)
        classes = Classes(spaced, "the data set's own, with underscores as spaces")
    else:
        raise TaskError("Labels are numbers and their meaning is not stated; give the class names in their order.")
    names = tuple(unicodedata.normalize("NFC", name).strip() for name in classes.names)
    _check_names(names, None if chosen is not None else prompts)  # published names may occur twice
    return Classes(names, classes.origin, classes.cautions)


def _map_names(data_set_names: Sequence[str] | None, user_names: Mapping[str, str]) -> tuple[str, ...]:
    if data_set_names is None:
        raise TaskError("The data set's classes have numbers and no names; give class names as a list in their order.")
    by_name = {simplify_name(key): name for key, name in user_names.items()}
    if missing := [name for name in data_set_names if simplify_name(name) not in by_name]:
        hint = did_you_mean(missing[0], user_names)
        raise TaskError(f"No class name is given for {first_few(map(repr, missing))}.{hint}")
    return tuple(by_name[simplify_name(name)] for name in data_set_names)


def _match_list(data_set_names: Sequence[str] | None, user_names: tuple[str, ...], class_count: int) -> Classes:
    if len(user_names) != class_count:
        raise TaskError(f"{len(user_names)} class names are given; the data set has {class_count} classes.")
    by_name = {simplify_name(name): name for name in user_names}
    if data_set_names is None:
        return Classes(
            user_names, "as given, in the order of labels", (NUMBERS_ONLY_CAUTION.format("the list that was given"),)
        )
    if len(by_name) == class_count and set(by_name) == {simplify_name(name) for name in data_set_names}:
        return Classes(tuple(by_name[simplify_name(name)] for name in data_set_names), "as given, matched by name")
    _refuse_another_order(data_set_names, user_names)
    return Classes(user_names, "as given, in the order of labels")


def _refuse_another_order(data_set_names: Sequence[str], user_names: Sequence[str]) -> None:
    """Raise TaskError if a chosen name is the data set's name of another label: the orders differ."""
    label = {simplify_name(name): number for number, name in enumerate(data_set_names)}
    for number, name in enumerate(user_names):
        if label.get(simplify_name(name), number) != number:
            raise TaskError(
                "The given class names are in another order than the data set's. "
                f"{describe_first_difference(data_set_names, user_names, 'the list')} {printable(name, 60)!r} is label "
                f"{label[simplify_name(name)]} of the data set. Give `classes` as a mapping from its names."
            )


def _match_published(data_set_names: Sequence[str] | None, prompts: Prompts, class_count: int) -> Classes:
    if data_set_names is not None:
        names = tuple(prompts.match(data_set_names))
        how = f"those of {prompts.title}, matched by name"
        if len(data_set_names) == len(prompts.class_names) and (
            difference := prompts.describe_first_difference(data_set_names)
        ):
            how += f". The published order is another one: {difference}"
        return Classes(names, how)
    if not prompts.labels_alone:  # label numbers without names have no agreed meaning
        raise TaskError(
            f"Labels are numbers, and files of {prompts.title} differ in what they mean; give `classes` in their order."
        )
    if class_count != len(prompts.class_names):
        raise TaskError(f"{prompts.title} has {len(prompts.class_names)} classes; the data set has {class_count}.")
    how = f"those of {prompts.title}; label numbers are {prompts.order}"
    return Classes(prompts.class_names, how, (NUMBERS_ONLY_CAUTION.format(prompts.order),))


def _check_names(names: Sequence[str], prompts: Prompts | None) -> None:
    if unusable := [name for name in names if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable()]:
        raise TaskError(f"{printable(unusable[0], 40)!r} is not a class name: text in one line is expected.")
    first_numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        first_number = first_numbers.setdefault(name.casefold(), number)
        is_published = prompts is not None and prompts.class_names.count(name) > 1
        if first_number != number and not is_published:
            raise TaskError(
                f"Classes {first_number} and {number} are both called {name!r}; their heads would be the same."
            )
