"""Class names and prompt templates of the papers' 8 + 13 data sets, one file of data for each.

``manifest.json`` has the sha-256 of every file. ``order`` describes the order of the class names, ``aliases`` are other
names of a class in data sets, and ``labels_alone`` says whether label numbers without names have one agreed meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from merging.errors import TaskError
from merging.text import did_you_mean

FOLDER = Path(__file__).with_name("prompts")
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Class names and templates of a data set's prompts; ``{}`` in a template stands for the class name."""

    key: str
    title: str
    papers: str  # "in domain" or "out of domain"
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    order: str
    labels_alone: bool
    aliases: dict[str, str]  # simplified name -> class name
    notes: tuple[str, ...]
    source: str

    def match(self, names: Sequence[str]) -> list[str]:
        """The class name for each of a data set's own names, in their order.

        Names that are numbers, from 0 or from 1, are indices of the classes.

        Raises:
            TaskError: a name of no class, or two names of one class.
        """
        if numbers := _numbers(names, len(self.class_names)):
            return [self.class_names[number] for number in numbers]
        by_alias = self.aliases | {simple(name): name for name in self.class_names}
        matches = [by_alias.get(simple(name)) for name in names]
        if None in matches:
            unknown = names[matches.index(None)]
            hint = did_you_mean(unknown, self.class_names)
            raise TaskError(f"{unknown[:80]!r} is no class of {self.title}.{hint} Give `classes` as a mapping.")
        classes = [name for name in matches if name is not None]
        if len(set(classes)) < len(classes) and len(set(self.class_names)) == len(self.class_names):
            twice = next(name for name in classes if classes.count(name) > 1)
            raise TaskError(f"Two classes of the data set mean {twice!r} of {self.title}.")
        return classes


def simple(name: str) -> str:
    """A name reduced to its letters and digits, for comparison."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _numbers(names: Sequence[str], count: int) -> list[int]:
    """Class numbers from 0 if the names are exactly 0 … count - 1 or 1 … count; else empty."""
    if not all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return []
    numbers = [int(name) for name in names]
    for first in (0, 1):
        if sorted(numbers) == list(range(first, first + count)):
            return [number - first for number in numbers]
    return []


def prompt_keys() -> tuple[str, ...]:
    """Keys of all data sets, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if path.name != MANIFEST))


def prompts(key: str) -> Prompts:
    """The prompts of a data set; raises TaskError, which names the nearest key, if there are none."""
    keys = prompt_keys()
    if key not in keys:
        raise TaskError(f"There are no prompts called {key[:40]!r}.{did_you_mean(key, keys)} {', '.join(keys)}.")
    data = json.loads((FOLDER / f"{key}.json").read_text("utf-8"))
    names, folders = data["class_names"], data.get("folders", [])
    aliases = {simple(alias): name for name, others in data.get("aliases", {}).items() for alias in others}
    aliases |= {simple(folder): name for folder, name in zip(folders, names, strict=bool(folders))}
    return Prompts(
        key=key,
        title=data["title"],
        papers=data["papers"],
        class_names=tuple(names),
        templates=tuple(data["templates"]),
        order=data["order"],
        labels_alone=data["labels_alone"],
        aliases=aliases,
        notes=tuple(data["notes"]),
        source=data["source"],
    )
