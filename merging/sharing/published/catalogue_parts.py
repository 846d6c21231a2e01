"""The shared parts of the catalogue: repositories, models, test sets, rows, and facts about sources of figures.

Each repository is listed once. Unknown facts (most commits, sizes and digests) are null until the first fetch reads
them; ``about`` is a rounded or estimated size. File names may be patterns with ``*``, which the first fetch resolves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from merging.base.errors import TaskError
from merging.images.prompt_sets import list_prompt_keys
from merging.recipes.papers.published_figures import IN_DOMAIN_TASKS, OUT_OF_DOMAIN_TASKS, SOURCES, TOWER_NAMES
from merging.sharing.published.catalogue_fields import CatalogueFields, read_mapping

CATALOGUE = Path(__file__).with_name("catalogue")
PARTS = CATALOGUE / "parts"
MODEL, DATA_SET = "model", "dataset"
LISTED_SIZE, ESTIMATED_SIZE = "listing", "estimate"  # the source of a size
PACKED, SPLIT = "packed", "split"  # how q, k and v are merged: as one matrix, or as three
TEST, TRAIN = "test", "train"  # the parts of a data set's repository
COMMIT_PATTERN, DIGEST_PATTERN = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
REPOSITORY_PATTERN = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a repository, or a pattern with ``*`` for several; ``begins`` is the known beginning of its sha256."""

    name: str
    size: int | None = None
    sha256: str | None = None
    begins: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for files whose names are not known yet."""
        return "*" in self.name


@dataclass(frozen=True, slots=True)
class ListedPart:
    """Files of a repository that are fetched together; ``about`` is their size in bytes, ``basis`` its source."""

    files: tuple[ListedFile, ...]
    about: int | None
    basis: str | None


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """A repository, whose license was read on the day ``read``; ``license`` is None if it was not read yet."""

    name: str
    kind: str
    revision: str | None
    license: str | None
    read: str | None
    gated: bool
    parts: Mapping[str, ListedPart]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The location of a model: a part of a repository, and the path in it that is opened (empty: the folder)."""

    repository: str
    part: str
    open: str = ""


@dataclass(frozen=True, slots=True)
class PublishedModels:
    """A pretrained model and its experts; ``authors`` are named as in the papers' figures."""

    key: str
    title: str
    tower: str
    authors: str
    pretrained: ModelFile
    text: ModelFile | None  # the text tower's model, if the pretrained model has none
    experts: Mapping[str, ModelFile]
    note: str = ""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A test set: its repository, split and columns, and the source of its class names.

    ``column`` is its name in the papers' tables. ``rows`` is None if the images were not counted. ``classes`` and
    ``templates`` replace prompts that this program lacks. ``exemplars`` is the split from which exemplars are sampled.
    ``configuration`` is its folder in a repository that may have several.
    """

    key: str
    title: str
    column: str | None
    repository: str
    split: str
    rows: int | None
    image: str
    label: str
    prompts: str | None
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    exemplars: str | None
    configuration: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of a table: a preset, values that replace the preset's, and whether the grouping of q, k and v matters."""

    key: str
    preset: str
    values: Mapping[str, Any]
    grouping_matters: bool


@dataclass(frozen=True, slots=True)
class FigureSource:
    """A source of figures: how it grouped q, k and v, and which of its test sets have other images."""

    name: str
    grouping: str
    other_split: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CatalogueParts:
    """All shared parts, by their keys."""

    repositories: Mapping[str, ListedRepository]
    models: Mapping[str, PublishedModels]
    test_sets: Mapping[str, PublishedSet]
    rows: Mapping[str, ListedRow]
    sources: Mapping[str, FigureSource]


def read_parts(folder: Path = PARTS) -> CatalogueParts:
    """The shared parts in a folder.

    Raises:
        TaskError: a file, entry or field is missing, unknown, of the wrong kind, or refers to a missing entry.
    """
    parts = CatalogueParts(
        {name: _parse_repository(name, entry) for name, entry in _read_section(folder, "repositories")},
        {name: _parse_models(name, entry) for name, entry in _read_section(folder, "models")},
        {name: _parse_test_set(name, entry) for name, entry in _read_section(folder, "test_sets")},
        {name: _parse_row(name, entry) for name, entry in _read_section(folder, "rows")},
        {name: _parse_source(name, entry) for name, entry in _read_section(folder, "sources")},
    )
    for models in parts.models.values():
        for use in (models.pretrained, *models.experts.values(), *((models.text,) if models.text else ())):
            _require_model_file(parts, use, f"models.json, {models.key}")
    for one in parts.test_sets.values():
        for part in (TEST, *((TRAIN,) if one.exemplars else ())):
            _require_model_file(parts, ModelFile(one.repository, part), f"test_sets.json, {one.key}")
    return parts


@cache
def read_shared_parts() -> CatalogueParts:
    """The shared parts of the catalogue."""
    return read_parts()


def _read_section(folder: Path, name: str) -> list[tuple[str, CatalogueFields]]:
    path = folder / f"{name}.json"
    outer = CatalogueFields(read_mapping(path), path.name)
    section = outer.read_mapping_field(name)
    outer.refuse_unknown()
    return [(key, CatalogueFields(entry, f"{path.name}, {key}")) for key, entry in section.items()]


