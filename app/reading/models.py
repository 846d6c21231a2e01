"""Models of one's own, as Models & runs lists them: which folders, what is in them, and what has been looked into."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import data
from app.session import benchmark
from merging import settings
from merging.checkpoints import references as model_references
from merging.errors import MergingError

if TYPE_CHECKING:
    import pandas as pd

    from merging.catalog.data_sets import DataSetLocation
    from merging.catalog.groups import ModelGroup, Seen
    from merging.catalog.recognize import ModelFacts
    from merging.catalog.scan import CatalogEntry, Listing

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
FRESH = 10.0  # seconds for which a listing counts
PATIENCE = 1.5  # seconds of looking into files before the page shows what it knows
KEPT = 3000  # files that are remembered
SMALL = 64_000_000  # bytes up to which a file is read whole on the way
BUNDLED = "bundled"
KINDS = {"adapter": "LoRA adapter", "head": "zero-shot head", "other": "no known family"}


@dataclass(frozen=True)
class Shelf:
    """Everything that is listed; ``left`` files have not been looked into yet. ``data_sets`` are their places."""

    seen: tuple[Seen, ...]
    benchmarks: tuple[CatalogEntry, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...]
    left: int
    data_sets: tuple[str, ...] = ()

    @property
    def readable(self) -> list[Seen]:
        """Models, adapters, heads and what is of no known family."""
        return [seen for seen in self.seen if seen[1].kind != "unreadable"]

    @property
    def unreadable(self) -> list[Seen]:
        """Files that are called like checkpoints and are none that can be read."""
        return [seen for seen in self.seen if seen[1].kind == "unreadable"]

    @property
    def own(self) -> list[Seen]:
        """Those that do not come with the benchmark."""
        return [seen for seen in self.readable if not is_bundled(seen[0])]

    def find(self, reference: str) -> Seen | None:
        """What is known of a reference."""
        return next((seen for seen in self.seen if seen[0].reference == reference), None)


def local() -> bool:
    """Whether only this machine's user reaches the app, so that paths may be typed."""
    return not settings.shared() and str(st.get_option("server.address")) in LOOPBACK


def is_bundled(item: CatalogEntry) -> bool:
    """Whether it comes with the benchmark."""
    return item.place.startswith(f"{BUNDLED}/")


def shelf(typed: str = "") -> Shelf:
    """What the allowed folders, the typed path, uploads and the benchmark hold, as far as it has been looked into."""
    from merging.catalog import uploads

    listings = _listings(tuple(settings.models_folders().items()), typed if local() else "")
    items = [item for listing in listings for item in listing.items]
    items += [] if settings.shared() else uploads.items(data.store().root)
    items = sorted(items, key=lambda item: (item.place.casefold(), item.place))
    items = list({item.reference: item for item in (*items, *_bundled())}.values())
    looks, left = _look_into(items)
    seen = [(item, looks[item.reference]) for item in items if item.reference in looks]
    odd = {item.reference for item, look in seen if not item.sure and look.kind in {"unreadable", "other"}}
    others = [name for listing in listings for name in listing.others]
    others += [item.place for item in items if item.reference in odd]
    sets = tuple(one.place for one in data_sets(typed))
    return Shelf(
        seen=tuple(pair for pair in seen if pair[0].reference not in odd),
        benchmarks=tuple(item for listing in listings for item in listing.benchmarks),
        others=tuple(name for name in others if not any(f"{name}/".startswith(f"{place}/") for place in sets)),
        notes=tuple(note for listing in listings for note in listing.notes),
        left=left,
        data_sets=sets,
    )


@st.cache_data(max_entries=16, ttl=FRESH, show_spinner=False)
def _listings(folders: tuple[tuple[str, Path], ...], typed: str) -> list[Listing]:
    from merging.catalog import scan

    found = [scan.models_folder(name, root) for name, root in folders]
    return [*found, scan.typed(typed)] if typed else found


def listed(typed: str = "") -> tuple[list[CatalogEntry], list[CatalogEntry]]:
    """What may be a model, and benchmark folders, by name only: in the allowed folders and at the typed path."""
    listings = _listings(tuple(settings.models_folders().items()), typed if local() else "")
    items = [item for listing in listings for item in listing.items if not item.problem]
    return items, [item for listing in listings for item in listing.benchmarks]


def data_sets(typed: str = "") -> list[DataSetLocation]:
    """What may be a data set, by name only: in the allowed folders and at the typed path."""
    return _data_sets(tuple(settings.models_folders().items()), typed if local() else "")


@st.cache_data(max_entries=16, ttl=FRESH, show_spinner=False)
def _data_sets(folders: tuple[tuple[str, Path], ...], typed: str) -> list[DataSetLocation]:
    from merging.catalog import data_sets as data_set_catalog

    found = [one for name, root in folders for one in data_set_catalog.in_models_folder(name, root)]
    return [*found, *(data_set_catalog.at_path(typed) if typed else ())]


def look_again() -> None:
    """Callback: list the folders anew."""
    _listings.clear()
    _data_sets.clear()


