"""The download of one file into the cache: it resumes where it broke off, and checks the digest before publishing.

huggingface_hub discards a file that broke off and does not check its digest: see DECISIONS.md, "The Hub".
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
from merging.models.hub.blob_cache import BLOBS, PART_SUFFIX, file_size, keep_complete_blob
from merging.models.hub.download_threads import BrokenOffError, DownloadThreads
from merging.models.hub.hub_errors import explain_error
from merging.models.hub.repository import COMMIT, SHA256_PATTERN, Repository, RepositoryFile

PIECE_BYTES = 1 << 20
STALL_SECONDS = 10.0  # seconds without a byte after which the request is repeated for the missing bytes
LOCKS_FOLDER = ".locks"
UNLIMITED_SECONDS = float("inf")  # seconds to wait for another process that fetches the same file; the user can cancel


class Download:
    """The download of a repository's file at a commit to the blobs in ``repository_path``.

    ``file`` has a size and a key as soon as the Hub has stated them.
    """

    def __init__(
        self, repository: Repository, file: RepositoryFile, repository_path: Path, threads: DownloadThreads
    ) -> None:
        self.file, self._repository, self._path, self._threads = file, repository, repository_path, threads
        self._sha256, self._hashed = hashlib.sha256(), 0  # _hashed counts bytes

    def run(self) -> None:
        """Fetch the file unless its content is cached."""
        try:
            if not self._is_cached():
                self.file = self._threads.call_with_retries(self._request_facts)
                lock = self._path.parent / LOCKS_FOLDER / self._path.name / f"{self.file.key}.lock"
                with hold_lock(lock, self._threads.wait, max_seconds=UNLIMITED_SECONDS) as locked:
                    if not self._is_cached():
                        self._fetch(locked)
        except Exception as error:  # several libraries raise errors that have no common class
            raise explain_error(error, self._repository, self.file.name, self._path) from None

    @property
    def _blob(self) -> Path:
        return self._path / BLOBS / self.file.key

    @property
    def _url(self) -> str:
        repository, hub = self._repository, client.load_library()
        options = {"repo_type": repository.kind, "revision": repository.revision, "endpoint": client.endpoint()}
        return str(hub.hf_hub_url(repository.name, self.file.name, **options))

    def _is_cached(self) -> bool:
        return keep_complete_blob(self._blob, self.file.size)

    def _request_facts(self) -> RepositoryFile:
        """The file with the size and the key that the Hub states.

        Raises:
            HubError: the Hub states no digest, or another digest than expected.
        """
        self._threads.wait()
        facts, file = client.load_library().get_hf_file_metadata(self._url, timeout=STALL_SECONDS), self.file
        key, size = facts.etag or "", facts.size
        if not (
            SHA256_PATTERN.fullmatch(key) or COMMIT.fullmatch(key)
        ):  # the storage behind a mirror may not state a digest
            key, size = file.key if urlsplit(facts.location).netloc == urlsplit(self._url).netloc else "", None
        if not key:
            raise HubError(
                f"{client.host()} does not answer as the Hub does (no digest of {printable(file.name)}): check "
                "HF_ENDPOINT, or unset it.",
                "connection",
            )
        if len(key) == len(file.key) and key != file.key:
            raise self._make_digest_error(key)
        key = file.key or key  # a known key counts even if the host states a digest of the other kind
        sha256 = key if SHA256_PATTERN.fullmatch(key) else None
        return RepositoryFile(file.name, file.size if size is None else size, sha256, None if sha256 else key)

    def _make_digest_error(self, digest: str) -> HubError:
        kind = "sha256" if self.file.sha256 else "git id"
        return HubError(
            f"{printable(self.file.name)} of {self._repository.name} from {client.host()} is not the file "
            f"expected and was not kept: its {kind} is {digest}, expected is {self.file.key}. Fetch it again, or from "
            "another host (HF_ENDPOINT).",
            "digest",
        )

    def _fetch(self, locked: bool) -> None:
        """Fetch the missing bytes, check the digest and move the file to its blob."""
        # without a lock, processes may write at the same time, so each writes its own file
        part = self._blob.with_name(f"{self.file.key}{'' if locked else f'.{uuid.uuid4().hex[:8]}'}{PART_SUFFIX}")
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            stored, size = file_size(part), self.file.size
            if size is not None and stored is not None and stored > size:
                part.unlink()
            if size is None or stored != size:
                self._threads.call_with_retries(lambda: self._receive(part), lambda: file_size(part) or 0)
            if (digest := self._compute_digest(part)) != self.file.key:
                part.unlink()
                raise self._make_digest_error(digest)
            self._threads.wait()
            sync(part)
            part.replace(self._blob)
        finally:
            if not locked:
                part.unlink(missing_ok=True)

    def _receive(self, part: Path) -> None:
        """Request the missing bytes and write them. Uses the Hub's address, because addresses in its storage expire."""
        self._hash_remaining(part)
        utilities, stored, size = client.load_utilities(), file_size(part) or 0, self.file.size
        headers = utilities.build_hf_headers(headers={"Accept-Encoding": "identity"})
        headers |= {"Range": f"bytes={stored}-"} if stored else {}
        with utilities.get_session().stream("GET", self._url, headers=headers, timeout=STALL_SECONDS) as response:
            status, range_sent = response.status_code, response.headers.get("Content-Range", "")
            is_resumed = status == 206 and range_sent.startswith(f"bytes {stored}-")
            if stored and not is_resumed and status in {200, 206, 416}:  # the server does not resume: start again
                part.unlink()
                self._threads.report_bytes(-stored, self.file.name)
                self._sha256, self._hashed = hashlib.sha256(), 0
            # An address in the Hub's storage, to which the Hub has redirected, is valid for a limited time.
            has_expired = status in {401, 403} and response.history and "X-Error-Code" not in response.headers
            if has_expired or status == 416 or (status == 206 and not is_resumed):
                raise BrokenOffError(f"HTTP {status}")
            utilities.hf_raise_for_status(response)
            with part.open("ab") as file:
                for piece in response.iter_bytes():
                    self._threads.wait()
                    file.write(piece)
                    self._hash(piece)
                    self._threads.report_bytes(len(piece), self.file.name)
        if size is not None and (file_size(part) or 0) < size:
            raise BrokenOffError(f"{file_size(part)} of {size} bytes")

    def _hash(self, piece: bytes) -> None:
        self._sha256.update(piece)
        self._hashed += len(piece)

    def _hash_remaining(self, part: Path) -> None:
        """Hash the bytes of the part that an earlier download wrote."""
        self._threads.wait()
        if (file_size(part) or 0) > self._hashed:
            with part.open("rb") as file:
                file.seek(self._hashed)
                while piece := file.read(PIECE_BYTES):
                    self._threads.wait()
                    self._hash(piece)

    def _compute_digest(self, part: Path) -> str:
        """The digest of the complete file, of the same kind as its key: sha256, or git's sha1 of a blob."""
        self._hash_remaining(part)
        if self.file.sha256:
            return self._sha256.hexdigest()
        content = part.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
