"""One file on its way into the cache: resumed where it broke off, checked while it comes, named when it is right.

The library's own downloads keep nothing of a file that broke off, and look at no digest: see DECISIONS.md, "The Hub".
"""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from merging.base.errors import HubError
from merging.base.files.disk import sync
from merging.base.files.locks import hold_lock
from merging.base.text import printable
from merging.models.hub import client
from merging.models.hub.blob_cache import BLOBS, PART, has_blob, size_of
from merging.models.hub.download_threads import BrokenOffError, DownloadThreads
from merging.models.hub.hub_errors import explain_error
from merging.models.hub.repository import COMMIT, SHA256, Repository, RepositoryFile

PIECE = 1 << 20
STALL = 10.0  # seconds without a byte after which the file is asked for again from there
LOCKS = ".locks"
FOREVER = float("inf")  # whoever waits for another process that fetches the same file can be cancelled


class Download:
    """A file of a repository at a commit, to be put among the blobs of ``place``.

    ``file`` has its size and its key as soon as the Hub stated them.
    """

    def __init__(
        self, repository: Repository, file: RepositoryFile, repository_path: Path, line: DownloadThreads
    ) -> None:
        self.file, self._repository, self._place, self._line = file, repository, repository_path, line
        self._sha256, self._hashed = hashlib.sha256(), 0  # bytes

    def run(self) -> None:
        """Fetch the file unless its content is there."""
        try:
            if not self._is_cached():
                self.file = self._line.call_with_retries(self._ask)
                lock = self._place.parent / LOCKS / self._place.name / f"{self.file.key}.lock"
                with hold_lock(lock, self._line.wait, longest=FOREVER) as locked:
                    if not self._is_cached():
                        self._fetch(locked)
        except Exception as error:  # several libraries raise errors that have no common class
            raise explain_error(error, self._repository, self.file.name, self._place) from None

    @property
    def _blob(self) -> Path:
        return self._place / BLOBS / self.file.key

    @property
    def _url(self) -> str:
        of, hub = self._repository, client.library()
        options = {"repo_type": of.kind, "revision": of.revision, "endpoint": client.endpoint()}
        return str(hub.hf_hub_url(of.name, self.file.name, **options))

    def _is_cached(self) -> bool:
        return has_blob(self._blob, self.file.size)

    def _ask(self) -> RepositoryFile:
        """The file with the size and the key that the Hub states."""
        self._line.wait()
        stated, file = client.library().get_hf_file_metadata(self._url, timeout=STALL), self.file
        key, size = stated.etag or "", stated.size
        if not (SHA256.fullmatch(key) or COMMIT.fullmatch(key)):  # a mirror's storage need not state it
            key, size = file.key if urlsplit(stated.location).netloc == urlsplit(self._url).netloc else "", None
        if not key:
            raise HubError(
                f"{client.host()} does not answer as the Hub does (no digest of {printable(file.name)}): check "
                "HF_ENDPOINT, or unset it.",
                "connection",
            )
        if len(key) == len(file.key) and key != file.key:
            raise self._wrong_digest_error(key)
        key = file.key or key  # a known key is held to, also if the host states one of the other kind
        sha256 = key if SHA256.fullmatch(key) else None
        return RepositoryFile(file.name, file.size if size is None else size, sha256, None if sha256 else key)

    def _wrong_digest_error(self, digest: str) -> HubError:
        kind = "sha256" if self.file.sha256 else "git id"
        return HubError(
            f"{printable(self.file.name)} of {self._repository.name} from {client.host()} is not the file "
            f"expected and was not kept: its {kind} is {digest}, expected is {self.file.key}. Fetch it again, or from "
            "another host (HF_ENDPOINT).",
            "digest",
        )

    def _fetch(self, locked: bool) -> None:
        # without a lock another process may write at the same time: each then has a file of its own
        part = self._blob.with_name(f"{self.file.key}{'' if locked else f'.{uuid.uuid4().hex[:8]}'}{PART}")
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            here, size = size_of(part), self.file.size
            if size is not None and here is not None and here > size:
                part.unlink()
            if size is None or here != size:
                self._line.call_with_retries(lambda: self._receive(part), lambda: size_of(part) or 0)
            if (digest := self._digest_of(part)) != self.file.key:
                part.unlink()
                raise self._wrong_digest_error(digest)
            self._line.wait()
            sync(part)
            part.replace(self._blob)
        finally:
            if not locked:
                part.unlink(missing_ok=True)

    def _receive(self, part: Path) -> None:
        """Ask for what is missing and write it. An address in the storage is valid for a while, so the Hub is asked."""
        self._hash_remaining(part)
        utilities, here, size = client.utilities(), size_of(part) or 0, self.file.size
        headers = utilities.build_hf_headers(headers={"Accept-Encoding": "identity"})
        headers |= {"Range": f"bytes={here}-"} if here else {}
        with utilities.get_session().stream("GET", self._url, headers=headers, timeout=STALL) as response:
            status, range_sent = response.status_code, response.headers.get("Content-Range", "")
            goes_on = status == 206 and range_sent.startswith(f"bytes {here}-")
            if here and not goes_on and status in {200, 206, 416}:  # it begins anew
                part.unlink()
                self._line.report_bytes(-here, self.file.name)
                self._sha256, self._hashed = hashlib.sha256(), 0
            has_expired = status in {401, 403} and response.history and "X-Error-Code" not in response.headers
            if has_expired or status == 416 or (status == 206 and not goes_on):
                raise BrokenOffError(f"HTTP {status}")
            utilities.hf_raise_for_status(response)
            with part.open("ab") as file:
                for piece in response.iter_bytes():
                    self._line.wait()
                    file.write(piece)
                    self._hash(piece)
                    self._line.report_bytes(len(piece), self.file.name)
        if size is not None and (size_of(part) or 0) < size:
            raise BrokenOffError(f"{size_of(part)} of {size} bytes")

    def _hash(self, piece: bytes) -> None:
        self._sha256.update(piece)
        self._hashed += len(piece)

    def _hash_remaining(self, part: Path) -> None:
        """Take what lies there and is not in the digest yet, which an earlier download left."""
        self._line.wait()
        if (size_of(part) or 0) > self._hashed:
            with part.open("rb") as file:
                file.seek(self._hashed)
                while piece := file.read(PIECE):
                    self._line.wait()
                    self._hash(piece)

    def _digest_of(self, part: Path) -> str:
        """The digest of the finished file, of the kind that its key is."""
        self._hash_remaining(part)
        if self.file.sha256:
            return self._sha256.hexdigest()
        content = part.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
