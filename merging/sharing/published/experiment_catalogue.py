"""The published experiments by their keys: one JSON file each in ``catalogue/``, which refers to the shared parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.base.errors import TaskError
from merging.base.text import did_you_mean
from merging.recipes.papers.published_figures import SOURCES, TASKS
from merging.sharing.published.catalogue_fields import CatalogueFields, read_mapping
from merging.sharing.published.catalogue_parts import (
    CATALOGUE,
    CatalogueParts,
    ListedRow,
    PublishedModels,
    PublishedSet,
    read_shared_parts,
)

HUB, PUBLISHED = "hub", "published"  # sources of experts: the Hub, or the papers
ORDER = (
    "clip-b32-8", "clip-b16-8", "clip-l14-8", "clip-b32-14", "clip-b32-20", "clip-b16-8-lora", "clip-b32-8-drive",
    "smoke",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrintedModels:
    """Accuracies in percent that a source prints for each task, if its table is not that of the papers' eight tasks."""

    source: str
    pretrained: Mapping[str, float]
    experts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A published experiment. ``models`` are its experts by HUB and PUBLISHED; the first are the default.

    ``tasks`` are the test sets in domain, each with an expert, ``outside`` those out of domain, some of which are
    ``off_by_default``. ``values`` are parameters by row, which replace the row's.
    """

    key: str
    title: str
    models: Mapping[str, PublishedModels]
    tasks: tuple[PublishedSet, ...]
    outside: tuple[PublishedSet, ...]
    off_by_default: tuple[str, ...]
    rows: tuple[ListedRow, ...]
    values: Mapping[str, Mapping[str, Any]]
    printed: PrintedModels | None
    note: str = ""

    @property
    def is_papers_eight(self) -> bool:
        """Whether its tasks are the eight of the papers' tables, so that the papers' figures of merged models apply."""
        return tuple(one.column for one in self.tasks) == TASKS


def list_experiment_keys(folder: Path = CATALOGUE) -> tuple[str, ...]:
    """Keys of all experiments, in the order of the catalogue; others follow in alphabetical order."""
    keys = {path.stem for path in folder.glob("*.json")}
    return (*(key for key in ORDER if key in keys), *sorted(keys - set(ORDER)))


def read_experiment(key: str, folder: Path = CATALOGUE, shared: CatalogueParts | None = None) -> Experiment:
    """An experiment of the catalogue.

    Raises:
        TaskError: there is none of that key (the nearest is named), or its file is wrong (file and field are named).
    """
    keys = list_experiment_keys(folder)
    if key not in keys:
        listed = ", ".join(keys)
        raise TaskError(f"There is no published experiment {key[:40]!r}.{did_you_mean(key, keys)} There are: {listed}.")
    path = folder / f"{key}.json"
    entry, known = CatalogueFields(read_mapping(path), path.name), shared or read_shared_parts()
    read = Experiment(
        key=key,
        title=entry.text("title"),
        models={whose: _named(entry, "models", name, known.models) for whose, name in entry.mapping("models").items()},
        tasks=tuple(_named(entry, "tasks", name, known.test_sets) for name in entry.texts("tasks")),
        outside=tuple(_named(entry, "outside", name, known.test_sets) for name in entry.texts("outside")),
        off_by_default=entry.texts("off_by_default"),
        rows=tuple(_named(entry, "rows", name, known.rows) for name in entry.texts("rows")),
        values=entry.mapping("values"),
        printed=_printed(entry),
        note=entry.text("note", ""),
    )
    entry.refuse_unknown()
    _check_experiment(read, entry)
    return read


def list_experiments() -> tuple[Experiment, ...]:
    """Every experiment of the catalogue."""
    return tuple(read_experiment(key) for key in list_experiment_keys())


def _named(entry: CatalogueFields, field: str, name: Any, among: Mapping[str, Any]) -> Any:
    if name not in among:
        raise entry.field_error(field, "a key of the shared parts is needed", name, did_you_mean(str(name), among))
    return among[name]


def _printed(entry: CatalogueFields) -> PrintedModels | None:
    if not (data := entry.mapping("printed", {})):
        return None
    inner = CatalogueFields(data, f"{entry.where}, printed")
    printed = PrintedModels(
        inner.one_of("source", tuple(SOURCES)), inner.percents("pretrained"), inner.percents("experts")
    )
    inner.refuse_unknown()
    return printed


def _check_experiment(read: Experiment, entry: CatalogueFields) -> None:
    """Raise TaskError if the parts of an experiment do not fit together."""
    keys = [one.key for one in read.tasks]
    if not read.models or not set(read.models) <= {HUB, PUBLISHED}:
        raise entry.field_error("models", f"models by {HUB} or {PUBLISHED} are needed", list(read.models))
    if not keys or not read.rows:
        raise entry.field_error("tasks", "at least one task and one row are needed", keys)
    for models in read.models.values():
        if missing := [key for key in keys if key not in models.experts]:
            raise entry.field_error("tasks", f"{models.key} has no expert for {missing[0]!r}", keys)
    if both := [one.key for one in read.outside if one.key in keys]:
        raise entry.field_error("outside", f"{both[0]!r} is one of the tasks", both)
    outside, rows = {one.key for one in read.outside}, {row.key for row in read.rows}
    if strange := [key for key in read.off_by_default if key not in outside]:
        raise entry.field_error("off_by_default", f"{strange[0]!r} is not among those outside", strange)
    if odd := [key for key in read.values if key not in rows]:
        raise entry.field_error("values", f"{odd[0]!r} is none of the rows", odd)
    if read.printed and (set(read.printed.experts) != set(keys) or set(read.printed.pretrained) != set(keys)):
        raise entry.field_error("printed", "accuracies of exactly the tasks are needed", sorted(read.printed.experts))