def _bundled() -> list[CatalogEntry]:
    """The benchmark's models as items."""
    from merging.catalog.scan import CatalogEntry

    try:
        found = data.benchmark()
    except MergingError:
        return []
    named = {"pretrained": found.pretrained, **found.experts}
    named |= {"multitask": found.multitask} if found.multitask else {}
    return [CatalogEntry(ref, model_references.locate(ref), f"{BUNDLED}/{name}") for name, ref in named.items()]


@st.cache_resource(show_spinner=False)
def _remembered() -> dict[tuple[str, tuple[int, ...]], ModelFacts]:
    """What files were when they were looked into, by reference and state; shared by all sessions."""
    return {}


def _look_into(items: Sequence[CatalogEntry]) -> tuple[dict[str, ModelFacts], int]:
    """What items are, by reference, and how many are left for the next drawing of the page."""
    from merging.catalog.recognize import look
    from merging.checkpoints import digests
    from merging.files.paths import state_of

    digests.DIGESTS.load(data.store().root)
    started, remembered, new = time.monotonic(), _remembered(), 0
    found: dict[str, ModelFacts] = {}
    for item in items:
        key = item.reference, state_of(item.path)
        if key not in remembered:
            if new and time.monotonic() - started > PATIENCE:
                continue
            new += 1
            while len(remembered) >= KEPT:
                remembered.pop(next(iter(remembered)), None)
            found[item.reference] = remembered[key] = look(item)
            _read_small(item, found[item.reference])
        else:
            found[item.reference] = remembered[key]
    return found, len(items) - len(found)


def _read_small(item: CatalogEntry, look: ModelFacts) -> None:
    """Compute the digest of a small file at once, so that it is known from now on."""
    from merging.checkpoints import digests
    from merging.formats.opening import open_checkpoint

    if look.kind != "unreadable" and look.nbytes <= SMALL and not digest(look):
        try:
            digests.DIGESTS.keep(data.store().root, open_checkpoint(item.reference, item.name))
        except (MergingError, OSError):
            return  # it has changed since; it will be looked into again


def digest(look: ModelFacts) -> str:
    """The digest of a file, if it has been read."""
    from merging.checkpoints import digests

    return digests.DIGESTS.remembered(look.state)


def groups(found: Shelf) -> list[ModelGroup]:
    """What may be merged together; empty until everything has been looked into."""
    if found.left:
        return []
    key = tuple((item.reference, look.state) for item, look in found.readable)
    return _groups(key, found)


@st.cache_data(max_entries=16, show_spinner=False)
def _groups(key: tuple[object, ...], _found: Shelf) -> list[ModelGroup]:
    from merging.catalog.groups import groups

    own = [seen for seen in _found.readable if not is_bundled(seen[0])]
    return groups(own, _found.benchmarks)


def bases(found: Shelf, known: Sequence[ModelGroup]) -> dict[str, ModelFacts]:
    """Models that others may have been trained from, by their place: those of groups, and the benchmark's."""
    references = {group.pretrained.reference for group in known if group.pretrained}
    return {
        item.place: look
        for item, look in found.readable
        if item.reference in references or item.place == f"{BUNDLED}/pretrained"
    }


def _where(item: CatalogEntry) -> str:
    """The folder of an item as the table has it; the benchmark's name where it comes with one of one's own."""
    own = is_bundled(item) and benchmark.folder() != settings.BUNDLED
    return benchmark.title(benchmark.folder()) if own else item.place.rpartition("/")[0]


def table(found: Shelf, known: Sequence[ModelGroup]) -> pd.DataFrame:
    """One row for each readable file: what it is, and which pretrained model it fits."""
    import pandas as pd

    from merging.catalog.groups import nearest

    below = bases(found, known)
    named = {item.place: item.name for item, _ in found.readable}
    of = {item.reference: group.pretrained for group in known if group.pretrained for item in group.experts.values()}
    called = {item.reference: name for group in known for name, item in group.experts.items()}
    rows = []
    for item, look in [*found.own, *(seen for seen in found.readable if is_bundled(seen[0]))]:
        beside = of.get(item.reference)
        first = {beside.place: below[beside.place]} if beside else {}
        near = nearest(look, first) or nearest(look, below)
        none = "none of these" if look.kind == "model" and not look.problem else ""
        fits = f"{named[near[0]]}, changed by {near[1]:.1%}" if near else none
        if look.kind == "adapter" and beside:
            fits = beside.name
        rows.append(
            {
                "name": called.get(item.reference, item.name),
                "what": KINDS.get(look.kind, "pretrained" if item.place in below else "model"),
                "fits": "is pretrained" if item.place in below else fits,
                "architecture": look.architecture or look.problem,
                "size": look.nbytes,
                "digest": digest(look)[:8] or "not read yet",
                "folder": _where(item),
                "format": look.format,
                "names": look.names,
                "activation": look.activation,
                "dtype": look.dtype,
            }
        )
    return pd.DataFrame(rows)
