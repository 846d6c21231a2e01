"""Facts that a network's tensor names do not show: title, tied tensors, heads, order, names in other versions.

The facts are in facts.toml, one table per kind of network. They are compared with names as plain words, component by
component, so the time for untrusted names is proportional to their length.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

FACTS_FILE = Path(__file__).with_name("facts.toml")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one kind of network, as beginnings and endings of its tensors' names."""

    key: str
    title: str
    marks: tuple[tuple[str, ...], ...]  # sets of endings; a network of this kind has all endings of one set
    tied: tuple[tuple[str, ...], ...] = ()  # groups of endings: one tensor that several modules share
    heads: tuple[str, ...] = ()  # first components of tasks' own output layers
    parts: tuple[str, ...] = ()  # forward order inside a block
    later: tuple[tuple[str, str], ...] = ()  # (word in a file, word in the later names, those of Transformers 5)
    unused: tuple[str, ...] = ()  # endings of tensors in older files that the network no longer has

    def is_head(self, name: str) -> bool:
        """Whether a tensor belongs to a task's own output layer."""
        return name.partition(".")[0] in self.heads

    def is_unused(self, name: str) -> bool:
        """Whether a tensor of an older file no longer belongs to the network."""
        return any(_ends_with(name, ending) for ending in self.unused)

    def later_name(self, name: str) -> str:
        """The name that Transformers 5, and adapters written by it, give to a file's tensor; often the name itself."""
        dotted = f".{name}."
        for file, module in self.later:
            dotted = dotted.replace(f".{file}.", f".{module}.")
        return dotted[1:-1]

    def tied_groups(self, names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """The groups of tied tensors among ``names``, each in the order of the facts; groups of one are left out."""
        name_list = list(names)
        groups = (tuple(n for ending in group for n in name_list if _ends_with(n, ending)) for group in self.tied)
        return tuple(group for group in groups if len(group) > 1)

    def position_in_block(self, rest: str) -> int:
        """The position of a tensor in its block, in forward order; ``rest`` is its name after the block's number."""
        dotted = f"{rest}."
        positions = (position for position, part in enumerate(self.parts) if dotted.startswith(f"{part}."))
        return next(positions, len(self.parts))


def facts_of(names: Iterable[str]) -> Facts | None:
    """The facts of the first kind of network whose marks, one whole set of them, are among ``names``; else None."""
    endings = {mark for facts in all_facts() for marks in facts.marks for mark in marks}
    lengths = sorted({mark.count(".") + 1 for mark in endings})
    present = set()
    for name in names:
        parts = name.rsplit(".", lengths[-1])
        for length in lengths:
            if length <= len(parts) and (ending := ".".join(parts[-length:])) in endings:
                present.add(ending)
    matching = (facts for facts in all_facts() if any(present.issuperset(marks) for marks in facts.marks))
    return next(matching, None)


def title_of(names: Iterable[str]) -> str:
    """The title of a network other than CLIP, whatever prefix its names have; empty if no marks match."""
    facts = facts_of(names)
    return facts.title if facts else ""


@cache
def all_facts() -> tuple[Facts, ...]:
    """Every table of the file, in order; the order decides between kinds that share marks.

    Raises:
        ValueError: a table has a key that is not a field.
    """
    field_names = {field.name for field in fields(Facts)} - {"key"}
    tables = tomllib.loads(FACTS_FILE.read_text(encoding="utf-8"))
    for key, table in tables.items():
        if unknown := sorted(set(table) - field_names):
            raise ValueError(f"{FACTS_FILE.name}: [{key}] has unknown keys: {', '.join(unknown)}")
    return tuple(Facts(key, **{name: _freeze(value) for name, value in table.items()}) for key, table in tables.items())


def _freeze(value: Any) -> Any:
    """Lists of a table as tuples."""
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


def _ends_with(name: str, ending: str) -> bool:
    """Whether the last components of a name are ``ending``."""
    return name == ending or name.endswith(f".{ending}")
