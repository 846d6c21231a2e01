"""Where the files of a data set lie that a benchmark refers to, and whether they are the ones that it was made of.

The digests of the files are in the task's npz and so in the benchmark's own digest; paths differ between machines and
are kept apart from it, in a file beside the npz.
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

SUFFIX = ".places.json"  # behind the name of a task
DIGESTS, SIZES = "file_digests", "file_sizes"  # arrays of the npz: (F, 32) bytes of sha-256, and (F,) numbers of bytes
IN_HUB_CACHE = re.compile(r"(?P<kind>dataset|model)s--(?P<id>[^/]+)/snapshots/(?P<revision>[^/]+)/(?P<file>.+)$")
_checked: dict[tuple[str, int, int, int, str], bool] = {}  # file with its state and digest -> whether it has the digest
_hashing = threading.Lock()  # files of gigabytes are read by one thread


@dataclass(frozen=True, slots=True)
class Location:
    """A file and the state in which its digest was taken: its size in bytes, its time of change, its sha-256.

    ``column`` has the images of a table; it is empty for other files.
    """

    file: Path
    column: str
    size: int
    mtime_ns: int
    digest: str

    @classmethod
    def of_file(cls, file: Path, column: str) -> Location:
        """That of a file as it is now. Raises OSError if it cannot be read."""
        state = file.stat()
        return cls(file.absolute(), column, state.st_size, state.st_mtime_ns, file_hash(file))

    @property
    def name(self) -> str:
        """Its name in messages."""
        return printable(self.file.name, 80)

    @property
    def problem(self) -> str:
        """Why the file cannot be used, in words: "is missing", or "has changed"; empty if it can.

        A file of the same size and time of change is taken for unchanged; else its digest is compared, once a process.
        """
        try:
            state = self.file.stat()
        except OSError:
            return "is missing"
        if state.st_size != self.size:
            return "has changed"
        if state.st_mtime_ns == self.mtime_ns:
            return ""
        seen = (str(self.file), state.st_ino, state.st_size, state.st_mtime_ns, self.digest)
        with _hashing:
            if seen not in _checked:
                _checked[seen] = _has_digest(self.file, self.digest)
        return "" if _checked[seen] else "has changed"


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return file_hash(path) == digest
    except OSError:
        return False


def locations_file(path: Path) -> Path:
    """The file that says where the images of a task's npz lie."""
    return path.with_suffix(SUFFIX)


def write_locations(path: Path, locations: Sequence[Location]) -> None:
    """Write where the files lie that a task's npz refers to."""
    entries = [{"place": str(one.file), "column": one.column, "mtime_ns": one.mtime_ns} for one in locations]
    write_json(locations_file(path), {"files": entries})


def read_locations(folder: Path, key: str, digests: NDArray[Any], sizes: NDArray[Any]) -> list[Location]:
    """The files of a task, in the order of their numbers, which have these digests (F, 32) and sizes (F,).

    Raises:
        TaskError: what says where they lie is missing or damaged.
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
            f"{path.name} of {printable(folder.name)}/ does not say where the images of {key!r} lie. Name the folder "
            f"that holds them: {find_command(folder)}."
        ) from None


def describe_missing(folder: Path, title: str, locations: Sequence[Location]) -> str:
    """Which files cannot be used and how to get them, in words; empty if all are there and unchanged."""
    problems = [(one, problem) for one in locations if (problem := one.problem)]
    if not problems:
        return ""
    absent = [one.name for one, problem in problems if problem == "is missing"]
    changed = [one.name for one, problem in problems if problem != "is missing"]
    parts = [f"missing: {first_few(absent)}"] if absent else []
    parts += [f"changed since: {first_few(changed)}"] if changed else []
    files = f"{len(problems)} of its {len(locations)} files" if len(locations) > 1 else "its file"
    return (
        f"The images of {printable(title)} are not stored in the benchmark, and {files} cannot be used "
        f"({'; '.join(parts)}). {_fetch(problems[0][0])}If they lie elsewhere now, name that folder, on Models & runs "
        f"under data or with: {find_command(folder)}."
    )


def _fetch(first: Location) -> str:
    """How a file of the Hub is fetched again; empty for others."""
    match = IN_HUB_CACHE.search(first.file.as_posix())
    if match is None:
        return ""
    name, revision = match["id"].replace("--", "/"), match["revision"]
    return (
        f"They are of the Hub's {match['kind']} {printable(name)}; fetch it again: hf download --repo-type "
        f"{match['kind']} {printable(name)} --revision {printable(revision)}. "
    )


def find_moved(locations: Sequence[Location], search_folder: Path, meter: Meter) -> list[Location]:
    """The same files, those that cannot be used replaced by equal ones below a folder where there are some.

    Candidates have the same size, those of the same name come first. A file of the Hub's cache is called by its digest,
    which was compared when it came; others are read for it. Paths that no file of JSON can hold, since they are not
    UTF-8, are left out. Raises Cancelled as the meter does.
    """
    needed = {one.size for one in locations if one.problem}
    by_size: dict[int, list[Path]] = {}
    for place, _, names in os.walk(search_folder):
        meter.check()
        for name in names:
            path = Path(place) / name
            with contextlib.suppress(OSError):
                if (size := path.stat().st_size) in needed and is_utf8(path):
                    by_size.setdefault(size, []).append(path)
    meter.total += sum(size * len(paths) for size, paths in by_size.items())
    return [_match_location(one, by_size.get(one.size, []), meter) if one.problem else one for one in locations]


def _match_location(one: Location, candidates: Sequence[Path], meter: Meter) -> Location:
    """A file at one of these paths, if one of them has its content; the same location otherwise."""
    for path in sorted(candidates, key=lambda path: (path.resolve().name != one.digest, path.name != one.file.name)):
        meter.report_part(0, "Comparing files", printable(path.name, 80))
        if path.resolve().name == one.digest or _has_digest(path, one.digest):
            return replace(one, file=path.absolute(), mtime_ns=path.stat().st_mtime_ns)
        meter.advance(one.size, "Comparing files", printable(path.name, 80))
    return one
