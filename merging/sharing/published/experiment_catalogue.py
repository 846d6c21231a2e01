"""The published experiments by their keys: one JSON file each in ``catalogue/``, which refers to the shared parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.base.errors import TaskError
from merging.base.text import did_you_mean
from merging.recipes.papers.published_figures import IN_DOMAIN_TASKS, SOURCES
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
EXPERIMENT_ORDER = (
    "clip-b32-8", "clip-b16-8", "clip-l14-8", "clip-b32-14", "clip-b32-20", "clip-b16-8-lora", "clip-b32-8-drive",
    "smoke",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrintedModels:
    """Accuracies in percent that a source prints for each task, for experiments on other tasks than the papers'."""

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
        """Whether the tasks are the eight of the papers' tables, so that the papers' figures of merged models apply."""
        return tuple(one.column for one in self.tasks) == IN_DOMAIN_TASKS


def list_experiment_keys(folder: Path = CATALOGUE) -> tuple[str, ...]:
    """Keys of all experiments, in the order of the catalogue; others follow in alphabetical order."""
    keys = {path.stem for path in folder.glob("*.json")}
    return (*(key for key in EXPERIMENT_ORDER if key in keys), *sorted(keys - set(EXPERIMENT_ORDER)))


def read_experiment(key: str, folder: Path = CATALOGUE, shared: CatalogueParts | None = None) -> Experiment:
    """An experiment of the catalogue.

    Raises:
        TaskError: there is no such experiment, or its file is invalid; the message names the nearest key, or the field.
    """
    keys = list_experiment_keys(folder)
    if key not in keys:
        keys_text = ", ".join(keys)
        raise TaskError(
            f"There is no published experiment {key[:40]!r}.{did_you_mean(key, keys)} There are: {keys_text}."
        )
    path = folder / f"{key}.json"
    entry, parts = CatalogueFields(read_mapping(path), path.name), shared or read_shared_parts()
    experiment = Experiment(
        key=key,
        title=entry.read_text("title"),
        models={
            source: _find_part(entry, "models", name, parts.models)
            for source, name in entry.read_mapping_field("models").items()
        },
        tasks=tuple(_find_part(entry, "tasks", name, parts.test_sets) for name in entry.read_texts("tasks")),
        outside=tuple(_find_part(entry, "outside", name, parts.test_sets) for name in entry.read_texts("outside")),
        off_by_default=entry.read_texts("off_by_default"),
        rows=tuple(_find_part(entry, "rows", name, parts.rows) for name in entry.read_texts("rows")),
        values=entry.read_mapping_field("values"),
        printed=_parse_printed(entry),
        note=entry.read_text("note", ""),
    )
    entry.refuse_unknown()
    _check_experiment(experiment, entry)
    return experiment


def list_experiments() -> tuple[Experiment, ...]:
    """Every experiment of the catalogue."""
    return tuple(read_experiment(key) for key in list_experiment_keys())


def _find_part(entry: CatalogueFields, field: str, name: Any, parts: Mapping[str, Any]) -> Any:
    if name not in parts:
        raise entry.make_field_error(field, "a key of the shared parts is needed", name, did_you_mean(str(name), parts))
    return parts[name]


def _parse_printed(entry: CatalogueFields) -> PrintedModels | None:
    if not (data := entry.read_mapping_field("printed", {})):
        return None
    inner = CatalogueFields(data, f"{entry.location}, printed")
    printed = PrintedModels(
        inner.read_choice("source", tuple(SOURCES)), inner.read_percents("pretrained"), inner.read_percents("experts")
    )
    inner.refuse_unknown()
    return printed


def _check_experiment(experiment: Experiment, entry: CatalogueFields) -> None:
    """Raise TaskError if the parts of an experiment do not fit together."""
    keys = [one.key for one in experiment.tasks]
    if not experiment.models or not set(experiment.models) <= {HUB, PUBLISHED}:
        raise entry.make_field_error("models", f"models by {HUB} or {PUBLISHED} are needed", list(experiment.models))
    if not keys or not experiment.rows:
        raise entry.make_field_error("tasks", "at least one task and one row are needed", keys)
    for models in experiment.models.values():
        if missing := [key for key in keys if key not in models.experts]:
            raise entry.make_field_error("tasks", f"{models.key} has no expert for {missing[0]!r}", keys)
    if repeated_keys := [one.key for one in experiment.outside if one.key in keys]:
        raise entry.make_field_error("outside", f"{repeated_keys[0]!r} is one of the tasks", repeated_keys)
    outside, rows = {one.key for one in experiment.outside}, {row.key for row in experiment.rows}
    if unknown_sets := [key for key in experiment.off_by_default if key not in outside]:
        raise entry.make_field_error("off_by_default", f"{unknown_sets[0]!r} is not among those outside", unknown_sets)
    if unknown_rows := [key for key in experiment.values if key not in rows]:
        raise entry.make_field_error("values", f"{unknown_rows[0]!r} is not one of the rows", unknown_rows)
    if experiment.printed and (
        set(experiment.printed.experts) != set(keys) or set(experiment.printed.pretrained) != set(keys)
    ):
        raise entry.make_field_error(
            "printed", "accuracies of exactly the tasks are needed", sorted(experiment.printed.experts)
        )
