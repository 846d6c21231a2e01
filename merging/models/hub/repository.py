"""Repositories of the Hub and their files: names, revisions, and facts that the Hub states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from merging.base.errors import HubError
from merging.base.text import printable

Kind = Literal["model", "dataset"]
DEFAULT_BRANCH = "main"
KIND_NOUNS = {"model": "model", "dataset": "data set"}
NAME_PATTERN = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?")
REVISION_PATTERN = re.compile(r"(?!/)[\w./-]{1,120}")
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RepositoryFile:
    """A file of a repository; size in bytes. Large files have a sha256, small files a git id.

    Raises:
        HubError: the name leads out of its repository, or a key is not a digest.
    """

    name: str
    size: int | None = None
    sha256: str | None = None
    git_id: str | None = None

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if path.is_absolute() or ".." in path.parts or not path.parts or any(sign in self.name for sign in "\\\0"):
            raise HubError(f"{printable(self.name)!r} is not a name of a file in a repository of the Hub.", "missing")
        for key, digest in ((self.sha256, SHA256_PATTERN), (self.git_id, COMMIT)):
            if key is not None and not digest.fullmatch(key):
                raise HubError(
                    f"{printable(self.name)} has the key {printable(key)!r}, which is not a digest.", "digest"
                )

    @property
    def key(self) -> str:
        """The name of the file's blob in the cache; empty if it is not known yet."""
        return self.sha256 or self.git_id or ""


@dataclass(frozen=True)
class Repository:
    """A repository of the Hub at a revision: a commit, a branch or a tag; None stands for the branch main.

    Raises:
        HubError: the Hub cannot have such a name or revision.
    """

    kind: Kind
    name: str
    revision: str | None = None

    def __post_init__(self) -> None:
        text = f"{self.name}@{self.revision or DEFAULT_BRANCH}"
        is_odd = (
            not NAME_PATTERN.fullmatch(self.name)
            or not REVISION_PATTERN.fullmatch(self.revision or DEFAULT_BRANCH)
            or ".." in text
        )
        if is_odd:
            raise HubError(f"{printable(text)!r} is not a repository of the Hub: write organization/name.", "missing")

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return bool(COMMIT.fullmatch(self.revision or ""))

    @property
    def folder(self) -> str:
        """The name of its folder in the cache."""
        return "--".join([f"{self.kind}s", *self.name.split("/")])


@dataclass(frozen=True)
class RepositoryFacts:
    """The Hub's facts about a repository: commit, license on its card or None, whether it is gated, and files."""

    revision: str
    license: str | None
    gated: bool
    files: tuple[RepositoryFile, ...]