def _parse_repository(name: str, entry: CatalogueFields) -> ListedRepository:
    if not REPOSITORY_PATTERN.fullmatch(name):
        raise TaskError(f"{entry.location}: a repository is organization/name.")
    parts = {
        key: _parse_part(CatalogueFields(each, f"{entry.location}, part {key}"))
        for key, each in entry.read_mapping_field("parts").items()
    }
    listed = ListedRepository(
        name=name,
        kind=entry.read_choice("kind", (MODEL, DATA_SET)),
        revision=_parse_hexadecimal(entry, "revision", COMMIT_PATTERN, "a commit of 40 digits"),
        license=entry.read_optional_text("license"),
        read=entry.read_optional_text("read"),
        gated=entry.read_choice("gated", (True, False)),
        parts=parts,
        note=entry.read_text("note", ""),
    )
    if (listed.license is None) != (listed.read is None):
        raise entry.make_field_error(
            "read", "the license and the day on which it was read belong together", listed.read
        )
    entry.refuse_unknown()
    return listed


def _parse_part(entry: CatalogueFields) -> ListedPart:
    files = tuple(_parse_file(each) for each in entry.read_entries("files"))
    about, basis = entry.read_optional_count("about"), entry.read_choice("basis", (LISTED_SIZE, ESTIMATED_SIZE, None))
    if (about is None) != (basis is None):
        raise entry.make_field_error("basis", "a size and its basis belong together", basis)
    entry.refuse_unknown()
    return ListedPart(files, about, basis)


def _parse_file(entry: CatalogueFields) -> ListedFile:
    listed = ListedFile(
        name=entry.read_text("name"),
        size=entry.read_optional_count("size"),
        sha256=_parse_hexadecimal(entry, "sha256", DIGEST_PATTERN, "64 hexadecimal digits"),
        begins=entry.read_text("begins", ""),
    )
    if listed.name.startswith("/") or ".." in listed.name.split("/"):
        raise entry.make_field_error("name", "a path inside the repository is needed", listed.name)
    if listed.is_pattern and (listed.size or listed.sha256):
        raise entry.make_field_error("sha256", "a pattern has neither size nor digest", listed.name)
    entry.refuse_unknown()
    return listed


def _parse_hexadecimal(entry: CatalogueFields, name: str, pattern: re.Pattern[str], needed: str) -> str | None:
    text = entry.read_optional_text(name)
    if text is not None and not pattern.fullmatch(text):
        raise entry.make_field_error(name, f"{needed}, or null, is needed", text)
    return text


def _parse_models(key: str, entry: CatalogueFields) -> PublishedModels:
    experts = {
        task: _parse_model_file(use, f"{entry.location}, expert {task}")
        for task, use in entry.read_mapping_field("experts").items()
    }
    text = entry.read_mapping_field("text", {}) if entry.read_mapping_field("text", {}) else None
    models = PublishedModels(
        key=key,
        title=entry.read_text("title"),
        tower=entry.read_choice("tower", TOWER_NAMES),
        authors=entry.read_text("by"),
        pretrained=_parse_model_file(entry.read_mapping_field("pretrained"), f"{entry.location}, pretrained"),
        text=None if text is None else _parse_model_file(text, f"{entry.location}, text"),
        experts=experts,
        note=entry.read_text("note", ""),
    )
    entry.refuse_unknown()
    return models


def _parse_model_file(data: Any, location: str) -> ModelFile:
    if isinstance(data, str):  # a repository with one model
        return ModelFile(data, MODEL)
    entry = CatalogueFields(data, location)
    use = ModelFile(entry.read_text("repository"), entry.read_text("part"), entry.read_text("open", ""))
    entry.refuse_unknown()
    return use


def _parse_test_set(key: str, entry: CatalogueFields) -> PublishedSet:
    test_set = PublishedSet(
        key=key,
        title=entry.read_text("title"),
        column=entry.read_choice("column", (*IN_DOMAIN_TASKS, *OUT_OF_DOMAIN_TASKS, None)),
        repository=entry.read_text("repository"),
        split=entry.read_text("split"),
        rows=entry.read_optional_count("rows"),
        image=entry.read_text("image"),
        label=entry.read_text("label"),
        prompts=entry.read_choice("prompts", (*list_prompt_keys(), None)),
        classes=entry.read_texts("classes", ()),
        templates=entry.read_texts("templates", ()),
        exemplars=entry.read_optional_text("exemplars"),
        configuration=entry.read_text("configuration", ""),
        note=entry.read_text("note", ""),
    )
    if (test_set.prompts is None) != bool(test_set.classes and test_set.templates):
        raise entry.make_field_error(
            "classes", "a test set has prompts, or classes and templates", list(test_set.classes)
        )
    entry.refuse_unknown()
    return test_set


def _parse_row(key: str, entry: CatalogueFields) -> ListedRow:
    row = ListedRow(
        key,
        entry.read_text("preset"),
        entry.read_mapping_field("values", {}),
        entry.read_text("grouping", "") == "matters",
    )
    entry.refuse_unknown()
    return row


def _parse_source(name: str, entry: CatalogueFields) -> FigureSource:
    if name not in SOURCES:
        raise TaskError(f"{entry.location}: no source of published figures has that name.")
    source = FigureSource(name, entry.read_choice("grouping", (PACKED, SPLIT)), entry.read_texts("other_split"))
    entry.refuse_unknown()
    return source


def _require_model_file(parts: CatalogueParts, use: ModelFile, location: str) -> None:
    repository = parts.repositories.get(use.repository)
    if repository is None or use.part not in repository.parts:
        raise TaskError(f"{location}: {use.repository} with a part {use.part!r} is not in repositories.json.")
    names = [file.name for file in repository.parts[use.part].files]
    if use.open and use.open not in names:
        raise TaskError(f"{location}: {use.open} is not a file of {use.repository}, part {use.part!r}.")
