"""The user's own models, as Models & runs lists them: the folders, their files, and the contents of each file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app import permissions
from app.reading import page_data
from app.session import benchmark_choice
from merging.base import settings
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction

if TYPE_CHECKING:
    import pandas as pd

    from merging.models.inspection.distance import Distance
    from merging.sharing.catalog.data_set_catalog import DataSetLocation
    from merging.sharing.catalog.model_groups import ModelGroup, RecognizedEntry
    from merging.sharing.catalog.model_listing import CatalogEntry, Listing
    from merging.sharing.catalog.model_recognition import ModelFacts

CACHE_SECONDS = 10.0  # for which a listing is valid
MAX_READ_SECONDS = 1.5  # reading time before the page shows the files read so far
MAX_CACHED_FILES = 3000  # files whose facts are cached
MAX_SMALL_BYTES = 64_000_000  # size up to which a file is read at once, for its digest
BUNDLED_FOLDER = "bundled"
KIND_NAMES = {"adapter": "LoRA adapter", "head": "zero-shot head", "other": "no known family"}


@dataclass(frozen=True)
class ListedModels:
    """All listed files; ``not_inspected`` of them have not been inspected yet.

    A ``RecognizedEntry`` is a pair: a listed file, and the facts that inspecting it gave. ``others`` are paths of files
    that are no checkpoints, ``notes`` sentences on problems of the listing, ``data_sets`` paths of data
    sets.
    """

    inspected: tuple[RecognizedEntry, ...]
    benchmarks: tuple[CatalogEntry, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...]
    not_inspected: int
    data_sets: tuple[str, ...] = ()

    @property
    def readable(self) -> list[RecognizedEntry]:
        """Models, adapters, heads and checkpoints of no known family."""
        return [pair for pair in self.inspected if pair[1].kind != "unreadable"]

    @property
    def unreadable(self) -> list[RecognizedEntry]:
        """Files that are named like checkpoints but cannot be read as checkpoints."""
        return [pair for pair in self.inspected if pair[1].kind == "unreadable"]

    @property
    def own_files(self) -> list[RecognizedEntry]:
        """Readable files that do not come with the benchmark."""
        return [pair for pair in self.readable if not is_bundled(pair[0])]


def is_local() -> bool:
    """Whether only this machine's user reaches the app, so that paths may be typed."""
    return permissions.is_allowed(VisitorAction.PATH)


def is_bundled(entry: CatalogEntry) -> bool:
    """Whether an entry comes with the benchmark."""
    return entry.listed_path.startswith(f"{BUNDLED_FOLDER}/")


def list_models(typed_path: str = "") -> ListedModels:
    """The inspected files of the allowed folders, the typed path, uploads and the benchmark."""
    from merging.sharing.catalog import uploaded_models

    listings = _list_folders_cached(tuple(settings.models_folders().items()), typed_path if is_local() else "")
    entries = [entry for listing in listings for entry in listing.items]
    entries += [] if permissions.has_others() else uploaded_models.list_uploads(page_data.store().root)
    entries = sorted(entries, key=lambda entry: (entry.listed_path.casefold(), entry.listed_path))
    entries = list({entry.reference: entry for entry in (*entries, *_list_bundled_entries())}.values())
    facts, not_inspected = _inspect(entries)
    entries_with_facts = [(entry, facts[entry.reference]) for entry in entries if entry.reference in facts]
    unknown = {
        entry.reference
        for entry, file_facts in entries_with_facts
        if not entry.has_model_name and file_facts.kind in {"unreadable", "other"}
    }
    others = [name for listing in listings for name in listing.other_files]
    others += [entry.listed_path for entry in entries if entry.reference in unknown]
    data_sets = tuple(data_set.listed_path for data_set in list_data_sets(typed_path))
    return ListedModels(
        inspected=tuple(pair for pair in entries_with_facts if pair[0].reference not in unknown),
        benchmarks=tuple(entry for listing in listings for entry in listing.benchmarks),
        others=tuple(name for name in others if not any(f"{name}/".startswith(f"{folder}/") for folder in data_sets)),
        notes=tuple(note for listing in listings for note in listing.notes),
        not_inspected=not_inspected,
        data_sets=data_sets,
    )


