"""Class names and prompt templates of the papers' 8 + 13 data sets, one file of data for each.

``manifest.json`` has the sha-256 of every file. Class names stand in the order of ``order``, and ``aliases`` are what
data sets call a class themselves; ``labels_alone`` says whether label numbers without names have one agreed meaning.
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
    """How to name the classes of a data set to a text tower; ``{}`` in a template stands for the class name."""

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

        Folders that are called by number, from 0 or from 1, count the classes.

        Raises:
            TaskError: a name that is not among them, or two names of one class.
        """
        if numbers := _numbers(names, len(self.class_names)):
            return [self.class_names[number] for number in numbers]
        known = self.aliases | {simple(name): name for name in self.class_names}
        found = [known.get(simple(name)) for name in names]
        if None in found:
            strange = names[found.index(None)]
            near = did_you_mean(strange, self.class_names)
            raise TaskError(f"{strange[:80]!r} is no class of {self.title}.{near} Give `classes` as a mapping.")
        classes = [name for name in found if name is not None]
        if len(set(classes)) < len(classes) and len(set(self.class_names)) == len(self.class_names):
            twice = next(name for name in classes if classes.count(name) > 1)
            raise TaskError(f"Two classes of the data set mean {twice!r} of {self.title}.")
        return classes


def simple(name: str) -> str:
    """A name reduced to its letters and digits, for comparison."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _numbers(names: Sequence[str], count: int) -> list[int]:
    """Class numbers from 0, if the names are just that: all of 0 … count - 1, or of 1 … count."""
    if not all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return []
    numbers = [int(name) for name in names]
    for first in (0, 1):
        if sorted(numbers) == list(range(first, first + count)):
            return [number - first for number in numbers]
    return []


def known() -> tuple[str, ...]:
    """Keys of all data sets, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if path.name != MANIFEST))


def prompts(key: str) -> Prompts:
    """The prompts of a data set; raises TaskError with the nearest key."""
    if key not in known():
        raise TaskError(f"There are no prompts called {key[:40]!r}.{did_you_mean(key, known())} {', '.join(known())}.")
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
