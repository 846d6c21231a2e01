"""The user's own models, as Models & runs lists them: the folders, their files, and what each file holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app import permission
from app.reading import data
from app.session import benchmark
from merging.base import settings
from merging.base.errors import MergingError
from merging.base.modes import Act

if TYPE_CHECKING:
    import pandas as pd

    from merging.models.inspection.distance import Distance
    from merging.sharing.catalog.data_sets import DataSetLocation
    from merging.sharing.catalog.groups import ModelGroup, RecognizedEntry
    from merging.sharing.catalog.recognize import ModelFacts
    from merging.sharing.catalog.scan import CatalogEntry, Listing

FRESH = 10.0  # seconds for which a listing counts
PATIENCE = 1.5  # seconds of reading files before the page shows what is known
KEPT = 3000  # files that are remembered
SMALL = 64_000_000  # bytes up to which a file is read whole at once, for its digest
BUNDLED = "bundled"
KINDS = {"adapter": "LoRA adapter", "head": "zero-shot head", "other": "no known family"}


@dataclass(frozen=True)
class Shelf:
    """All listed files; ``left`` of them have not been inspected yet. ``data_sets`` are the places of data sets."""

    seen: tuple[RecognizedEntry, ...]
    benchmarks: tuple[CatalogEntry, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...]
    left: int
    data_sets: tuple[str, ...] = ()

    @property
    def readable(self) -> list[RecognizedEntry]:
        """Models, adapters, heads and checkpoints of no known family."""
        return [seen for seen in self.seen if seen[1].kind != "unreadable"]

    @property
    def unreadable(self) -> list[RecognizedEntry]:
        """Files that are named like checkpoints and cannot be read as one."""
        return [seen for seen in self.seen if seen[1].kind == "unreadable"]

    @property
    def own(self) -> list[RecognizedEntry]:
        """Readable files that do not come with the benchmark."""
        return [seen for seen in self.readable if not is_bundled(seen[0])]

    def find(self, reference: str) -> RecognizedEntry | None:
        """The entry of a reference with its facts, None if it is not listed."""
        return next((seen for seen in self.seen if seen[0].reference == reference), None)


def local() -> bool:
    """Whether only this machine's user reaches the app, so that paths may be typed."""
    return permission.allows(Act.PATH)


def is_bundled(entry: CatalogEntry) -> bool:
    """Whether an entry comes with the benchmark."""
    return entry.place.startswith(f"{BUNDLED}/")


def shelf(typed: str = "") -> Shelf:
    """The inspected files of the allowed folders, the typed path, uploads and the benchmark."""
    from merging.sharing.catalog import uploads

    listings = _listings(tuple(settings.models_folders().items()), typed if local() else "")
    entries = [entry for listing in listings for entry in listing.items]
    entries += [] if permission.has_others() else uploads.items(data.store().root)
    entries = sorted(entries, key=lambda entry: (entry.place.casefold(), entry.place))
    entries = list({entry.reference: entry for entry in (*entries, *_bundled())}.values())
    facts, left = _inspect(entries)
    seen = [(entry, facts[entry.reference]) for entry in entries if entry.reference in facts]
    unknown = {
        entry.reference for entry, file_facts in seen if not entry.sure and file_facts.kind in {"unreadable", "other"}
    }
    others = [name for listing in listings for name in listing.others]
    others += [entry.place for entry in entries if entry.reference in unknown]
    sets = tuple(data_set.place for data_set in data_sets(typed))
    return Shelf(
        seen=tuple(pair for pair in seen if pair[0].reference not in unknown),
        benchmarks=tuple(entry for listing in listings for entry in listing.benchmarks),
        others=tuple(name for name in others if not any(f"{name}/".startswith(f"{place}/") for place in sets)),
        notes=tuple(note for listing in listings for note in listing.notes),
        left=left,
        data_sets=sets,
    )


