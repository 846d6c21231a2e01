"""Unfinished work of a session, such as a report, stored under a secret token; everyone with the token can open it.

A draft is a folder named by its kind and a digest of its token, so that listings and messages do not reveal the token.
Its file ``draft`` has two lines: the sha-256 of the second line, and the second line, which is JSON. The large parts
of a draft are separate files in this folder. They never change, so a small change of a large draft writes little.
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
from merging.base.files.atomic import DamagedError, remove_entry
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.locks import hold_lock
from merging.base.files.records import write_bytes
from merging.base.text import size_text
from merging.study.runs.run_store import DRAFTS_FOLDER, Store

FILE_NAME, VERSION = "draft", 1
KIND_PATTERN, TOKEN_PATTERN, PART_PATTERN = (
    re.compile(r"[a-z]{1,20}"),
    re.compile(r"[A-Za-z0-9_-]{22}"),
    re.compile(r"[0-9a-f]{32}"),
)
TOKEN_BYTES = 16  # bytes of a token
MAX_AGE_DAYS, MAX_DRAFTS = 30, 200  # days after the last change of a draft; drafts of a kind
# Bytes of JSON, of a part, of all parts.
MAX_PAYLOAD_BYTES, MAX_PART_BYTES, MAX_PARTS_BYTES = 2_000_000, 20_000_000, 60_000_000
MAX_PARTS = 100
MAX_FILE_BYTES = MAX_PAYLOAD_BYTES + 200 * MAX_PARTS  # bytes of the file ``draft``
LOCK_SECONDS = 5.0  # seconds to wait for another process that stores a draft
MISSING_MESSAGE = (
    "There is no {} under the token in this address: it was deleted, it has not been changed for "
    f"{MAX_AGE_DAYS} days, or it is on another machine."
)
DAMAGED_MESSAGE = "The draft of the {} under the token in this address is damaged; its files were set aside."

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
        self._store, self._root = store, store.root / DRAFTS_FOLDER

    def store(self, kind: str, payload: Mapping[str, Any], token: str = "", parts: Parts | None = None) -> str:
        """Store a draft, which replaces the one with this token if there is one; returns its token.

        ``payload`` is plain data that strict JSON can hold, at most 2 MB as text. ``parts`` are functions that return
        bytes, by names of 32 hexadecimal digits: at most 100 of 20 MB each and 60 MB in all. The bytes of a name never
        change, so functions of stored parts are not called. Stored parts that ``parts`` lacks are removed.

        Raises:
            StoreError: the draft is too large or not JSON, or the store cannot be written to; it remains unchanged.
        """
        parts = parts or {}
        token = token or secrets.token_urlsafe(TOKEN_BYTES)
        folder = self._find_folder(kind, token)
        if len(parts) > MAX_PARTS or any(not PART_PATTERN.fullmatch(name) for name in parts):
            raise StoreError(f"A {kind} has at most {MAX_PARTS} parts, named by 32 hexadecimal digits.")
        with (
            explain_os_errors(f"The draft of the {kind}", STORE_REMEDY),
            hold_lock(self._store.root / "locks" / "drafts.lock", max_seconds=LOCK_SECONDS),
            _undo_on_failure(folder) as new_files,
        ):
            if not (folder / FILE_NAME).exists():  # also if a page still has the token of a deleted draft
                self._remove_old(kind)
            part_facts = _write_parts(folder, parts, new_files)
            body = _encode_entry({"version": VERSION, "token": token, "parts": part_facts, "payload": payload}, kind)
            write_bytes(folder / FILE_NAME, f"{_sha256(body)}\n".encode() + body)
            _remove_parts(folder, parts)
        return token

    def read(self, kind: str, token: str) -> dict[str, Any]:
        """The payload of a draft.

        Raises:
            StoreError: there is no such draft, or it is damaged; a damaged draft is quarantined.
        """
        return dict(self._read_entry(kind, token)["payload"])

    def read_part(self, kind: str, token: str, name: str) -> bytes:
        """The bytes of one part of a draft; raises StoreError as ``read`` does."""
        folder, earlier_entry = self._find_folder(kind, token), None
        while (entry := self._read_entry(kind, token)) != earlier_entry:  # another tab may change it meanwhile
            if name not in entry["parts"]:
                raise StoreError(f"This {kind} has no part {name[:40]!r}.")
            with contextlib.suppress(OSError, DamagedError):
                raw = _read_bytes(folder / name, MAX_PART_BYTES)
                if _sha256(raw) == entry["parts"][name]["sha256"]:
                    return raw
            earlier_entry = entry
        raise self._quarantine(folder, kind, f"part {name} is missing or does not have its sha-256")

    def state(self, kind: str, token: str) -> tuple[int, int, int]:
        """Numbers that change whenever the stored draft changes; zeros if there is none."""
        try:
            state = (self._find_folder(kind, token) / FILE_NAME).stat()
        except (OSError, StoreError):  # StoreError: not a token
            return (0, 0, 0)
        return (state.st_ino, state.st_size, state.st_mtime_ns)

    def remove(self, kind: str, token: str) -> None:
        """Delete a draft; nothing happens if there is none. Raises StoreError if it cannot be deleted."""
        remove_entry(self._find_folder(kind, token), f"The draft of the {kind}")

    def list_drafts(self, kind: str) -> list[Draft]:
        """Every draft of a kind, the last changed first; only for users who may read the whole store."""
        drafts = []
        for changed, folder in self._list_by_age(kind):
            with contextlib.suppress(StoreError):
                entry = self._open_draft(folder, kind)
                drafts.append(Draft(entry["token"], entry["payload"], changed))
        return drafts

    def _find_folder(self, kind: str, token: str) -> Path:
        """The folder of a draft. Raises StoreError if the kind or the token is malformed."""
        if not KIND_PATTERN.fullmatch(kind) or not TOKEN_PATTERN.fullmatch(token):
            raise StoreError(MISSING_MESSAGE.format(kind[:20] if KIND_PATTERN.match(kind) else "draft"))
        return self._root / f"{kind}-{_sha256(token.encode())[:24]}"

    def _read_entry(self, kind: str, token: str) -> dict[str, Any]:
        """The whole content of the file of the draft with this token."""
        folder = self._find_folder(kind, token)
        entry = self._open_draft(folder, kind)
        if entry["token"] != token:
            raise self._quarantine(folder, kind, "its token does not match the name of its folder")
        return entry

    def _open_draft(self, folder: Path, kind: str) -> dict[str, Any]:
        try:
            if time.time() - (folder / FILE_NAME).stat().st_mtime > MAX_AGE_DAYS * 86400:
                raise StoreError(MISSING_MESSAGE.format(kind))
            return parse_draft(_read_bytes(folder / FILE_NAME, MAX_FILE_BYTES))
        except OSError:
            raise StoreError(MISSING_MESSAGE.format(kind)) from None
        except DamagedError as damage:
            raise self._quarantine(folder, kind, str(damage)) from None

    def _quarantine(self, folder: Path, kind: str, reason: str) -> StoreError:
        """Quarantine a damaged draft, and return the error to raise."""
        self._store.damaged.move_damaged(folder, FILE_NAME, reason)
        return StoreError(DAMAGED_MESSAGE.format(kind))

    def _remove_old(self, kind: str) -> None:
        """Remove drafts that are too old, and the oldest ones if one more would be too many."""
        for index, (changed, folder) in enumerate(self._list_by_age(kind)):
            if index >= MAX_DRAFTS - 1 or time.time() - changed > MAX_AGE_DAYS * 86400:
                with contextlib.suppress(StoreError):  # it remains until it can be removed
                    remove_entry(folder)

    def _list_by_age(self, kind: str) -> list[tuple[float, Path]]:
        """(time of the last change, folder) of every draft of a kind, the newest first."""
        drafts = []
        with contextlib.suppress(OSError):
            for folder in self._root.glob(f"{kind}-*"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    drafts.append(((folder / FILE_NAME).stat().st_mtime, folder))
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
        entry = strict_json.parse_json(body, FILE_NAME)
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
    is_new, new_files = not folder.exists(), list[Path]()
    try:
        for path in (folder.parent, folder):  # separately, since mkdir applies the mode only to the last folder
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield new_files
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        for path in new_files:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise


def _write_parts(folder: Path, parts: Parts, new_files: list[Path]) -> dict[str, dict[str, Any]]:
    """Write the parts that are not stored yet, and add them to ``new_files``; returns size and sha-256 of each part."""
    stored_parts = {}
    with contextlib.suppress(OSError, DamagedError):
        stored_parts = parse_draft(_read_bytes(folder / FILE_NAME, MAX_FILE_BYTES))["parts"]
    part_facts: dict[str, dict[str, Any]] = {}
    for name, make_content in parts.items():
        if name in stored_parts and _has_size(folder / name, stored_parts[name]["size"]):
            part_facts[name] = stored_parts[name]
        else:
            raw = make_content()
            part_facts[name] = {"sha256": _sha256(raw), "size": len(raw)}
            if len(raw) > MAX_PART_BYTES:
                raise StoreError(f"A part takes {size_text(len(raw))}; at most {size_text(MAX_PART_BYTES)} are stored.")
            new_files.append(folder / name)
            write_bytes(folder / name, raw)
        if (total_bytes := sum(part["size"] for part in part_facts.values())) > MAX_PARTS_BYTES:
            raise StoreError(f"Its parts take {size_text(total_bytes)}; at most {size_text(MAX_PARTS_BYTES)} fit.")
    return part_facts


def _remove_parts(folder: Path, parts: Parts) -> None:
    """Remove the files of parts that the draft no longer has; failures are retried at the next change."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if PART_PATTERN.fullmatch(path.name) and path.name not in parts:
                path.unlink(missing_ok=True)


def _encode_entry(entry: Mapping[str, Any], kind: str) -> bytes:
    """The entry as one line of JSON. Raises StoreError if it is too large, or JSON cannot hold it."""
    try:
        body = json.dumps(entry, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"The draft of the {kind} holds data that cannot be written as JSON: {error}.") from None
    if len(body) > MAX_PAYLOAD_BYTES:
        raise StoreError(f"The {kind} takes {size_text(len(body))}; at most {size_text(MAX_PAYLOAD_BYTES)} are stored.")
    return body


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    """The content of a file. Raises DamagedError if it is larger than ``max_bytes``, OSError if it cannot be read."""
    with path.open("rb") as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise DamagedError(f"{path.name} has more than {max_bytes:,} bytes")
    return raw


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
