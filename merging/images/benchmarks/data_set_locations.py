"""Paths of the data-set files that a benchmark refers to, and checks that these are the files that it was made from.

The digests of the files are in the task's npz and so in the benchmark's own digest. Paths differ between machines and
are in a file beside the npz, where a path is called "place".
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.base.files.atomic import file_hash
from merging.base.files.paths import is_utf8
from merging.base.files.records import write_json
from merging.base.progress import Meter
from merging.base.text import first_few, printable
from merging.models.formats.referenced_model import find_command

LOCATIONS_SUFFIX = ".places.json"  # of the file beside the npz; the name of the task precedes it
DIGESTS_ARRAY = "file_digests"  # the array (F, 32) of an npz with the bytes of the sha-256 of each of F files
SIZES_ARRAY = "file_sizes"  # the array (F,) with their sizes in bytes
HUB_CACHE_PATH = re.compile(r"(?P<kind>dataset|model)s--(?P<id>[^/]+)/snapshots/(?P<revision>[^/]+)/(?P<file>.+)$")
# (path, inode, size, time of change, expected digest) -> whether the file has the digest
_digest_results: dict[tuple[str, int, int, int, str], bool] = {}
_hash_lock = threading.Lock()  # one thread at a time reads large files


@dataclass(frozen=True, slots=True)
class Location:
    """A file with its size in bytes, time of change and sha-256 when the benchmark was made.

    ``column`` is the column of images in a table; it is empty for other files.
    """

    file: Path
    column: str
    size: int
    mtime_ns: int
    digest: str

    @classmethod
    def of_file(cls, file: Path, column: str) -> Location:
        """The location of a file with its current state. Raises OSError if the file cannot be read."""
        state = file.stat()
        return cls(file.absolute(), column, state.st_size, state.st_mtime_ns, file_hash(file))

    @property
    def name(self) -> str:
        """Its name in messages."""
        return printable(self.file.name, 80)

    @property
    def problem(self) -> str:
        """Why the file cannot be used: "is missing" or "has changed"; empty if it can.

        A file of the same size and time of change counts as unchanged; else its digest is compared once per process.
        """
        try:
            state = self.file.stat()
        except OSError:
            return "is missing"
        if state.st_size != self.size:
            return "has changed"
        if state.st_mtime_ns == self.mtime_ns:
            return ""
        key = (str(self.file), state.st_ino, state.st_size, state.st_mtime_ns, self.digest)
        with _hash_lock:
            if key not in _digest_results:
                _digest_results[key] = _has_digest(self.file, self.digest)
        return "" if _digest_results[key] else "has changed"


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return file_hash(path) == digest
    except OSError:
        return False


def locations_file(path: Path) -> Path:
    """The file with the paths of the files that a task's npz refers to."""
    return path.with_suffix(LOCATIONS_SUFFIX)


def write_locations(path: Path, locations: Sequence[Location]) -> None:
    """Write the paths of the files that a task's npz refers to."""
    entries = [
        {"place": str(location.file), "column": location.column, "mtime_ns": location.mtime_ns}
        for location in locations
    ]
    write_json(locations_file(path), {"files": entries})


def read_locations(folder: Path, key: str, digests: NDArray[Any], sizes: NDArray[Any]) -> list[Location]:
    """The files of a task in the order of their numbers, with ``digests`` (F, 32) and ``sizes`` (F,).

    Raises:
        TaskError: the file with their paths is missing or damaged.
    """
    path = locations_file(folder / "data" / f"{key}.npz")
    try:
        entries = json.loads(path.read_bytes())["files"]
        return [
            Location(Path(entry["place"]), str(entry["column"]), int(size), int(entry["mtime_ns"]), bytes(digest).hex())
            for entry, digest, size in zip(entries, digests, sizes, strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise TaskError(
            f"{path.name} of {printable(folder.name)}/ does not state where the images of {key!r} are. Name the folder "
            f"that holds them: {find_command(folder)}."
        ) from None


def describe_missing(folder: Path, title: str, locations: Sequence[Location]) -> str:
    """A sentence on files that cannot be used and how to get them; empty if all exist and are unchanged."""
    problems = [(location, problem) for location in locations if (problem := location.problem)]
    if not problems:
        return ""
    absent = [location.name for location, problem in problems if problem == "is missing"]
    changed = [location.name for location, problem in problems if problem != "is missing"]
    parts = [f"missing: {first_few(absent)}"] if absent else []
    parts += [f"changed since: {first_few(changed)}"] if changed else []
    files = f"{len(problems)} of its {len(locations)} files" if len(locations) > 1 else "its file"
    return (
        f"The images of {printable(title)} are not stored in the benchmark, and {files} cannot be used "
        f"({'; '.join(parts)}). {_fetch_command(problems[0][0])}If they are in another folder now, name it on Models & "
        f"runs under data or with: {find_command(folder)}."
    )


def _fetch_command(location: Location) -> str:
    """A sentence with the command that fetches a file of the Hub again; empty for other files."""
    match = HUB_CACHE_PATH.search(location.file.as_posix())
    if match is None:
        return ""
    name, revision = match["id"].replace("--", "/"), match["revision"]
    return (
        f"They are in the Hub's {match['kind']} {printable(name)}; fetch it again: hf download --repo-type "
        f"{match['kind']} {printable(name)} --revision {printable(revision)}. "
    )


def find_moved_files(locations: Sequence[Location], search_folder: Path, meter: Meter) -> list[Location]:
    """The same files, with those that cannot be used replaced by equal files below ``search_folder`` where they exist.

    Candidates have the same size, and those of the same name come first. A file in the Hub's cache has its digest as
    its name, which was checked on download; other files are read to compute it. Paths that are not UTF-8 are left out,
    since JSON cannot hold them. Raises Cancelled as the meter does.
    """
    needed_sizes = {location.size for location in locations if location.problem}
    by_size: dict[int, list[Path]] = {}
    for parent, _, names in os.walk(search_folder):
        meter.check()
        for name in names:
            path = Path(parent) / name
            with contextlib.suppress(OSError):
                if (size := path.stat().st_size) in needed_sizes and is_utf8(path):
                    by_size.setdefault(size, []).append(path)
    meter.total += sum(size * len(paths) for size, paths in by_size.items())
    return [
        _match_location(location, by_size.get(location.size, []), meter) if location.problem else location
        for location in locations
    ]


def _match_location(location: Location, candidates: Sequence[Path], meter: Meter) -> Location:
    """The location with a candidate's path whose content is equal; unchanged if there is none."""
    for path in sorted(
        candidates, key=lambda path: (path.resolve().name != location.digest, path.name != location.file.name)
    ):
        meter.report_part(0, "Comparing files", printable(path.name, 80))
        if path.resolve().name == location.digest or _has_digest(path, location.digest):
            return replace(location, file=path.absolute(), mtime_ns=path.stat().st_mtime_ns)
        meter.advance(location.size, "Comparing files", printable(path.name, 80))
    return location