@st.cache_data(max_entries=16, ttl=FRESH, show_spinner=False)
def _listings(folders: tuple[tuple[str, Path], ...], typed: str) -> list[Listing]:
    from merging.sharing.catalog import scan

    listings = [scan.models_folder(name, root) for name, root in folders]
    return [*listings, scan.typed(typed)] if typed else listings


def listed(typed: str = "") -> tuple[list[CatalogEntry], list[CatalogEntry]]:
    """Possible models and benchmark folders, by name only, in the allowed folders and at the typed path."""
    listings = _listings(tuple(settings.models_folders().items()), typed if local() else "")
    entries = [entry for listing in listings for entry in listing.items if not entry.problem]
    return entries, [entry for listing in listings for entry in listing.benchmarks]


def data_sets(typed: str = "") -> list[DataSetLocation]:
    """Possible data sets, by name only, in the allowed folders and at the typed path."""
    return _data_sets(tuple(settings.models_folders().items()), typed if local() else "")


@st.cache_data(max_entries=16, ttl=FRESH, show_spinner=False)
def _data_sets(folders: tuple[tuple[str, Path], ...], typed: str) -> list[DataSetLocation]:
    from merging.sharing.catalog import data_sets as data_set_catalog

    places = [place for name, root in folders for place in data_set_catalog.in_models_folder(name, root)]
    return [*places, *(data_set_catalog.at_path(typed) if typed else ())]


def look_again() -> None:
    """Callback: list the folders again."""
    _listings.clear()
    _data_sets.clear()


def _bundled() -> list[CatalogEntry]:
    """The benchmark's models as entries."""
    from merging.sharing.catalog.scan import CatalogEntry

    try:
        current = data.benchmark()
    except MergingError:
        return []
    return [CatalogEntry(model.text, model.path, f"{BUNDLED}/{name}") for name, model in current.models().items()]


@st.cache_resource(show_spinner=False)
def _remembered() -> dict[tuple[str, tuple[int, ...]], ModelFacts]:
    """Facts on files by reference and state; shared by all sessions."""
    return {}


def _inspect(entries: Sequence[CatalogEntry]) -> tuple[dict[str, ModelFacts], int]:
    """Facts on entries by reference, and how many entries are left for the next drawing of the page."""
    from merging.base.files.paths import state_of
    from merging.models import digests
    from merging.sharing.catalog.recognize import recognize

    digests.DIGESTS.load(data.store().root)
    started, remembered, new = time.monotonic(), _remembered(), 0
    facts: dict[str, ModelFacts] = {}
    for entry in entries:
        key = entry.reference, state_of(entry.path)
        if key not in remembered:
            if new and time.monotonic() - started > PATIENCE:
                continue
            new += 1
            while len(remembered) >= KEPT:
                remembered.pop(next(iter(remembered)), None)
            facts[entry.reference] = remembered[key] = recognize(entry)
            _read_small(entry, facts[entry.reference])
        else:
            facts[entry.reference] = remembered[key]
    return facts, len(entries) - len(facts)


def _read_small(entry: CatalogEntry, facts: ModelFacts) -> None:
    """Compute the digest of a small file at once, so that it is known from now on."""
    from merging.models import digests

    if facts.kind != "unreadable" and facts.nbytes <= SMALL and not digest(facts):
        try:
            digests.DIGESTS.keep(data.store().root, entry.open())
        except (MergingError, OSError):
            return  # it has changed since; it will be inspected again


def digest(facts: ModelFacts) -> str:
    """The digest of a file, if it has been read."""
    from merging.models import digests

    return digests.DIGESTS.remembered(facts.state)


def groups(files: Shelf) -> list[ModelGroup]:
    """Groups of models that may be merged; empty until every file has been inspected."""
    if files.left:
        return []
    key = tuple((entry.reference, facts.state) for entry, facts in files.readable)
    return _groups(key, files)


@st.cache_data(max_entries=16, show_spinner=False)
def _groups(key: tuple[object, ...], _shelf: Shelf) -> list[ModelGroup]:
    from merging.sharing.catalog.groups import groups

    own = [seen for seen in _shelf.readable if not is_bundled(seen[0])]
    return groups(own, _shelf.benchmarks)