@st.cache_data(max_entries=16, ttl=CACHE_SECONDS, show_spinner=False)
def _list_folders_cached(folders: tuple[tuple[str, Path], ...], typed_path: str) -> list[Listing]:
    from merging.sharing.catalog import model_listing

    listings = [model_listing.list_models_folder(name, root) for name, root in folders]
    return [*listings, model_listing.list_typed_path(typed_path)] if typed_path else listings


def list_names(typed_path: str = "") -> tuple[list[CatalogEntry], list[CatalogEntry]]:
    """Possible models and benchmark folders, by name only, in the allowed folders and at the typed path."""
    listings = _list_folders_cached(tuple(settings.models_folders().items()), typed_path if is_local() else "")
    entries = [entry for listing in listings for entry in listing.items if not entry.problem]
    return entries, [entry for listing in listings for entry in listing.benchmarks]


def list_data_sets(typed_path: str = "") -> list[DataSetLocation]:
    """Possible data sets, by name only, in the allowed folders and at the typed path."""
    return _list_data_sets_cached(tuple(settings.models_folders().items()), typed_path if is_local() else "")


@st.cache_data(max_entries=16, ttl=CACHE_SECONDS, show_spinner=False)
def _list_data_sets_cached(folders: tuple[tuple[str, Path], ...], typed_path: str) -> list[DataSetLocation]:
    from merging.sharing.catalog import data_set_catalog

    locations = [location for name, root in folders for location in data_set_catalog.list_in_models_folder(name, root)]
    return [*locations, *(data_set_catalog.list_at_path(typed_path) if typed_path else ())]


def list_again() -> None:
    """Callback: list the folders again."""
    _list_folders_cached.clear()
    _list_data_sets_cached.clear()


def _list_bundled_entries() -> list[CatalogEntry]:
    """The benchmark's models as entries."""
    from merging.sharing.catalog.model_listing import CatalogEntry

    try:
        current = page_data.benchmark()
    except MergingError:
        return []
    return [
        CatalogEntry(model.text, model.path, f"{BUNDLED_FOLDER}/{name}") for name, model in current.models().items()
    ]


@st.cache_resource(show_spinner=False)
def _known_facts() -> dict[tuple[str, tuple[int, ...]], ModelFacts]:
    """Facts on files by reference and state; shared by all sessions."""
    return {}


def _inspect(entries: Sequence[CatalogEntry]) -> tuple[dict[str, ModelFacts], int]:
    """Facts on entries by reference, and the number of entries that remain for the next drawing of the page."""
    from merging.base.files.paths import path_fingerprint
    from merging.models import digest_cache
    from merging.sharing.catalog.model_recognition import recognize_model

    digest_cache.DIGESTS.load(page_data.store().root)
    started, known_facts, new_count = time.monotonic(), _known_facts(), 0
    facts: dict[str, ModelFacts] = {}
    for entry in entries:
        key = entry.reference, path_fingerprint(entry.path)
        if key not in known_facts:
            if new_count and time.monotonic() - started > MAX_READ_SECONDS:
                continue
            new_count += 1
            while len(known_facts) >= MAX_CACHED_FILES:
                known_facts.pop(next(iter(known_facts)), None)
            facts[entry.reference] = known_facts[key] = recognize_model(entry)
            _store_small_digest(entry, facts[entry.reference])
        else:
            facts[entry.reference] = known_facts[key]
    return facts, len(entries) - len(facts)


def _store_small_digest(entry: CatalogEntry, facts: ModelFacts) -> None:
    """Compute the digest of a small file at once, so that it is known from now on."""
    from merging.models import digest_cache

    if facts.kind != "unreadable" and facts.nbytes <= MAX_SMALL_BYTES and not file_digest(facts):
        try:
            digest_cache.DIGESTS.store(page_data.store().root, entry.open())
        except (MergingError, OSError):
            return  # it has changed since; it will be inspected again


def file_digest(facts: ModelFacts) -> str:
    """The digest of a file, if it has been read."""
    from merging.models import digest_cache

    return digest_cache.DIGESTS.find(facts.state)


def group_models(files: ListedModels) -> list[ModelGroup]:
    """Groups of models that may be merged; empty until every file has been inspected."""
    if files.not_inspected:
        return []
    key = tuple((entry.reference, facts.state) for entry, facts in files.readable)
    return _group_models_cached(key, files)


@st.cache_data(max_entries=16, show_spinner=False)
def _group_models_cached(key: tuple[object, ...], _files: ListedModels) -> list[ModelGroup]:
    from merging.sharing.catalog.model_groups import find_groups

    own_files = [pair for pair in _files.readable if not is_bundled(pair[0])]
    return find_groups(own_files, _files.benchmarks)


