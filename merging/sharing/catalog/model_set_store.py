"""Sets of models: a pretrained model and the experts trained from it, stored by name so that the app can offer them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from merging.base.errors import StoreError
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.records import JsonRecords
from merging.base.files.short_digest import SHORT_DIGEST, short_digest
from merging.base.modes import is_shared
from merging.base.text import first_few, printable
from merging.models.model_references import NAMED

FOLDER, VERSION = "sets", 1
MAX_NAME_CHARACTERS, MAX_EXPERTS, MAX_SETS = 60, 200, 200  # characters of a name, experts of a set, sets
FORBIDDEN_CHARACTERS = ",="  # separators of names in links and on the command line


@dataclass(frozen=True)
class ModelSet:
    """References to a pretrained model and to its experts by name, in order."""

    title: str
    pretrained: str
    experts: tuple[tuple[str, str], ...]

    @cached_property
    def id(self) -> str:
        """Its id in links, which depends on the models and not on the title."""
        return short_digest(json.dumps([VERSION, self.pretrained, self.experts]))

    @property
    def is_offered(self) -> bool:
        """Whether this server may use it: a shared server allows only models from its own folders.

        References to these begin with one of ``NAMED``.
        """
        references = (self.pretrained, *(reference for _, reference in self.experts))
        return not is_shared() or all(reference.startswith(NAMED) for reference in references)


def make_model_set(title: str, pretrained: str, experts: Mapping[str, str]) -> ModelSet:
    """A checked set.

    Raises:
        StoreError: no experts, an invalid name, or the same model twice.
    """
    title = title.strip()
    if not title or len(title) > MAX_NAME_CHARACTERS or not title.isprintable():
        raise StoreError(f"A set needs a title of at most {MAX_NAME_CHARACTERS} printable characters.")
    if not pretrained:
        raise StoreError("Choose the pretrained model that the experts were trained from.")
    if not 0 < len(experts) <= MAX_EXPERTS:
        raise StoreError(f"Choose experts, from one to {MAX_EXPERTS}.")
    for name in experts:
        if problem := find_name_problem(name):
            raise StoreError(problem)
    if pretrained in experts.values():
        raise StoreError("The pretrained model is among the experts; remove it from them.")
    if len(set(experts.values())) < len(experts):
        twice = [name for name, path in experts.items() if list(experts.values()).count(path) > 1]
        raise StoreError(f"{first_few(twice)} are the same file; choose it once.")
    return ModelSet(title, pretrained, tuple(experts.items()))


def find_name_problem(name: str) -> str:
    """Why an expert cannot have this name; empty if it can."""
    is_printable_name = name.strip() == name and 0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable()
    if is_printable_name and not any(character in name for character in FORBIDDEN_CHARACTERS):
        return ""
    return (
        f"An expert cannot be named {printable(repr(name), MAX_NAME_CHARACTERS)}: use 1 to {MAX_NAME_CHARACTERS} "
        f"printable characters without {' and '.join(FORBIDDEN_CHARACTERS)}."
    )


def make_usable_name(name: str) -> str:
    """A valid name for an expert, made from the name of a file."""
    cleaned = "".join(
        " " if character in FORBIDDEN_CHARACTERS or not character.isprintable() else character for character in name
    )
    return re.sub(r"\s+", " ", cleaned).strip()[:MAX_NAME_CHARACTERS].strip() or "expert"


def choose_free_name(name: str, used_names: Iterable[str]) -> str:
    """The name, numbered if it is taken."""
    used, candidate, number = set(used_names), name, 2
    while candidate in used:
        candidate, number = f"{name} {number}", number + 1
    return candidate


def list_model_sets(root: Path) -> list[ModelSet]:
    """Every set stored under ``root`` that this server may use, by title."""
    records = _open_records(root)
    sets = [
        model_set for name in records.names() if (model_set := _read_model_set(records, name)) and model_set.is_offered
    ]
    return sorted(sets, key=lambda model_set: (model_set.title.casefold(), model_set.id))


def store_model_set(root: Path, model_set: ModelSet) -> None:
    """Store a set; it replaces the title of a stored set with the same models.

    Raises:
        StoreError: there are too many, or the store cannot be written to.
    """
    records, experts = _open_records(root), [list(pair) for pair in model_set.experts]
    record = {"title": model_set.title, "pretrained": model_set.pretrained, "experts": experts}
    if not records.path(model_set.id).exists() and len(records.names()) >= MAX_SETS:
        raise StoreError(f"There are {MAX_SETS} sets already; delete some of them first.")
    try:
        with explain_os_errors("The set", STORE_REMEDY):
            records.write(model_set.id, record)
    except ValueError as error:  # a path that is not valid text
        raise StoreError(f"The set cannot be stored ({error}).") from None


def delete_model_set(root: Path, set_id: str) -> None:
    """Delete a set; the models' files stay. Raises StoreError if the store cannot be written to."""
    if SHORT_DIGEST.fullmatch(set_id):
        with explain_os_errors("The set", STORE_REMEDY, "removed"):
            _open_records(root).remove(set_id)


def _open_records(root: Path) -> JsonRecords:
    return JsonRecords(root / FOLDER, VERSION, MAX_SETS)


def _read_model_set(records: JsonRecords, name: str) -> ModelSet | None:
    """The set in a record; None if ``store_model_set`` did not write it."""
    model_set = records.read(name, _parse_model_set)
    return model_set if model_set is not None and model_set.id == name else None


def _parse_model_set(record: Any) -> ModelSet:
    experts = {str(name): str(reference) for name, reference in record["experts"]}
    return make_model_set(str(record["title"]), str(record["pretrained"]), experts)