def bases(files: Shelf, model_groups: Sequence[ModelGroup]) -> dict[str, ModelFacts]:
    """Possible pretrained models of others by their place: those of the groups, and the benchmark's."""
    references = {group.pretrained.reference for group in model_groups if group.pretrained}
    return {
        entry.place: facts
        for entry, facts in files.readable
        if entry.reference in references or entry.place == f"{BUNDLED}/pretrained"
    }


def _where(entry: CatalogEntry) -> str:
    """The folder of an entry as the table shows it; the benchmark's name if it comes with the user's own benchmark."""
    own = is_bundled(entry) and benchmark.folder() != settings.BUNDLED
    return benchmark.title(benchmark.folder()) if own else entry.place.rpartition("/")[0]


@st.cache_resource(show_spinner=False)
def _measured() -> dict[tuple[object, ...], Distance]:
    """Distances over every number of small files by their references and states; shared by all sessions."""
    return {}


def _exact(model: RecognizedEntry, base: RecognizedEntry, estimate: Distance, patient: bool) -> Distance:
    """The distance over every number if both files are small; the estimate if not, or if it takes too long now."""
    from merging.sharing.catalog.recognize import exact_distance

    if not estimate.sampled or model[1].nbytes + base[1].nbytes > SMALL:
        return estimate
    key = tuple((entry.reference, facts.state) for entry, facts in (model, base))
    if key not in _measured() and patient:
        try:
            _measured()[key] = exact_distance(model[0], base[0])
        except (MergingError, OSError):
            return estimate  # a file has changed since; it will be inspected again
    return _measured().get(key, estimate)


def _origin(base: str, distance: Distance) -> str:
    """The pretrained model that a file was trained from and its distance; a question if a sample cannot tell."""
    if distance.unchanged:
        return f"{base}, unchanged{' in a sample' if distance.sampled else ''}"
    return f"{base}{'?' if distance.undecided else ''}, changed by {distance.change_text()}"


def table(files: Shelf, model_groups: Sequence[ModelGroup]) -> pd.DataFrame:
    """One row for each readable file: its kind, and which pretrained model it fits."""
    import pandas as pd

    from merging.sharing.catalog.groups import nearest

    pretrained_models = bases(files, model_groups)
    by_place, started = {seen[0].place: seen for seen in files.readable}, time.monotonic()
    pretrained_of = {
        entry.reference: group.pretrained
        for group in model_groups
        if group.pretrained
        for entry in group.experts.values()
    }
    names = {entry.reference: name for group in model_groups for name, entry in group.experts.items()}
    rows = []
    for entry, facts in [*files.own, *(seen for seen in files.readable if is_bundled(seen[0]))]:
        pretrained = pretrained_of.get(entry.reference)
        own_first = {pretrained.place: pretrained_models[pretrained.place]} if pretrained else {}
        closest = nearest(facts, own_first) or nearest(facts, pretrained_models)
        fits = "none of these" if facts.kind == "model" and not facts.problem else ""
        if entry.place in pretrained_models:
            fits = "is pretrained"
        elif closest:
            base, patient = by_place[closest[0]], time.monotonic() - started < PATIENCE
            distance = _exact((entry, facts), base, closest[1], patient)
            fits = fits if distance.unrelated else _origin(base[0].name, distance)
        if facts.kind == "adapter" and pretrained:
            fits = pretrained.name
        rows.append(
            {
                "name": names.get(entry.reference, entry.name),
                "what": KINDS.get(facts.kind, "pretrained" if entry.place in pretrained_models else "model"),
                "fits": fits,
                "architecture": facts.architecture or facts.problem,
                "size": facts.nbytes,
                "digest": digest(facts)[:8] or "not read yet",
                "folder": _where(entry),
                "format": facts.format,
                "names": facts.names,
                "activation": facts.activation,
                "dtype": facts.dtype,
            }
        )
    return pd.DataFrame(rows)
