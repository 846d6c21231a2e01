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

CACHE_SECONDS = 10.0  # seconds for which a listing is valid
MOST_SECONDS = 1.5  # seconds of reading files before the page shows the files read so far
CACHED = 3000  # files whose facts are cached
SMALL = 64_000_000  # bytes up to which a file is read whole at once, for its digest
BUNDLED = "bundled"
KINDS = {"adapter": "LoRA adapter", "head": "zero-shot head", "other": "no known family"}


@dataclass(frozen=True)
class ListedModels:
    """All listed files; ``not_inspected`` of them have not been inspected yet.

    ``data_sets`` are references of data sets.
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
        return [seen for seen in self.inspected if seen[1].kind != "unreadable"]

    @property
    def unreadable(self) -> list[RecognizedEntry]:
        """Files with names of checkpoints that cannot be read as one."""
        return [seen for seen in self.inspected if seen[1].kind == "unreadable"]

    @property
    def own_files(self) -> list[RecognizedEntry]:
        """Readable files that do not come with the benchmark."""
        return [seen for seen in self.readable if not is_bundled(seen[0])]

    def find_file(self, reference: str) -> RecognizedEntry | None:
        """The entry of a reference with its facts; None if it is not listed."""
        return next((seen for seen in self.inspected if seen[0].reference == reference), None)


def is_local() -> bool:
    """Whether only this machine's user reaches the app, so that paths may be typed."""
    return permissions.is_allowed(VisitorAction.PATH)


def is_bundled(entry: CatalogEntry) -> bool:
    """Whether an entry comes with the benchmark."""
    return entry.listed_path.startswith(f"{BUNDLED}/")


def list_models(typed: str = "") -> ListedModels:
    """The inspected files of the allowed folders, the typed path, uploads and the benchmark."""
    from merging.sharing.catalog import uploaded_models

    listings = _listings(tuple(settings.models_folders().items()), typed if is_local() else "")
    entries = [entry for listing in listings for entry in listing.items]
    entries += [] if permissions.has_others() else uploaded_models.list_uploads(page_data.store().root)
    entries = sorted(entries, key=lambda entry: (entry.listed_path.casefold(), entry.listed_path))
    entries = list({entry.reference: entry for entry in (*entries, *_bundled_entries())}.values())
    facts, left = _inspect(entries)
    seen = [(entry, facts[entry.reference]) for entry in entries if entry.reference in facts]
    unknown = {
        entry.reference
        for entry, file_facts in seen
        if not entry.has_model_name and file_facts.kind in {"unreadable", "other"}
    }
    others = [name for listing in listings for name in listing.others]
    others += [entry.listed_path for entry in entries if entry.reference in unknown]
    sets = tuple(data_set.listed_path for data_set in list_data_sets(typed))
    return ListedModels(
        inspected=tuple(pair for pair in seen if pair[0].reference not in unknown),
        benchmarks=tuple(entry for listing in listings for entry in listing.benchmarks),
        others=tuple(name for name in others if not any(f"{name}/".startswith(f"{folder}/") for folder in sets)),
        notes=tuple(note for listing in listings for note in listing.notes),
        not_inspected=left,
        data_sets=sets,
    )


@st.cache_data(max_entries=16, ttl=CACHE_SECONDS, show_spinner=False)
def _listings(folders: tuple[tuple[str, Path], ...], typed: str) -> list[Listing]:
    from merging.sharing.catalog import model_listing

    listings = [model_listing.list_models_folder(name, root) for name, root in folders]
    return [*listings, model_listing.list_typed_path(typed)] if typed else listings


def list_names(typed: str = "") -> tuple[list[CatalogEntry], list[CatalogEntry]]:
    """Possible models and benchmark folders, by name only, in the allowed folders and at the typed path."""
    listings = _listings(tuple(settings.models_folders().items()), typed if is_local() else "")
    entries = [entry for listing in listings for entry in listing.items if not entry.problem]
    return entries, [entry for listing in listings for entry in listing.benchmarks]


def list_data_sets(typed: str = "") -> list[DataSetLocation]:
    """Possible data sets, by name only, in the allowed folders and at the typed path."""
    return _data_sets(tuple(settings.models_folders().items()), typed if is_local() else "")


@st.cache_data(max_entries=16, ttl=CACHE_SECONDS, show_spinner=False)
def _data_sets(folders: tuple[tuple[str, Path], ...], typed: str) -> list[DataSetLocation]:
    from merging.sharing.catalog import data_set_catalog

    locations = [location for name, root in folders for location in data_set_catalog.list_in_models_folder(name, root)]
    return [*locations, *(data_set_catalog.list_at_path(typed) if typed else ())]


def list_again() -> None:
    """Callback: list the folders again."""
    _listings.clear()
    _data_sets.clear()


def _bundled_entries() -> list[CatalogEntry]:
    """The benchmark's models as entries."""
    from merging.sharing.catalog.model_listing import CatalogEntry

    try:
        current = page_data.benchmark()
    except MergingError:
        return []
    return [CatalogEntry(model.text, model.path, f"{BUNDLED}/{name}") for name, model in current.models().items()]


@st.cache_resource(show_spinner=False)
def _known_facts() -> dict[tuple[str, tuple[int, ...]], ModelFacts]:
    """Facts on files by reference and state; shared by all sessions."""
    return {}


