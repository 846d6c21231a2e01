"""The lock: the commits, licenses and files, with sizes and digests, that later fetches must match.

The first fetch of a repository pins it: it stores the commit and its facts in ``lock.json`` in the experiment's folder,
because the catalogue lacks most commits and digests.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from merging.base.errors import HubError, TaskError
from merging.base.files.records import write_json
from merging.base.text import first_few
from merging.models.formats.configs import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from merging.models.formats.hub_models import CONFIGS, WEIGHTS, needed_files
from merging.models.hub.repository import COMMIT, Repository, RepositoryFacts, RepositoryFile
from merging.sharing.published.catalogue_fields import CatalogueFields, read_mapping
from merging.sharing.published.catalogue_parts import DATA_SET, MODEL, ListedFile, ListedRepository, ModelFile

LOCK_FILE, VERSION = "lock.json", 1
NONE_STATED = "none stated"


@dataclass(frozen=True, slots=True)
class PinnedRepository:
    """A repository as pinned on the day ``read``; ``files`` are all files of the commit ``revision``."""

    name: str
    kind: str
    revision: str
    license: str | None
    gated: bool
    read: str
    files: tuple[RepositoryFile, ...]


@dataclass(frozen=True, slots=True)
class Lock:
    """Pinned repositories by name. ``latest`` are the names of those that differ from the catalogue."""

    repositories: Mapping[str, PinnedRepository] = field(default_factory=dict)
    latest: tuple[str, ...] = ()

    def with_facts(
        self, listed: ListedRepository, facts: RepositoryFacts, *, latest: bool = False, today: date | None = None
    ) -> Lock:
        """The lock with the Hub's facts about a repository.

        Raises:
            HubError: without ``latest``, the commit or a file differs from the catalogue or this lock.
        """
        read_date = (today or date.today()).isoformat()
        known = self.repositories.get(listed.name)
        expected = known.revision if known else listed.revision
        is_moved = bool(expected) and expected != facts.revision
        if is_moved and not latest:
            raise HubError(
                f"{listed.name} is pinned at {expected}, but the Hub has {facts.revision}. --latest uses it.",
                "digest",
            )
        other_file = _describe_other_file(listed, facts)
        if other_file and not latest:
            raise HubError(other_file, "digest")
        pinned = PinnedRepository(
            listed.name, listed.kind, facts.revision, facts.license, facts.gated, read_date, tuple(facts.files)
        )
        latest_names = (
            (*self.latest, listed.name) if (is_moved or other_file) and listed.name not in self.latest else self.latest
        )
        return replace(self, repositories={**self.repositories, listed.name: pinned}, latest=latest_names)

    def replace_with(self, other: Lock) -> Lock:
        """The lock with its repositories replaced by those of another lock."""
        latest = [name for name in self.latest if name not in other.repositories]
        return Lock({**self.repositories, **other.repositories}, (*latest, *other.latest))


def find_repository(listed: ListedRepository, lock: Lock) -> Repository:
    """The repository at the commit of the lock, else at that of the catalogue, else at its main branch."""
    pinned = lock.repositories.get(listed.name)
    kind: Any = listed.kind
    return Repository(kind, listed.name, pinned.revision if pinned else listed.revision)


def list_files(listed: ListedRepository, part: str, lock: Lock) -> tuple[RepositoryFile, ...]:
    """The files of a part, with sizes and digests from the lock, else from the catalogue.

    Before the first fetch, patterns are omitted, because their files are unknown. If the weights in the repository have
    another format than in the catalogue, the files of that format are used.

    Raises:
        HubError: the repository lacks a needed file.
    """
    pinned, listed_files = lock.repositories.get(listed.name), listed.parts[part].files
    if pinned is None:
        return tuple(RepositoryFile(one.name, one.size, one.sha256) for one in listed_files if not one.is_pattern)
    files: dict[str, RepositoryFile] = {}
    for one in listed_files:
        names = match_names(one.name, [file.name for file in pinned.files])
        matches = [file for file in pinned.files if any(fnmatch.fnmatchcase(file.name, name) for name in names)]
        if not matches:
            existing = first_few((file.name for file in pinned.files), 8)
            raise HubError(
                f"{listed.name} has no file {one.name} at {pinned.revision[:12]}. It has {existing or 'no files'}. "
                f"`--revision {listed.name}=REVISION` uses another branch, tag or commit.",
                "missing",
            )
        files |= {file.name: file for file in matches}
    return tuple(files.values())


def match_names(name: str, repository_names: Sequence[str]) -> list[str]:
    """The names in a repository for ``name`` in the catalogue: the name itself, or the weights in another format.

    Only an adapter replaces an adapter, and only a whole model, with its shards, a whole model.
    """
    if name in repository_names or name not in {*WEIGHTS, *ADAPTER_WEIGHTS}:
        return [name]
    if name in ADAPTER_WEIGHTS:
        return [one for one in ADAPTER_WEIGHTS if one in repository_names]
    # Without the configuration of an adapter, the needed files are those of a whole model.
    return [one for one in needed_files(set(repository_names) - {ADAPTER_CONFIG}) if one not in CONFIGS]


def find_model_name(use: ModelFile, lock: Lock) -> str:
    """The path in a model's repository that is opened; its format may differ from the catalogue's."""
    pinned = lock.repositories.get(use.repository)
    names = match_names(use.open, [file.name for file in pinned.files]) if pinned and use.open else []
    return names[0] if names else use.open


def license_text(listed: ListedRepository, lock: Lock) -> str:
    """The license as last read, "none stated" if the card states none, or "not read yet"."""
    if pinned := lock.repositories.get(listed.name):
        return pinned.license or NONE_STATED
    return listed.license or "not read yet"


def stated_license(listed: ListedRepository, lock: Lock) -> str:
    """The license with the day on which it was read and the commit of the card, for the licenses of a benchmark."""
    text, pinned = license_text(listed, lock), lock.repositories.get(listed.name)
    return f"{text} (read {pinned.read} at commit {pinned.revision[:12]})" if pinned else text


def read_lock(folder: Path) -> Lock:
    """The lock in an experiment's folder; an empty one if there is none.

    Raises:
        TaskError: the file cannot be read; the user must correct or delete it.
    """
    path = folder / LOCK_FILE
    if not path.exists():
        return Lock()
    outer = CatalogueFields(read_mapping(path), LOCK_FILE)
    if outer.read_count("version") != VERSION:
        raise TaskError(
            f"{path} was written by another version of this program. Delete it to pin the repositories again."
        )
    entries = outer.read_mapping_field("repositories")
    latest = outer.read_texts("latest")
    outer.refuse_unknown()
    return Lock(
        {
            name: _parse_repository(name, CatalogueFields(each, f"{LOCK_FILE}, {name}"))
            for name, each in entries.items()
        },
        latest,
    )


def write_lock(folder: Path, lock: Lock) -> None:
    """Write the lock into an experiment's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    repositories = {
        name: {key: value for key, value in asdict(one).items() if key != "name"}
        for name, one in lock.repositories.items()
    }
    write_json(folder / LOCK_FILE, {"version": VERSION, "repositories": repositories, "latest": list(lock.latest)})


