"""The papers' named combinations: rows of ``presets.yaml``, whose head describes the fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from reprlib import repr as short
from typing import Any

import yaml

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean

PRESETS_FILE = Path(__file__).with_name("presets.yaml")
# Names of papers; combinations; ablations of LwPTV ("variants"); chains that learn, and those to compare them
# with; combinations on networks other than CLIP; and groups of variants that are compared ("families").
SECTIONS = ("papers", "combinations", "variants", "learned", "networks", "families")
FIELDS = ("key", "title", "name", "edits", "merge", "large", "exemplars", "adapt", "network", "source", "note")
# The app's first page reads the file: libyaml, if PyYAML has it, takes 2 ms; the reader of untrusted YAML takes 30 ms.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Step = tuple[str, Mapping[str, Any]]
Chain = tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A chain that a paper reports under a name; ``source`` is its position in the paper, ``note`` a remark on it.

    ``name`` is the name in lists, with parameters of the merge in braces; if it is empty, lists show the title.
    ``large`` has the merge's parameters that differ for ViT-L/14. ``network`` is the title of the kind of network that
    the values were reported for, empty for CLIP.
    """

    key: str
    title: str
    merge: str
    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)
    edits: Chain = ()
    exemplars: Mapping[str, Any] = field(default_factory=dict)
    adapt: Step | None = None
    network: str = ""
    source: str = ""
    note: str = ""


@cache
def read_sections(path: Path = PRESETS_FILE) -> Mapping[str, Any]:
    """The sections of a file of presets, by name; each file is read once.

    Raises:
        RecipeError: not valid YAML, or sections other than ``SECTIONS``; names the file.
    """
    try:
        sections = yaml.load(path.read_text("utf-8"), LOADER)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path.name} is not valid YAML: {error}") from None
    if not isinstance(sections, dict) or set(sections) != set(SECTIONS):
        raise RecipeError(f"{path.name} must have exactly the sections {', '.join(SECTIONS)}.")
    for name in SECTIONS:
        kind = dict if name in ("papers", "families") else list
        if not isinstance(sections[name], kind):
            raise RecipeError(f"{path.name}: the section {name} is not a {'list' if kind is list else 'mapping'}.")
    return sections


def read_combinations(section: str, path: Path = PRESETS_FILE) -> tuple[Combination, ...]:
    """The rows of a section of a file of presets, in the file's order.

    Raises:
        RecipeError: a field is missing, unknown or malformed; names the file, the row and the field.
    """
    sections = read_sections(path)
    combinations = []
    for number, row in enumerate(sections[section], 1):
        try:
            combinations.append(_parse_combination(row, sections["papers"]))
        except RecipeError as error:
            key = f" ({row['key']})" if isinstance(row, dict) and "key" in row else ""
            raise RecipeError(f"{path.name}, {section}, row {number}{key}: {error}") from None
    return tuple(combinations)


def check_row(row: Any, fields: Collection[str]) -> None:
    """Raise RecipeError if a row is not a mapping or has a field that is not among ``fields``."""
    if not isinstance(row, dict):
        raise RecipeError(f"a row is a mapping with the fields {', '.join(fields)}; got {short(row)}.")
    for name in row:
        if name not in fields:
            raise RecipeError(f"unknown field {name!r}.{did_you_mean(str(name), fields)}")


def read_text(row: Mapping[str, Any], name: str) -> str:
    """The text in a field of a row. Raises RecipeError if it is missing, empty or not text."""
    text = row.get(name)
    if not isinstance(text, str) or not text:
        raise RecipeError(f"field {name}: text is needed; got {short(text)}.")
    return text


def _parse_combination(row: Any, papers: Mapping[str, str]) -> Combination:
    check_row(row, FIELDS)
    merge, params = _parse_step(row.get("merge"), "merge")
    edits = row.get("edits", [])
    if not isinstance(edits, list):
        raise RecipeError(f"field edits: a list of edits is needed; got {short(edits)}.")
    return Combination(
        key=read_text(row, "key"),
        title=read_text(row, "title"),
        name=read_text(row, "name") if "name" in row else "",
        merge=merge,
        params=params,
        large=_parse_values(row, "large"),
        edits=tuple(_parse_step(edit, "edits") for edit in edits),
        exemplars=_parse_values(row, "exemplars"),
        adapt=_parse_step(row["adapt"], "adapt") if "adapt" in row else None,
        network=read_text(row, "network") if "network" in row else "",
        source=_expand_source(read_text(row, "source"), papers),
        note=read_text(row, "note") if "note" in row else "",
    )


def _parse_step(entry: Any, name: str) -> Step:
    """('ties', {...}) from 'ties' or {'ties': {...}}, as recipes write steps."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((key, params),) = entry.items()
        if isinstance(key, str) and isinstance(params, dict):
            return key, params
    raise RecipeError(f"field {name}: a step is `ties` or `ties: {{density: 0.2}}`; got {short(entry)}.")


def _parse_values(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    values = row.get(name, {})
    if not isinstance(values, dict):
        raise RecipeError(f"field {name}: a mapping of parameters to values is needed; got {short(values)}.")
    return values


def _expand_source(text: str, papers: Mapping[str, str]) -> str:
    """The text of a source, with the names of papers in braces replaced by their full references."""
    for name in re.findall(r"\{(.*?)\}", text):
        if name not in papers:
            raise RecipeError(
                f"field source: there is no paper {name!r} in the section papers.{did_you_mean(name, papers)}"
            )
    return re.sub(r"\{(.*?)\}", lambda match: papers[match[1]], text)


COMBINATIONS, LEARNED = read_combinations("combinations"), read_combinations("learned")
ON_NETWORKS = read_combinations("networks")  # with the values that papers report beyond CLIP
# The edit LwPTV with its paper's parameters.
LWPTV = next(row for row in COMBINATIONS if row.key == "task_arithmetic_lwptv").edits[0]
