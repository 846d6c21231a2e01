"""The plan of an experiment before anything is fetched: files, bytes, licenses, disk, and time."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from merging.base.files.disk import free_bytes
from merging.base.text import printable
from merging.models.hub import blob_cache, client
from merging.recipes.papers.published_figures import B16, B32, H14, L14
from merging.sharing.published.catalogue_parts import (
    ESTIMATED_SIZE,
    MODEL,
    ListedPart,
    ListedRepository,
    read_shared_parts,
)
from merging.sharing.published.choice import (
    Choice,
    find_models,
    list_left_out_rows,
    list_needed_parts,
    list_test_sets,
    uses_own_folder,
)
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.published_benchmark import find_models_in_folder
from merging.sharing.published.rates import FETCHING_RATE, encoding_rate_name, merging_rate_name
from merging.sharing.published.repository_lock import Lock, find_repository, license_text, list_files
from merging.sharing.published.row_variants import RowVariant, list_variants

DEFAULT_RATE = 10e6  # bytes per second, until a download was measured
# Images per second and core that ViT-B/32 encodes in float32; other towers are scaled by their work.
ENCODING_RATE = 9.0
DECODING_RATE = 200.0  # decoded images per second and core, which limits an accelerator
RELATIVE_WORK = {B32: 1.0, B16: 3.9, L14: 18.0, H14: 38.0}  # multiply-adds per image, relative to ViT-B/32
HEAVY_WORK = 10.0  # towers with at least this relative work need an accelerator
MERGING_RATE = 100e6  # bytes of models per second that a merge reads, until merges were measured
FACTORIZATION_FACTOR = 5.0  # approximate factor on the time of a row that factors matrices
NO_RATES: Mapping[str, float] = MappingProxyType({})
UNPINNED_TEXT = "not in the catalogue; pinned at the first fetch"


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A repository's part: its purpose, files, ``nbytes`` (None: unknown), and ``local_bytes`` of them in the cache."""

    repository: str
    kind: str
    purpose: str
    files: tuple[str, ...]
    nbytes: int | None
    is_exact: bool
    local_bytes: int
    is_complete: bool
    license: str
    gated: bool
    revision: str | None
    note: str = ""

    @property
    def missing_bytes(self) -> int:
        """Bytes to fetch, as far as they are known."""
        return max(0, (self.nbytes or 0) - self.local_bytes)


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model in a folder of the user, which is not fetched."""

    purpose: str
    folder: str
    file: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """A plan. The files are stored in ``cache_folder``; ``rate`` is in bytes per second.

    ``images`` is the number of images of all test sets, ``passes`` the number of forward passes of an image through a
    model. ``compute_seconds`` includes merging. ``rate_measured`` and ``speed_measured`` are whether the rates of
    downloads and of encoding were measured on this machine. ``heavy`` is whether the tower needs an accelerator and
    ``device`` is a CPU. ``own_models`` are in a folder of the user.
    """

    experiment: str
    title: str
    host: str
    parts: tuple[PlannedPart, ...]
    cache_folder: Path
    free_bytes: int
    rate: float
    rate_measured: bool
    images: int
    passes: int
    compute_seconds: float
    speed_measured: bool
    device: str
    heavy: bool
    rows: tuple[str, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    own_models: tuple[OwnModel, ...] = ()

    @property
    def bytes_to_fetch(self) -> int:
        """Bytes to fetch, as far as they are known."""
        return sum(part.missing_bytes for part in self.parts)

    @property
    def local_bytes(self) -> int:
        """Bytes that are in the cache already."""
        return sum(part.local_bytes for part in self.parts)

    @property
    def has_exact_sizes(self) -> bool:
        """Whether the bytes to fetch are exact."""
        return all(part.is_exact or part.is_complete for part in self.parts)

    @property
    def is_complete(self) -> bool:
        """Whether nothing has to be fetched."""
        return all(part.is_complete for part in self.parts)

    @property
    def fetch_seconds(self) -> float:
        """Seconds that fetching takes at the rate."""
        return self.bytes_to_fetch / self.rate


def make_plan(
    experiment: Experiment,
    choice: Choice,
    lock: Lock,
    *,
    separate_cache: Path | None = None,
    rates: Mapping[str, float] = NO_RATES,
    device: str = "cpu",
    cores: int = 0,
) -> FetchPlan:
    """The plan of a choice, without the network. ``rates`` were measured; ``cores`` 0 means those of this machine.

    Raises:
        HubError: a setting forbids the cache, or a pinned repository or the folder of experts lacks a file.
    """
    listed_repositories = read_shared_parts().repositories
    planned_parts = tuple(
        _plan_part(listed_repositories[use.repository], use.part, purpose, lock, separate_cache)
        for use, purpose in list_needed_parts(experiment, choice).items()
    )
    models, variants = find_models(experiment, choice), list_variants(experiment, choice)
    cache_folder = blob_cache.cache_folder() if separate_cache is None else separate_cache
    images, passes = count_passes(experiment, choice, len(variants))
    rate, speed = rates.get(FETCHING_RATE), rates.get(encoding_rate_name(models.tower, device))
    encoding_seconds = (
        passes / speed
        if speed
        else estimate_encoding_seconds(models.tower, passes, device, cores or os.cpu_count() or 1)
    )
    own_models = _find_own_models(experiment, choice) if uses_own_folder(experiment, choice) else ()
    sizes = [one.nbytes for one in own_models] or [part.nbytes or 0 for part in planned_parts if part.kind == MODEL]
    notes = [one.note for one in (experiment, models) if one.note]
    notes += [f"{one.title}: {one.note}" for one in list_test_sets(experiment, choice) if one.note]
    return FetchPlan(
        experiment=experiment.key,
        title=experiment.title,
        host=client.host(),
        parts=planned_parts,
        cache_folder=cache_folder,
        free_bytes=free_bytes(cache_folder),
        rate=rate or DEFAULT_RATE,
        rate_measured=rate is not None,
        images=images,
        passes=passes,
        compute_seconds=encoding_seconds
        + estimate_merging_seconds(variants, sum(sizes), rates.get(merging_rate_name(models.tower, device))),
        speed_measured=speed is not None,
        device=device,
        heavy=RELATIVE_WORK[models.tower] >= HEAVY_WORK and device == "cpu",
        rows=tuple(variant.key for variant in variants),
        left_out=list_left_out_rows(experiment, choice),
        notes=tuple(notes),
        own_models=own_models,
    )


def count_passes(experiment: Experiment, choice: Choice, rows: int) -> tuple[int, int]:
    """The number of images of all test sets, and of forward passes of an image through a model.

    Each image passes through the pretrained model and every row, and those in domain also through their own expert.
    """
    in_domain = sum(_count_images(one.rows, choice) for one in experiment.tasks)
    out_of_domain = sum(
        _count_images(one.rows, choice) for one in list_test_sets(experiment, choice)[len(experiment.tasks) :]
    )
    return in_domain + out_of_domain, in_domain * (rows + 2) + out_of_domain * (rows + 1)


def estimate_encoding_seconds(tower: str, passes: int, device: str, cores: int) -> float:
    """Estimated seconds of a number of forward passes."""
    rate = ENCODING_RATE / RELATIVE_WORK[tower] if device == "cpu" else DECODING_RATE
    return passes / (rate * cores)


def estimate_merging_seconds(rows: Sequence[RowVariant], nbytes: int, rate: float | None) -> float:
    """Estimated seconds of merging, from the bytes of all models and the measured bytes per second."""
    factors = [1.0 if rate or not row.row.grouping_matters else FACTORIZATION_FACTOR for row in rows]
    return sum(factors) * nbytes / (rate or MERGING_RATE)


def _count_images(rows: int | None, choice: Choice) -> int:
    if rows is None:
        return choice.images or 0
    return rows if choice.images is None else min(rows, choice.images)


def _find_own_models(experiment: Experiment, choice: Choice) -> tuple[OwnModel, ...]:
    """The pretrained model and the experts in the folder of a choice."""
    folder = Path(choice.experts)
    pretrained, experts = find_models_in_folder(experiment, folder)
    paths = {"pretrained": pretrained}
    paths |= {f"expert for {one.title}": experts[one.key] for one in experiment.tasks}
    return tuple(
        OwnModel(purpose, printable(str(folder), 300), path.relative_to(folder).as_posix(), path.stat().st_size)
        for purpose, path in paths.items()
    )


def _plan_part(
    listed: ListedRepository, part: str, purpose: str, lock: Lock, separate_cache: Path | None
) -> PlannedPart:
    repository, files = find_repository(listed, lock), list_files(listed, part, lock)
    group = listed.parts[part]
    names = [file.name for file in files] if listed.name in lock.repositories else [one.name for one in group.files]
    sizes = [file.size for file in files]
    is_exact = len(sizes) == len(names) and None not in sizes
    folder = blob_cache.find_snapshot(repository, separate_cache)
    if listed.name in lock.repositories:
        cached_bytes = blob_cache.count_cached_bytes(repository, files, separate_cache)
        is_complete = blob_cache.find_complete_snapshot(repository, files, separate_cache) is not None
    else:
        cached_bytes, is_complete = _match_files(folder, names)
    nbytes = sum(size or 0 for size in sizes) if is_exact else cached_bytes if is_complete else group.about
    return PlannedPart(
        repository=listed.name,
        kind=listed.kind,
        purpose=purpose,
        files=tuple(names),
        nbytes=nbytes,
        is_exact=is_exact,
        local_bytes=cached_bytes,
        is_complete=is_complete,
        license=license_text(listed, lock),
        gated=lock.repositories[listed.name].gated if listed.name in lock.repositories else listed.gated,
        revision=repository.revision,
        note=_write_note(listed, group),
    )


def _write_note(listed: ListedRepository, group: ListedPart) -> str:
    """The note on a repository, and whether its size is an estimate or unknown."""
    size_note = (
        "its size is an estimate"
        if group.basis == ESTIMATED_SIZE
        else "its size is not known"
        if not group.basis
        else ""
    )
    return "; ".join(filter(None, (listed.note.rstrip("."), size_note)))


def _match_files(folder: Path | None, names: Sequence[str]) -> tuple[int, bool]:
    """The bytes of the files in a snapshot that match these names or patterns, and whether no file is missing.

    Before the first fetch, the number of files of a pattern is unknown, so a part with a pattern is never complete.
    """
    if folder is None:
        return 0, False
    cached_sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }
    matches = [[name for name in cached_sizes if fnmatch.fnmatchcase(name, pattern)] for pattern in names]
    is_complete = all(matches) and not any("*" in name for name in names)
    return sum(cached_sizes[name] for name in {name for group in matches for name in group}), is_complete
