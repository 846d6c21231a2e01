"""Unfinished work of a session, such as a report, stored under a secret token; everyone with the token can open it.

A draft is a folder named by its kind and a digest of its token, so that listings and messages do not reveal the token.
Its file ``draft`` has two lines: the sha-256 of the second line, and the second line, which is JSON. Large pieces, its
parts, are files beside it that never change, so that a small change of a large draft writes little.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError, StoreError
from merging.base.files import strict_json
from merging.base.files.atomic import DamagedError, retire
from merging.base.files.disk import OTHER_STORE, explain_os_errors
from merging.base.files.locks import hold_lock
from merging.base.files.records import write_bytes
from merging.base.text import size_text
from merging.study.runs.run_store import DRAFTS, Store

FILE, VERSION = "draft", 1
KIND, TOKEN, PART = re.compile(r"[a-z]{1,20}"), re.compile(r"[A-Za-z0-9_-]{22}"), re.compile(r"[0-9a-f]{32}")
RANDOM = 16  # bytes of a token
DAYS, MOST = 30, 200  # days after its last change for which a draft is stored; the most drafts of a kind
MOST_PAYLOAD, MOST_PART, MOST_IN_ALL = 2_000_000, 20_000_000, 60_000_000  # bytes of JSON, of a part, of all parts
MOST_PARTS = 100
MOST_FILE = MOST_PAYLOAD + 200 * MOST_PARTS  # bytes of the file ``draft``
WAIT = 5.0  # seconds to wait for another process that stores a draft
GONE = (
    "There is no {} under the token in this address: it was deleted, it has not been changed for "
    f"{DAYS} days, or it is on another machine."
)
LOST = "The draft of the {} under the token in this address is damaged; what is left of it was set aside."

Parts = Mapping[str, Callable[[], bytes]]


@dataclass(frozen=True)
class Draft:
    """A stored draft: its token, its ``payload`` as from JSON, and when it was last changed (seconds since 1970)."""

    token: str
    payload: Mapping[str, Any]
    changed: float


class Drafts:
    """The drafts of a store, at most 200 of each kind, each for 30 days after its last change."""

    def __init__(self, store: Store) -> None:
        self._store, self._root = store, store.root / DRAFTS

    def store(self, kind: str, payload: Mapping[str, Any], token: str = "", parts: Parts | None = None) -> str:
        """Store a draft, which replaces the one with this token if there is one; returns its token.

        ``payload`` is plain data that strict JSON can hold, at most 2 MB as text. ``parts`` are functions that return
        bytes, by names of 32 hexadecimal digits: at most 100 of 20 MB each and 60 MB in all. The bytes of a name never
        change, so functions of stored parts are not called. Stored parts that ``parts`` lacks are removed.

        Raises:
            StoreError: the draft is too large or not JSON, or the store cannot be written to; it remains unchanged.
        """
        parts = parts or {}
        token = token or secrets.token_urlsafe(RANDOM)
        folder = self._folder(kind, token)
        if len(parts) > MOST_PARTS or any(not PART.fullmatch(name) for name in parts):
            raise StoreError(f"A {kind} has at most {MOST_PARTS} parts, named by 32 hexadecimal digits.")
        with (
            explain_os_errors(f"The draft of the {kind}", OTHER_STORE),
            hold_lock(self._store.root / "locks" / "drafts.lock", longest=WAIT),
            _undo_on_failure(folder) as written,
        ):
            if not (folder / FILE).exists():  # also if a page still has the token of a deleted draft
                self._make_room(kind)
            facts = _write_parts(folder, parts, written)
            body = _json({"version": VERSION, "token": token, "parts": facts, "payload": payload}, kind)
            write_bytes(folder / FILE, f"{_sha256(body)}\n".encode() + body)
            _remove_parts(folder, parts)
        return token

    def read(self, kind: str, token: str) -> dict[str, Any]:
        """The payload of a draft.

        Raises:
            StoreError: there is no such draft, or it is damaged; a damaged draft is quarantined.
        """
        return dict(self._entry(kind, token)["payload"])

    def read_part(self, kind: str, token: str, name: str) -> bytes:
        """The bytes of one part of a draft; raises StoreError as ``read`` does."""
        folder, before = self._folder(kind, token), None
        while (entry := self._entry(kind, token)) != before:  # another tab may change it meanwhile
            if name not in entry["parts"]:
                raise StoreError(f"This {kind} has no part {name[:40]!r}.")
            with contextlib.suppress(OSError, DamagedError):
                raw = _read_bytes(folder / name, MOST_PART)
                if _sha256(raw) == entry["parts"][name]["sha256"]:
                    return raw
            before = entry
        raise self._set_aside(folder, kind, f"part {name} is missing or does not have its sha-256")

    def state(self, kind: str, token: str) -> tuple[int, int, int]:
        """Numbers that change whenever the stored draft changes; zeros if there is none."""
        try:
            state = (self._folder(kind, token) / FILE).stat()
        except (OSError, StoreError):  # StoreError: not a token
            return (0, 0, 0)
        return (state.st_ino, state.st_size, state.st_mtime_ns)

    def remove(self, kind: str, token: str) -> None:
        """Delete a draft; nothing happens if there is none. Raises StoreError if it cannot be deleted."""
        retire(self._folder(kind, token), f"The draft of the {kind}")

    def list_drafts(self, kind: str) -> list[Draft]:
        """Every draft of a kind, last changed first; only for users who may read the whole store."""
        drafts = []
        for changed, folder in self._by_age(kind):
            with contextlib.suppress(StoreError):
                entry = self._open_draft(folder, kind)
                drafts.append(Draft(entry["token"], entry["payload"], changed))
        return drafts

    def _folder(self, kind: str, token: str) -> Path:
        """The folder of a draft. Raises StoreError if the kind or the token is malformed."""
        if not KIND.fullmatch(kind) or not TOKEN.fullmatch(token):
            raise StoreError(GONE.format(kind[:20] if KIND.match(kind) else "draft"))
        return self._root / f"{kind}-{_sha256(token.encode())[:24]}"

    def _entry(self, kind: str, token: str) -> dict[str, Any]:
        """The whole content of the file of the draft with this token."""
        folder = self._folder(kind, token)
        entry = self._open_draft(folder, kind)
        if entry["token"] != token:
            raise self._set_aside(folder, kind, "its token is not that of its name")
        return entry

    def _open_draft(self, folder: Path, kind: str) -> dict[str, Any]:
        try:
            if time.time() - (folder / FILE).stat().st_mtime > DAYS * 86400:
                raise StoreError(GONE.format(kind))
            return parse_draft(_read_bytes(folder / FILE, MOST_FILE))
        except OSError:
            raise StoreError(GONE.format(kind)) from None
        except DamagedError as damage:
            raise self._set_aside(folder, kind, str(damage)) from None

    def _set_aside(self, folder: Path, kind: str, reason: str) -> StoreError:
        """Quarantine a damaged draft, and return the error to raise."""
        self._store.damaged.move_damaged(folder, FILE, reason)
        return StoreError(LOST.format(kind))

    def _make_room(self, kind: str) -> None:
        """Remove drafts that are too old, and the oldest ones if one more would be too many."""
        for index, (changed, folder) in enumerate(self._by_age(kind)):
            if index >= MOST - 1 or time.time() - changed > DAYS * 86400:
                with contextlib.suppress(StoreError):  # it remains until it can be removed
                    retire(folder)

    def _by_age(self, kind: str) -> list[tuple[float, Path]]:
        """(time of the last change, folder) of every draft of a kind, the newest first."""
        drafts = []
        with contextlib.suppress(OSError):
            for folder in self._root.glob(f"{kind}-*"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    drafts.append(((folder / FILE).stat().st_mtime, folder))
        return sorted(drafts, reverse=True)


def parse_draft(raw: bytes) -> dict[str, Any]:
    """The content of the file of a draft.

    Raises:
        DamagedError: the file was changed after it was written.
    """
    digest, _, body = raw.partition(b"\n")
    if digest != _sha256(body).encode():
        raise DamagedError("it does not have the sha-256 in its first line")
    try:
        entry = strict_json.parse_json(body, FILE)
        parts = entry["parts"].values()
        if entry["version"] != VERSION or not isinstance(entry["payload"], dict) or not isinstance(entry["token"], str):
            raise DamagedError("it is of another version")
        if not all(isinstance(part["sha256"], str) and isinstance(part["size"], int) for part in parts):
            raise DamagedError("its list of parts cannot be read")
    except (CheckpointError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"it cannot be read: {error}") from None
    return entry


@contextlib.contextmanager
def _undo_on_failure(folder: Path) -> Iterator[list[Path]]:
    """A list to note written files in; if the block fails they are removed, and the folder if it is new."""
    new, written = not folder.exists(), list[Path]()
    try:
        for path in (folder.parent, folder):  # one by one, since mkdir applies the mode to the last folder only
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield written
    except BaseException:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise


def _write_parts(folder: Path, parts: Parts, written: list[Path]) -> dict[str, dict[str, Any]]:
    """Write the parts that are not stored yet, and note them in ``written``; returns size and sha-256 of all parts."""
    stored = {}
    with contextlib.suppress(OSError, DamagedError):
        stored = parse_draft(_read_bytes(folder / FILE, MOST_FILE))["parts"]
    facts: dict[str, dict[str, Any]] = {}
    for name, content in parts.items():
        if name in stored and _has_size(folder / name, stored[name]["size"]):
            facts[name] = stored[name]
        else:
            raw = content()
            facts[name] = {"sha256": _sha256(raw), "size": len(raw)}
            if len(raw) > MOST_PART:
                raise StoreError(f"A part takes {size_text(len(raw))}; at most {size_text(MOST_PART)} are kept.")
            written.append(folder / name)
            write_bytes(folder / name, raw)
        if (total := sum(part["size"] for part in facts.values())) > MOST_IN_ALL:
            raise StoreError(f"Its parts take {size_text(total)}; at most {size_text(MOST_IN_ALL)} are kept.")
    return facts


def _remove_parts(folder: Path, parts: Parts) -> None:
    """Remove the files of parts that the draft no longer has; failures are retried at the next change."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if PART.fullmatch(path.name) and path.name not in parts:
                path.unlink(missing_ok=True)


def _json(entry: Mapping[str, Any], kind: str) -> bytes:
    """The entry as one line of JSON. Raises StoreError if it is too large, or JSON cannot hold it."""
    try:
        body = json.dumps(entry, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"The draft of the {kind} holds what cannot be written as JSON: {error}.") from None
    if len(body) > MOST_PAYLOAD:
        raise StoreError(f"The {kind} takes {size_text(len(body))}; at most {size_text(MOST_PAYLOAD)} are kept.")
    return body


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _read_bytes(path: Path, most: int) -> bytes:
    """The content of a file. Raises DamagedError if it has more than ``most`` bytes, OSError if it cannot be read."""
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise DamagedError(f"{path.name} has more than {most:,} bytes")
    return raw


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
