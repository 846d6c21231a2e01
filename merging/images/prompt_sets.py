"""Class names and prompt templates of the papers' data sets (8 in domain, 13 out of domain), one JSON file for each.

``manifest.json`` has the sha-256 of every file. In a file, ``order`` describes the order of the class names,
``aliases`` are other names of a class in data sets, and ``labels_alone`` states whether label numbers without names
have one agreed meaning. ``wordings`` has the class names of other authors in the same order, if they differ, and
``folders`` the names of the classes' folders, such as "n01440764".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from merging.base.errors import TaskError
from merging.base.text import did_you_mean, printable

PROMPTS_FOLDER = Path(__file__).with_name("prompts")
MANIFEST_FILE = "manifest.json"
CLIP, HUB = "clip", "hub"
WORDINGS = (CLIP, HUB)  # class names by CLIP's authors, or by the Hub's data sets and FusionBench


@dataclass(frozen=True, slots=True)
class Prompts:
    """Class names and templates of a data set's prompts; ``{}`` in a template stands for the class name."""

    key: str
    title: str
    papers: str  # "in domain" or "out of domain": the group that the papers put the data set in
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    order: str
    labels_alone: bool
    numbers: Mapping[str, int]  # simplified name or alias, of any wording -> number of its class
    wordings: Mapping[str, tuple[str, ...]]  # wording -> class names
    notes: tuple[str, ...]
    source: str

    def with_wording(self, wording: str) -> Self:
        """The same prompts with the class names of a wording; raises TaskError for an unknown wording."""
        if wording not in self.wordings:
            raise TaskError(
                f"There is no wording {printable(wording, 40)!r} of {self.title}: no source states its class names. "
                f"There is {' and '.join(self.wordings)}."
            )
        return replace(self, class_names=self.wordings[wording])

    def match(self, names: Sequence[str]) -> list[str]:
        """The class name for each of a data set's own names, in their order.

        Names that are numbers, from 0 or from 1, are indices of the classes.

        Raises:
            TaskError: a name belongs to no class, or two names to one class.
        """
        classes = self._match_classes(names)
        for name, number in zip(names, classes, strict=True):
            if number is None:
                hint = did_you_mean(name, self.class_names)
                raise TaskError(
                    f"{name[:80]!r} is not a class of {self.title}.{hint} {self.describe_first_difference(names)} Give "
                    "`classes` as a mapping."
                )
        matches = [self.class_names[number] for number in classes if number is not None]
        if len(set(matches)) < len(matches) and len(set(self.class_names)) == len(self.class_names):
            twice = next(name for name in matches if matches.count(name) > 1)
            raise TaskError(f"Two classes of the data set mean {twice!r} of {self.title}.")
        return matches

    def describe_first_difference(self, names: Sequence[str]) -> str:
        """A sentence on the first label at which a data set's names and these classes differ; empty if none does."""
        order = self._match_classes(names)
        if all(number == label for label, number in enumerate(order)) and len(names) == len(self.class_names):
            return ""
        label = next((label for label, number in enumerate(order) if number != label), len(names))
        return _describe_difference(names, self.class_names, self.title, label)

    def _match_classes(self, names: Sequence[str]) -> list[int | None]:
        """The number of the class of each name; None for unknown names."""
        if numbers := _parse_numbers(names, self.class_names):
            return [*numbers]
        return [
            # two classes may have the same name, so the class of the same number has priority
            label if self._is_called(label, simplify_name(name)) else self.numbers.get(simplify_name(name))
            for label, name in enumerate(names)
        ]  # fmt: skip

    def _is_called(self, number: int, name: str) -> bool:
        """Whether the class of this number has the simplified name in some wording."""
        return any(number < len(names) and simplify_name(names[number]) == name for names in self.wordings.values())


def simplify_name(name: str) -> str:
    """A name reduced to its letters and digits, for comparison."""
    return re.sub(r"[\W_]+", "", name.casefold())


def describe_first_difference(data_set_names: Sequence[str], names: Sequence[str], title: str) -> str:
    """A sentence on the first label at which two lists of class names differ; empty if none does."""
    longest = range(max(len(data_set_names), len(names)))
    label = next(
        (n for n in longest if simplify_name(_name_at(data_set_names, n)) != simplify_name(_name_at(names, n))), None
    )
    return "" if label is None else _describe_difference(data_set_names, names, title, label)


def _describe_difference(data_set_names: Sequence[str], names: Sequence[str], title: str, label: int) -> str:
    texts = [
        printable(repr(_name_at(names_of_side, label)), 80) if label < len(names_of_side) else "nothing"
        for names_of_side in (data_set_names, names)
    ]
    return f"The lists first differ at label {label}: the data set has {texts[0]}, {title} {texts[1]}."


def _name_at(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else ""


def _parse_numbers(names: Sequence[str], classes: Sequence[str]) -> list[int]:
    """Class numbers from 0 if the names are exactly the numbers 0 … n - 1 or 1 … n for n classes; else empty.

    If the class names are digits themselves, numbers from 1 are not accepted: "1" is then a class name.
    """
    if not all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return []
    numbers = [int(name) for name in names]
    for first in (0,) if all(name.isdigit() for name in classes) else (0, 1):
        if sorted(numbers) == list(range(first, first + len(classes))):
            return [number - first for number in numbers]
    return []


def list_prompt_keys() -> tuple[str, ...]:
    """Keys of all data sets, in alphabetical order."""
    return tuple(sorted(path.stem for path in PROMPTS_FOLDER.glob("*.json") if path.name != MANIFEST_FILE))


def read_prompts(key: str) -> Prompts:
    """The prompts of a data set; raises TaskError for an unknown key and suggests the nearest one."""
    keys = list_prompt_keys()
    if key not in keys:
        raise TaskError(f"There are no prompts called {key[:40]!r}.{did_you_mean(key, keys)} {', '.join(keys)}.")
    data = json.loads((PROMPTS_FOLDER / f"{key}.json").read_text("utf-8"))
    names = tuple(data["class_names"])
    other_names = {name: tuple(entry.get("class_names", names)) for name, entry in data.get("wordings", {}).items()}
    return Prompts(
        key=key,
        title=data["title"],
        papers=data["papers"],
        class_names=names,
        templates=tuple(data["templates"]),
        order=data["order"],
        labels_alone=data["labels_alone"],
        numbers=_number_names(data, names, other_names),
        wordings={CLIP: names, **other_names},
        notes=tuple(data["notes"]),
        source=data["source"],
    )


def _number_names(
    data: Mapping[str, Any], names: Sequence[str], other_names: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """{simplified name of a class: its number}; a class's own name is never that of another class."""
    known: dict[str, int] = {}
    numbered_aliases = [
        (alias, names.index(name)) for name, aliases in data.get("aliases", {}).items() for alias in aliases
    ]
    lists = (names, data.get("folders", []), *other_names.values())
    for name, number in [*((name, n) for each in lists for n, name in enumerate(each)), *numbered_aliases]:
        known.setdefault(simplify_name(name), number)
    return known