def _parse_repository(name: str, entry: CatalogueFields) -> PinnedRepository:
    try:
        files: Sequence[RepositoryFile] = [_parse_file(each) for each in entry.read_entries("files")]
    except HubError as error:
        raise TaskError(f"{entry.location}: {error}") from None
    pinned = PinnedRepository(
        name=name,
        kind=entry.read_choice("kind", (MODEL, DATA_SET)),
        revision=entry.read_text("revision"),
        license=entry.read_optional_text("license"),
        gated=entry.read_choice("gated", (True, False)),
        read=entry.read_text("read"),
        files=tuple(files),
    )
    if not COMMIT.fullmatch(pinned.revision):
        raise entry.make_field_error("revision", "a full commit is needed", pinned.revision)
    entry.refuse_unknown()
    return pinned


def _parse_file(entry: CatalogueFields) -> RepositoryFile:
    size = entry.read_count("size") if entry.has("size") else None
    file = RepositoryFile(
        entry.read_text("name"), size, entry.read_optional_text("sha256"), entry.read_optional_text("git_id")
    )
    entry.refuse_unknown()
    return file


def _describe_other_file(listed: ListedRepository, facts: RepositoryFacts) -> str:
    """A sentence on a file that differs from the catalogue's; empty if there is none."""
    by_name = {file.name: file for file in facts.files}
    for one in (file for part in listed.parts.values() for file in part.files):
        stated = by_name.get(one.name)
        if stated is None or not _is_other_file(one, stated):
            continue
        expected = one.sha256 or (f"one that begins with {one.begins}" if one.begins else f"{one.size:,} bytes")
        actual = stated.sha256 or stated.git_id or "none"
        return (
            f"{one.name} of {listed.name} differs from the catalogue's file: its digest is {actual} "
            f"({stated.size} bytes), expected was {expected}. --latest uses it, and no row is then judged reproduced."
        )
    return ""


def _is_other_file(one: ListedFile, stated: RepositoryFile) -> bool:
    digest = stated.sha256 or ""
    return (
        (one.sha256 is not None and digest != one.sha256)
        or (bool(one.begins) and not digest.startswith(one.begins))
        or (one.size is not None and stated.size is not None and one.size != stated.size)
    )
