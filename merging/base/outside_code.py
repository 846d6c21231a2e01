"""Code that is not part of this program: packages with entry points, the folder of methods, and the digests of both."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from merging.base.files.short_digest import short_digest
from merging.base.modes import is_shared
from merging.base.text import printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

METHODS, MEASUREMENTS, CHARTS = "mergescope.methods", "mergescope.measurements", "mergescope.charts"  # entry points
FOLDER_VARIABLE = "MERGESCOPE_METHODS"  # names the folder of the user's methods
MAX_REASON = 400  # characters of a reason
OUR_FOLDER = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class LoadProblem:
    """Why something outside this program was not loaded: the file or package, the reason, and the line (0: unknown)."""

    place: str
    reason: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.place}{f', line {self.line}' if self.line else ''}: {self.reason}"


@cache
def _scan() -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of our groups among all installed packages, by group; the packages are read once."""
    from importlib.metadata import entry_points

    groups = {group: entry_points().select(group=group) for group in (METHODS, MEASUREMENTS, CHARTS)}
    return {group: tuple(sorted(found, key=lambda one: (one.name, one.value))) for group, found in groups.items()}


def list_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, sorted by name."""
    return _scan()[group]


def forget_entry_points() -> None:
    """Read the installed packages again when they are asked for next."""
    _scan.cache_clear()
    package_digest.cache_clear()


class Keyed(Protocol):
    """Something with a key."""

    @property
    def key(self) -> str:
        """The name that it is called by."""
        ...


T = TypeVar("T", bound=Keyed)


def load_entry_points(group: str, kind: type[T]) -> tuple[dict[str, T], list[LoadProblem]]:
    """What the entry points of a group name, by their names, and the problems of those that are not of a class."""
    found: dict[str, T] = {}
    problems = []
    for entry in list_entry_points(group):
        place = package_text(entry)
        try:
            value = entry.load()
        except Exception as error:
            problems.append(explain_failure(error, place))
            continue
        if not isinstance(value, kind):
            problems.append(LoadProblem(place, f"it is of the type {type(value).__name__}; expected {kind.__name__}."))
        elif value.key != entry.name or entry.name in found:
            reason = f"the key is {value.key!r}, and the entry point {entry.name!r}; "
            problems.append(LoadProblem(place, f"{reason}both must be the same, and each name occurs once."))
        else:
            found[entry.name] = value
    return found, problems


def package_text(entry: EntryPoint) -> str:
    """An entry point in words: 'lab-merges 1.2 (lab_merges.halves)'."""
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package"
    return printable(f"{package} ({entry.value})", 200)


@cache
def package_digest(module: str) -> str:
    """The digest of all Python files of the package that a module is in; it is not imported."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return ""
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [(path, path.relative_to(folder)) for folder in folders for path in sorted(folder.rglob("*.py"))]
    if not folders and spec.origin:
        files = [(Path(spec.origin), Path(Path(spec.origin).name))]
    digest = hashlib.sha256()
    for path, name in files:
        digest.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        digest.update(path.read_bytes())
    return digest.hexdigest()


def list_method_files() -> tuple[list[Path], list[LoadProblem]]:
    """The files of $MERGESCOPE_METHODS, sorted, and why there are none if the variable is set and cannot be followed.

    Where several people use the server, the folder is not read.
    """
    text = os.environ.get(FOLDER_VARIABLE, "").strip()
    if not text:
        return [], []
    if is_shared():
        reason = (
            "Several people use this server, so it loads no methods from a folder. Install them as a package with "
            f"entry points in the group {METHODS}."
        )
        return [], [LoadProblem(FOLDER_VARIABLE, reason)]
    folder = Path(text).expanduser().absolute()
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".py" and path.name[0] not in "._")
    except OSError as error:
        reason = f"{folder} is not a folder that can be read ({error.strerror}). Set the variable to one, or unset it."
        return [], [LoadProblem(FOLDER_VARIABLE, reason)]
    return files, []


def own_sources() -> Iterator[str]:
    """The digests of the code that methods and measurements of others come from, so that workers can be compared."""
    for group in (METHODS, MEASUREMENTS):
        yield from (f"{entry.name} {entry.value} {package_digest(entry.module)}" for entry in list_entry_points(group))
    for path in list_method_files()[0]:
        try:
            yield f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        except OSError:
            yield f"{path.name} cannot be read"


def explain_failure(error: BaseException, place: str, file: str = "") -> LoadProblem:
    """The problem with code that raised an error while it was loaded: a ``file``, or, without one, a package."""
    if isinstance(error, SyntaxError):
        frames = [(error.filename or "", error.lineno or 0)]
        reason = f"it is not valid Python: {error.msg}."
    else:
        frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
        reason = f"{type(error).__name__}: {str(error).rstrip('.') or 'it has no text'}."
    if file:
        line = next((line for name, line in reversed(frames) if name == file), 0)
        return LoadProblem(place, printable(reason, MAX_REASON), line)
    name, line = frames[-1] if frames else ("", 0)
    if Path(name).is_file() and not Path(name).is_relative_to(OUR_FOLDER) and "importlib" not in Path(name).parts:
        reason = f"{Path(name).name}, line {line}: {reason}"
    return LoadProblem(place, printable(reason, MAX_REASON))


def short_name(text: str) -> str:
    """A private name of a module for a file, which no other module has."""
    return f"_mergescope_own_{short_digest(text)}"
