"""Ablations and comparisons of LwPTV's paper: variants and families of combinations in ``presets.yaml``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean
from merging.recipes.papers.combinations import (
    COMBINATIONS,
    PRESETS_FILE,
    check_row,
    read_combinations,
    read_sections,
    read_text,
)

FIELDS = ("title", "base", "whole", "groups", "note")

VARIANTS = read_combinations("variants")


@dataclass(frozen=True, kw_only=True)
class AblationFamily:
    """An ablation of a method, by keys of combinations.

    ``base`` is the merge alone, ``whole`` the merge with the whole method, and ``groups`` are the combinations to
    compare with, {title of a group: keys}.
    """

    title: str
    base: str
    whole: str
    groups: Mapping[str, tuple[str, ...]]
    note: str

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys of the family, the base first."""
        return (self.base, self.whole, *(key for keys in self.groups.values() for key in keys))

    def group(self, key: str) -> str:
        """The title of a key's group."""
        titles = {self.base: "Without it", self.whole: "The whole method"}
        return titles.get(key) or next(title for title, keys in self.groups.items() if key in keys)


def read_families(combinations: Collection[str], path: Path = PRESETS_FILE) -> dict[str, AblationFamily]:
    """The families in a file of presets, by name; their members must be among the keys ``combinations``.

    Raises:
        RecipeError: a field is missing, unknown or malformed; names the file, the family and the field.
    """
    families = {}
    for name, row in read_sections(path)["families"].items():
        try:
            families[name] = _parse_family(row, combinations)
        except RecipeError as error:
            raise RecipeError(f"{path.name}, families, row {name}: {error}") from None
    return families


def _parse_family(row: Any, combinations: Collection[str]) -> AblationFamily:
    check_row(row, FIELDS)
    groups = row.get("groups")
    if not isinstance(groups, dict) or not all(isinstance(keys, list) for keys in groups.values()):
        raise RecipeError(f"field groups: a mapping of titles to lists of keys is needed; got {short(groups)}.")
    base, whole = read_text(row, "base"), read_text(row, "whole")
    members = [("base", base), ("whole", whole), *(("groups", key) for keys in groups.values() for key in keys)]
    for name, key in members:
        if key not in combinations:
            raise RecipeError(f"field {name}: there is no combination {key!r}.{did_you_mean(str(key), combinations)}")
    return AblationFamily(
        title=read_text(row, "title"),
        base=base,
        whole=whole,
        groups={title: tuple(keys) for title, keys in groups.items()},
        note=read_text(row, "note"),
    )


FAMILIES = read_families([preset.key for preset in (*COMBINATIONS, *VARIANTS)])
LWPTV_FAMILY = FAMILIES["lwptv"]