def base_models(files: ListedModels, model_groups: Sequence[ModelGroup]) -> dict[str, ModelFacts]:
    """Possible pretrained models by reference: those of the groups, and the benchmark's."""
    references = {group.pretrained.reference for group in model_groups if group.pretrained}
    return {
        entry.listed_path: facts
        for entry, facts in files.readable
        if entry.reference in references or entry.listed_path == f"{BUNDLED_FOLDER}/pretrained"
    }


def _folder_in_words(entry: CatalogEntry) -> str:
    """The folder of an entry as the table shows it; the benchmark's name for models of the user's own benchmark."""
    if is_bundled(entry) and not benchmark_choice.is_bundled():
        return benchmark_choice.benchmark_title(benchmark_choice.benchmark_folder())
    return entry.listed_path.rpartition("/")[0]


@st.cache_resource(show_spinner=False)
def _known_distances() -> dict[tuple[object, ...], Distance]:
    """Distances over every number of small files by their references and states; shared by all sessions."""
    return {}


def _find_best_distance(
    model: RecognizedEntry, base: RecognizedEntry, estimate: Distance, may_measure: bool
) -> Distance:
    """The exact distance if both files are small and ``may_measure`` is True; otherwise the estimate."""
    from merging.sharing.catalog.model_recognition import measure_exact_distance

    if not estimate.sampled or model[1].nbytes + base[1].nbytes > MAX_SMALL_BYTES:
        return estimate
    key = tuple((entry.reference, facts.state) for entry, facts in (model, base))
    if key not in _known_distances() and may_measure:
        try:
            _known_distances()[key] = measure_exact_distance(model[0], base[0])
        except (MergingError, OSError):
            return estimate  # a file has changed since; it will be inspected again
    return _known_distances().get(key, estimate)


def _origin_in_words(base: str, distance: Distance) -> str:
    """The pretrained model that a file was trained from, and its distance; with "?" if the sample is undecided."""
    if distance.unchanged:
        return f"{base}, unchanged{' in a sample' if distance.sampled else ''}"
    return f"{base}{'?' if distance.undecided else ''}, changed by {distance.change_text()}"


def models_table(files: ListedModels, model_groups: Sequence[ModelGroup]) -> pd.DataFrame:
    """One row for each readable file: its kind, and the pretrained model that it fits."""
    import pandas as pd

    from merging.sharing.catalog.model_groups import find_nearest_base

    pretrained_models = base_models(files, model_groups)
    by_path, started = {pair[0].listed_path: pair for pair in files.readable}, time.monotonic()
    pretrained_of = {
        entry.reference: group.pretrained
        for group in model_groups
        if group.pretrained
        for entry in group.experts.values()
    }
    names = {entry.reference: name for group in model_groups for name, entry in group.experts.items()}
    rows = []
    for entry, facts in [*files.own_files, *(pair for pair in files.readable if is_bundled(pair[0]))]:
        pretrained = pretrained_of.get(entry.reference)
        group_base = {pretrained.listed_path: pretrained_models[pretrained.listed_path]} if pretrained else {}
        nearest = find_nearest_base(facts, group_base) or find_nearest_base(facts, pretrained_models)
        fits = "none of these" if facts.kind == "model" and not facts.problem else ""
        if entry.listed_path in pretrained_models:
            fits = "is pretrained"
        elif nearest:
            base, may_measure = by_path[nearest[0]], time.monotonic() - started < MAX_READ_SECONDS
            distance = _find_best_distance((entry, facts), base, nearest[1], may_measure)
            fits = fits if distance.unrelated else _origin_in_words(base[0].name, distance)
        if facts.kind == "adapter" and pretrained:
            fits = pretrained.name
        rows.append(
            {
                "name": names.get(entry.reference, entry.name),
                "what": KIND_NAMES.get(facts.kind, "pretrained" if entry.listed_path in pretrained_models else "model"),
                "fits": fits,
                "architecture": facts.architecture or facts.problem,
                "size": facts.nbytes,
                "digest": file_digest(facts)[:8] or "not read yet",
                "folder": _folder_in_words(entry),
                "format": facts.format,
                "names": facts.names,
                "activation": facts.activation,
                "dtype": facts.dtype,
            }
        )
    return pd.DataFrame(rows)
