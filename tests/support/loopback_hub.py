"""A Hub on this machine, for tests: one port for its interface, another for the storage of its large files.

It speaks the part of the interface that the program uses, over folders of files, so that the client library works as
always. Faults are switched on by ``fail``; every request is noted in ``requests``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest

Kind = Literal["model", "dataset"]
HUB, STORAGE = "hub", "storage"
OWN_STORAGE = "/stored/"  # the path of large files at the Hub's own host
LARGE = {".safetensors", ".bin", ".pt", ".parquet", ".tar", ".arrow", ".npz"}  # kept in the storage, as on the Hub
PIECE = 1 << 16
API = re.compile(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(revision|tree|parquet)(?:/([^/]+))?)?")
RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
ACCEPTED, STRANGER = "hf_accepted", "hf_stranger"  # tokens of somebody who accepted all terms, and of somebody else


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; large ones are known by their sha256, small ones by their git id."""

    content: bytes
    large: bool

    @property
    def git_id(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.git_id


@dataclass
class HubRepository:
    """Branches and commits of a repository, and what its card says."""

    license: str | list[str] | None
    gated: bool
    branches: dict[str, str] = field(default_factory=dict)  # {branch: commit}
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)  # {commit: {name: file}}


@dataclass(frozen=True)
class Seen:
    """A request that came: to which port, with which range and with which token."""

    port: str
    method: str
    path: str
    range: str
    token: str


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests of a method whose path holds ``match``.

    ``status`` is answered at once. Otherwise the answer is sent, but ends after ``cut`` bytes, stops after ``stall``
    bytes until the server ends, has the byte number ``flip`` changed, takes ``rate`` bytes a second, or ignores ranges.
    """

    match: str = ""
    method: str = "GET"
    port: str = ""  # both
    times: float = 1
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    stall: int | None = None
    flip: int | None = None
    rate: float | None = None
    ranges: bool = True


class LoopbackHub:
    """A Hub that is there while the block runs. ``requests`` lists what was asked of it.

    With ``own_storage`` it keeps its large files at its own host, as a mirror does. ``renamed`` are repositories that
    it redirects to their new names.
    """

    def __init__(self) -> None:
        self.own_storage, self.renamed = False, dict[str, str]()
        self.requests: list[Seen] = []
        self.repositories: dict[tuple[str, str], HubRepository] = {}
        self.ended = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._servers = {port: _Server(self, port) for port in (HUB, STORAGE)}

    def __enter__(self) -> LoopbackHub:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server: further requests find no connection."""
        if not self.ended.is_set():
            self.ended.set()
            for server in self._servers.values():
                server.shutdown()
                server.server_close()

    def url(self, port: str = HUB) -> str:
        """The address of one of the two ports."""
        return f"http://127.0.0.1:{self._servers[port].server_address[1]}"

    @property
    def host(self) -> str:
        """The host and port that sentences name."""
        return urlsplit(self.url()).netloc

    def add(self, kind: Kind, name: str, folder: Path | Mapping[str, bytes], license: str | list[str] | None = None,
            gated: bool = False, branch: str = "main") -> str:  # fmt: skip
        """Put the files of a folder on a branch of a repository; gives the commit. Called again, the branch moves."""
        contents = dict(folder) if isinstance(folder, Mapping) else _contents(folder)
        files = {name: HubFile(content, Path(name).suffix in LARGE) for name, content in contents.items()}
        text = repr(sorted((file, content.etag) for file, content in files.items()))
        commit = hashlib.sha1(f"{kind} {name} {text}".encode()).hexdigest()
        repository = self.repositories.setdefault((kind, name), HubRepository(license, gated))
        repository.commits[commit], repository.branches[branch] = files, commit
        return commit

    def swap(self, kind: Kind, name: str, file: str, content: bytes) -> None:
        """Put another file in the place of one, in all commits, as a mirror could."""
        for files in self.repositories[kind, name].commits.values():
            files[file] = HubFile(content, files[file].large)

    def fail(self, match: str = "", **fault: Any) -> None:
        """Switch a fault on, see ``Fault``."""
        self._faults.append(Fault(match, **fault))

    def recover(self) -> None:
        """Switch all faults off."""
        self._faults.clear()

    def fault_of(self, seen: Seen) -> Fault:
        """The fault that meets a request, which uses it up once; one without effect if there is none."""
        with self._lock:
            for fault in self._faults:
                meets = fault.match in seen.path and fault.method == seen.method and fault.port in {"", seen.port}
                if meets and fault.times > 0:
                    fault.times -= 1
                    return fault
        return Fault()

    def count(self, match: str = "", method: str = "GET") -> int:
        """How many requests of a method had a path that holds ``match``."""
        return sum(match in seen.path and seen.method == method for seen in self.requests)

    def fetched(self) -> dict[str, int]:
        """How often each file was sent: {name or sha256: requests}."""
        paths = (seen.path for seen in self.requests if seen.method == "GET" and not seen.path.startswith("/api/"))
        names = (path.split("?")[0].rsplit("/", 1)[-1] for path in paths)
        return dict(Counter(name for name in names if Path(name).suffix not in LARGE))  # these were only redirected

    def environment(self, home: Path) -> dict[str, str]:
        """What a process of its own needs in its environment to use this Hub, with a cache in ``home``."""
        plain = {"HF_ENDPOINT": self.url(), "HF_HOME": str(home), "MERGESCOPE_HUB": "on", "NO_PROXY": "127.0.0.1"}
        return plain | {"HF_TOKEN": "", "HF_HUB_CACHE": str(home / "hub"), "HF_TOKEN_PATH": str(home / "token")}

    def connect(self, patch: pytest.MonkeyPatch, home: Path) -> None:
        """Let this process use this Hub, with a cache in ``home``, until the patch is undone."""
        from huggingface_hub import constants
        from huggingface_hub.utils import close_session

        for name, value in self.environment(home).items():
            patch.setenv(name, value)
        for name in ("HF_HUB_CACHE", "HF_TOKEN_PATH"):  # the library reads them once
            patch.setattr(constants, name, self.environment(home)[name])
        close_session()  # the library reads proxies when a session begins


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class _Server(ThreadingHTTPServer):
    """One of the two ports, with a thread for each connection."""

    daemon_threads, block_on_close = True, False

    def __init__(self, hub: LoopbackHub, port: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.hub, self.port = hub, port

    def handle_error(self, *request: object) -> None:
        """Whoever asked has gone."""


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits until its head is acknowledged
    server: _Server

    def log_message(self, *words: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, token = self.server.hub, self.headers.get("Authorization", "").removeprefix("Bearer ")
        seen = Seen(self.server.port, self.command, self.path, self.headers.get("Range", ""), token)
        hub.requests.append(seen)
        self.fault, path = hub.fault_of(seen), unquote(urlsplit(self.path).path)
        if self.fault.status:
            self.refuse(self.fault.status, **self.fault.headers)
        elif token not in {"", ACCEPTED, STRANGER}:
            self.refuse(401, **{"X-Error-Message": "Invalid credentials in Authorization header"})
        elif seen.port == STORAGE or path.startswith(OWN_STORAGE):
            self.stored(path.rpartition("/")[2])
        elif renamed := next((name for name in hub.renamed if f"/{name}/" in f"{path}/"), None):
            self.refuse(307, Location=hub.url() + self.path.replace(renamed, hub.renamed[renamed]))
        elif match := API.fullmatch(urlsplit(self.path).path):
            self.facts(*match.groups())
        elif match := RESOLVE.fullmatch(urlsplit(self.path).path):
            self.resolve("dataset" if match[1] else "model", match[2], unquote(match[3]), unquote(match[4]), token)
        else:
            self.refuse(404)

    def refuse(self, status: int, code: str = "", **headers: str) -> None:
        self.send(status, b"", headers | ({"X-Error-Code": code} if code else {}))

    def find(self, kind: str, name: str, revision: str) -> tuple[HubRepository, str] | None:
        """The repository and the commit of a revision; None after a refusal."""
        repository = self.server.hub.repositories.get((kind, name))
        if repository is None:
            self.refuse(401, "RepoNotFound")
            return None
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            self.refuse(404, "RevisionNotFound")
            return None
        return repository, commit

    def facts(self, kind: str, name: str, part: str | None, revision: str | None) -> None:
        if (located := self.find(kind, name, unquote(revision or "main"))) is None:
            return
        repository, commit = located
        files = repository.commits[commit]
        if part == "parquet":
            urls = [f"{self.server.hub.url()}/datasets/{name}/resolve/main/{file}" for file in files]
            answer: Any = {"default": {"test": [url for url in urls if url.endswith(".parquet")]}}
        elif part == "tree":
            answer = [_entry(path, file, "path", "oid", "oid") | {"type": "file"} for path, file in files.items()]
        else:
            card = {"license": repository.license} if repository.license else {}
            answer = {"id": name, "sha": commit, "gated": "auto" if repository.gated else False, "private": False}
            siblings = [_entry(path, file, "rfilename", "blobId", "sha256") for path, file in files.items()]
            answer |= {"cardData": card, "siblings": siblings}
        self.send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def resolve(self, kind: str, name: str, revision: str, path: str, token: str) -> None:
        if (located := self.find(kind, name, revision)) is None:
            return
        repository, commit = located
        if repository.gated and token != ACCEPTED:
            return self.refuse(403 if token else 401, "GatedRepo")
        about = {"X-Repo-Commit": commit}
        if (file := repository.commits[commit].get(path)) is None:
            return self.refuse(404, "EntryNotFound", **about)
        about["ETag"] = f'"{file.etag}"'
        if not file.large:
            return self.send(200, file.content, about)
        hub = self.server.hub
        place = hub.url() + OWN_STORAGE if hub.own_storage else hub.url(STORAGE) + "/"
        place += f"{file.sha256}?signature=of-the-hub"
        about |= {"Location": place, "X-Linked-Etag": about["ETag"], "X-Linked-Size": str(len(file.content))}
        return self.send(302, b"", about)

    def stored(self, digest: str) -> None:
        for repository in self.server.hub.repositories.values():
            for files in repository.commits.values():
                for file in files.values():
                    if file.large and file.sha256 == digest:
                        return self.send(200, file.content, {"ETag": f'"{digest}"'})
        return self.refuse(403)

    def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send an answer, whole or from where the request asks, as the fault lets it."""
        byte_range, about = self.headers.get("Range", ""), dict(headers)
        if status == 200:
            about["Accept-Ranges"] = "bytes"
            start = int(byte_range.removeprefix("bytes=").rstrip("-")) if byte_range and self.fault.ranges else 0
            if start >= len(body) > 0:
                status, about["Content-Range"], body = 416, f"bytes */{len(body)}", b""
            elif start:
                status, about["Content-Range"] = 206, f"bytes {start}-{len(body) - 1}/{len(body)}"
                body = body[start:]
        self.send_response(status)
        for name, value in (about | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            with contextlib.suppress(OSError):
                self.write(body)

    def write(self, body: bytes) -> None:
        fault, ended = self.fault, self.server.hub.ended
        if fault.flip is not None:
            body = body[: fault.flip] + bytes([body[fault.flip] ^ 1]) + body[fault.flip + 1 :]
        limits = [limit for limit in (fault.cut, fault.stall) if limit is not None]
        end = min([len(body), *limits])
        for start in range(0, end, PIECE):
            self.wfile.write(body[start : min(start + PIECE, end)])
            self.wfile.flush()
            if fault.rate:
                ended.wait(PIECE / fault.rate)
        if fault.stall is not None:
            ended.wait(60)
        if limits:
            self.close_connection = True


def _entry(path: str, file: HubFile, called: str, git_id: str, digest: str) -> dict[str, Any]:
    """A file in a list of files; the two lists of the interface name the same things differently."""
    pointer = {"lfs": {digest: file.sha256, "size": len(file.content), "pointerSize": 130}} if file.large else {}
    return {called: path, "size": len(file.content), git_id: file.git_id} | pointer