def _inspect(entries: Sequence[CatalogEntry]) -> tuple[dict[str, ModelFacts], int]:
    """Facts on entries by reference, and the number of entries that remain for the next drawing of the page."""
    from merging.base.files.paths import path_state
    from merging.models import digest_cache
    from merging.sharing.catalog.model_recognition import recognize_model

    digest_cache.DIGESTS.load(page_data.store().root)
    started, remembered, new = time.monotonic(), _known_facts(), 0
    facts: dict[str, ModelFacts] = {}
    for entry in entries:
        key = entry.reference, path_state(entry.path)
        if key not in remembered:
            if new and time.monotonic() - started > MOST_SECONDS:
                continue
            new += 1
            while len(remembered) >= CACHED:
                remembered.pop(next(iter(remembered)), None)
            facts[entry.reference] = remembered[key] = recognize_model(entry)
            _read_small(entry, facts[entry.reference])
        else:
            facts[entry.reference] = remembered[key]
    return facts, len(entries) - len(facts)


def _read_small(entry: CatalogEntry, facts: ModelFacts) -> None:
    """Compute the digest of a small file at once, so that it is known from now on."""
    from merging.models import digest_cache

    if facts.kind != "unreadable" and facts.nbytes <= SMALL and not file_digest(facts):
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
    return _groups(key, files)


@st.cache_data(max_entries=16, show_spinner=False)
def _groups(key: tuple[object, ...], _shelf: ListedModels) -> list[ModelGroup]:
    from merging.sharing.catalog.model_groups import find_groups

    own = [seen for seen in _shelf.readable if not is_bundled(seen[0])]
    return find_groups(own, _shelf.benchmarks)


def base_models(files: ListedModels, model_groups: Sequence[ModelGroup]) -> dict[str, ModelFacts]:
    """Possible pretrained models by reference: those of the groups, and the benchmark's."""
    references = {group.pretrained.reference for group in model_groups if group.pretrained}
    return {
        entry.listed_path: facts
        for entry, facts in files.readable
        if entry.reference in references or entry.listed_path == f"{BUNDLED}/pretrained"
    }


def _folder_in_words(entry: CatalogEntry) -> str:
    """The folder of an entry as the table shows it; the benchmark's name for models of the user's own benchmark."""
    own = is_bundled(entry) and benchmark_choice.benchmark_folder() != settings.BUNDLED
    return (
        benchmark_choice.benchmark_title(benchmark_choice.benchmark_folder())
        if own
        else entry.listed_path.rpartition("/")[0]
    )


@st.cache_resource(show_spinner=False)
def _known_distances() -> dict[tuple[object, ...], Distance]:
    """Distances over every number of small files by their references and states; shared by all sessions."""
    return {}


def _best_distance(model: RecognizedEntry, base: RecognizedEntry, estimate: Distance, patient: bool) -> Distance:
    """The exact distance if both files are small and ``patient`` allows to compute it; otherwise the estimate."""
    from merging.sharing.catalog.model_recognition import measure_exact_distance

    if not estimate.sampled or model[1].nbytes + base[1].nbytes > SMALL:
        return estimate
    key = tuple((entry.reference, facts.state) for entry, facts in (model, base))
    if key not in _known_distances() and patient:
        try:
            _known_distances()[key] = measure_exact_distance(model[0], base[0])
        except (MergingError, OSError):
            return estimate  # a file has changed since; it will be inspected again
    return _known_distances().get(key, estimate)


def _origin(base: str, distance: Distance) -> str:
    """The pretrained model that a file was trained from, and its distance; with "?" if the sample is undecided."""
    if distance.unchanged:
        return f"{base}, unchanged{' in a sample' if distance.sampled else ''}"
    return f"{base}{'?' if distance.undecided else ''}, changed by {distance.change_text()}"


def models_table(files: ListedModels, model_groups: Sequence[ModelGroup]) -> pd.DataFrame:
    """One row for each readable file: its kind, and the pretrained model that it fits."""
    import pandas as pd

    from merging.sharing.catalog.model_groups import find_nearest_base

    pretrained_models = base_models(files, model_groups)
    by_path, started = {seen[0].listed_path: seen for seen in files.readable}, time.monotonic()
    pretrained_of = {
        entry.reference: group.pretrained
        for group in model_groups
        if group.pretrained
        for entry in group.experts.values()
    }
    names = {entry.reference: name for group in model_groups for name, entry in group.experts.items()}
    rows = []
    for entry, facts in [*files.own_files, *(seen for seen in files.readable if is_bundled(seen[0]))]:
        pretrained = pretrained_of.get(entry.reference)
        own_first = {pretrained.listed_path: pretrained_models[pretrained.listed_path]} if pretrained else {}
        closest = find_nearest_base(facts, own_first) or find_nearest_base(facts, pretrained_models)
        fits = "none of these" if facts.kind == "model" and not facts.problem else ""
        if entry.listed_path in pretrained_models:
            fits = "is pretrained"
        elif closest:
            base, patient = by_path[closest[0]], time.monotonic() - started < MOST_SECONDS
            distance = _best_distance((entry, facts), base, closest[1], patient)
            fits = fits if distance.unrelated else _origin(base[0].name, distance)
        if facts.kind == "adapter" and pretrained:
            fits = pretrained.name
        rows.append(
            {
                "name": names.get(entry.reference, entry.name),
                "what": KINDS.get(facts.kind, "pretrained" if entry.listed_path in pretrained_models else "model"),
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
