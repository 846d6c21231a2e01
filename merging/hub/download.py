"""One file on its way into the cache: resumed where it broke off, checked while it comes, named when it is right."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

from merging.errors import HubError
from merging.files.disk import sync
from merging.files.locks import held
from merging.hub import client
from merging.hub.cache import BLOBS, PART, blob_here
from merging.hub.line import BrokenOffError, Line
from merging.hub.repository import SHA256, Repository, RepositoryFile
from merging.text import printable

STALL = 10.0  # seconds without a byte after which the file is asked for again from there
LOCKS = ".locks"
PIECE = 1 << 20
REDIRECTS = 10
COMMIT_STATED, LINKED_ETAG, LINKED_SIZE = "X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size"
FOREVER = float("inf")  # whoever waits for another process that fetches the same file can be cancelled


def _headers_and_location(url: str) -> tuple[Mapping[str, str], str]:
    """The headers of the answer that states a file's commit and digest, and where its content is.

    Redirects are followed up to that answer as long as they stay at the Hub's own host, to which alone the token goes.
    """
    utilities = client.utilities()
    for _ in range(REDIRECTS):
        response = utilities.get_session().head(url, headers=client.headers(url), follow_redirects=False, timeout=STALL)
        if response.status_code >= 400:
            utilities.hf_raise_for_status(response)
        target = urljoin(url, response.headers["Location"]) if response.has_redirect_location else url
        is_stated = COMMIT_STATED in response.headers and LINKED_ETAG in response.headers
        if target == url or is_stated or not client.is_own(target):
            return response.headers, target
        url = target
    raise HubError(f"{client.host()} redirects again and again: check HF_ENDPOINT, or unset it.", "connection")


def _digest_of(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')


class Download:
    """A file of a repository at a commit, to be put among the blobs of ``place``.

    ``file`` has its size and its key as soon as the Hub stated them.
    """

    def __init__(self, repository: Repository, file: RepositoryFile, place: Path, line: Line) -> None:
        self.file, self._repository, self.place, self._line = file, repository, place, line
        self._location = ""
        self._part, self._digest, self._done = place, hashlib.sha256(), 0

    def run(self) -> None:
        """Fetch the file unless its content is there."""
        if not blob_here(self.place, self.file):
            self.file = self._line.persist(self._ask)
            lock = self.place.parent / LOCKS / self.place.name / f"{self.file.key}.lock"
            with held(lock, self._line.check, longest=FOREVER) as locked:
                if not blob_here(self.place, self.file):
                    self._fetch(locked)

    def _ask(self) -> RepositoryFile:
        """The file with the size and the key that the Hub states, and where it is now."""
        self._line.check()
        hub, repository, file = client.library(), self._repository, self.file
        url = hub.hf_hub_url(repository.name, file.name, repo_type=repository.kind, revision=repository.revision,
                         endpoint=client.endpoint())  # fmt: skip
        stated, location = _headers_and_location(url)
        key = _digest_of(stated.get(LINKED_ETAG) or stated.get("ETag", ""))
        if not stated.get(COMMIT_STATED) or len(key) not in {40, 64} or not key.isalnum():
            raise HubError(
                f"{client.host()} does not answer as the Hub does (no digest of {printable(file.name)}): check "
                "HF_ENDPOINT, or unset it.",
                "connection",
            )
        if len(key) == len(file.key) and key != file.key:
            raise self._another(key)
        self._location = location
        key = file.key or key  # a known key is held to, also if the host states one of the other kind
        sha256 = key if SHA256.fullmatch(key) else None
        length = stated.get(LINKED_SIZE) or ("" if "Location" in stated else stated.get("Content-Length", ""))
        size = int(length) if length.isdecimal() else file.size
        return RepositoryFile(file.name, size, sha256, None if sha256 else key)

    def _another(self, digest: str) -> HubError:
        kind = "sha256" if self.file.sha256 else "git id"
        return HubError(
            f"{printable(self.file.name)} of {self._repository.name} from {client.host()} is not the file "
            f"expected and was not kept: its {kind} is {digest}, expected is {self.file.key}. Fetch it again, or from "
            "another host (HF_ENDPOINT).",
            "digest",
        )

    def _fetch(self, locked: bool) -> None:
        blobs = self.place / BLOBS
        blobs.mkdir(parents=True, exist_ok=True)
        # without a lock another process may write at the same time: each then has a file of its own
        own = "" if locked else f".{uuid.uuid4().hex[:8]}"
        self._part = blobs / f"{self.file.key}{own}{PART}"
        try:
            self._recall()
            if self.file.size is None or self._done < self.file.size:
                self._line.persist(self._receive, lambda: self._done)
            if (digest := self._finished()) != self.file.key:
                self._part.unlink()
                raise self._another(digest)
            sync(self._part)
            self._part.replace(blobs / self.file.key)
        finally:
            if not locked:
                self._part.unlink(missing_ok=True)

    def _recall(self) -> None:
        """Go on from what an earlier download left."""
        size = self._part.stat().st_size if self._part.is_file() else 0
        if self.file.size is not None and size > self.file.size:
            self._part.unlink()
        elif size:
            with self._part.open("rb") as file:
                while piece := file.read(PIECE):
                    self._line.check()
                    self._count(piece)

    def _count(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._done += len(piece)

    def _restart(self) -> None:
        """Begin from the first byte, as the server sends them all."""
        self._line.came(-self._done, self.file.name)
        self._digest, self._done = hashlib.sha256(), 0
        self._part.unlink(missing_ok=True)

    def _receive(self) -> None:
        """Ask for what is missing and write it."""
        self._line.check()
        if not self._location:  # an address in the storage is signed for a time only
            self._ask()
        url, self._location = self._location, ""
        utilities, ranged = client.utilities(), {"Range": f"bytes={self._done}-"} if self._done else {}
        headers = client.headers(url) | ranged
        with utilities.get_session().stream("GET", url, headers=headers, timeout=STALL) as response:
            if response.status_code == 416:  # more is here than the file has
                self._restart()
            if response.status_code == 416 or (response.status_code in {401, 403} and not client.is_own(url)):
                raise BrokenOffError(f"HTTP {response.status_code}")  # to be asked again, at a new address
            if response.status_code >= 400:
                response.read()
                utilities.hf_raise_for_status(response)
            goes_on = response.headers.get("Content-Range", "").startswith(f"bytes {self._done}-")
            if self._done and not (response.status_code == 206 and goes_on):
                self._restart()
            with self._part.open("ab") as file:
                self._write(response, file)
        if self.file.size is not None and self._done < self.file.size:
            raise BrokenOffError(f"{self._done} of {self.file.size} bytes")

    def _write(self, response: Any, file: IO[bytes]) -> None:
        for piece in response.iter_bytes():
            self._line.check()
            file.write(piece)
            self._count(piece)
            self._line.came(len(piece), self.file.name)

    def _finished(self) -> str:
        """The digest of the finished file, of the kind that its key is."""
        if self.file.sha256:
            return self._digest.hexdigest()
        content = self._part.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
