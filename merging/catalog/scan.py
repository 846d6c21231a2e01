"""What may be a model in a folder: walked within bounds, by name only, following no link that leads anywhere else."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from merging.benchmarks.folders import BENCHMARK, HEADS
from merging.checkpoints.references import MODELS_PREFIX, hub_id_of
from merging.files.short_digest import short_digest
from merging.formats import configs
from merging.formats.configs import ADAPTERS, SUFFIXES, WEIGHTS

DEEPEST, MOST = 4, 5000  # folders below the first, and entries that are looked at
OF_A_BENCHMARK = {"data", "runs", "measured", "points", "sweeps"}  # its folders without models
OF_A_CACHE = {"blobs", "refs"}  # of a repository in the Hub's cache, whose snapshots are the models
INDEX = ".index.json"
# What trainers and libraries put beside the weights of a model's folder.
BESIDE = re.compile(
    r"(?:model|pytorch_model)-\d{5}-of-\d{5}\.(?:safetensors|bin)|training_args\.bin|(?:optimizer|scheduler|scaler)\.pt"
    r"|rng_state.*\.pth|tf_model\.h5|flax_model\.msgpack|open_clip_pytorch_model\.(?:bin|pt)|pytorch_model\.bin"
)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A file or a model's folder. ``place`` says where, from the walked folder's name on; text of anybody's.

    ``problem`` is why it is not even opened. ``sure`` says that its name is that of a model.
    """

    reference: str
    path: Path
    place: str
    folder: bool = False
    problem: str = ""
    sure: bool = True

    @property
    def key(self) -> str:
        """A short name for widgets."""
        return short_digest(self.reference)

    @property
    def name(self) -> str:
        """What it would be called: its repository on the Hub, its folder, or its file without the ending."""
        last = self.place.rpartition("/")[2]
        if hub := hub_id_of(str(self.path)):
            return hub
        for suffix in SUFFIXES:
            last = last if self.folder else last.removesuffix(suffix)
        return last


@dataclass(slots=True)
class Listing:
    """What a folder holds: items that may be models, benchmark folders, the names of other files, and what to know."""

    items: list[CatalogEntry] = field(default_factory=list)
    benchmarks: list[CatalogEntry] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def models_folder(name: str, root: Path) -> Listing:
    """What is in one of the folders of $MERGESCOPE_MODELS; references say its name and not where it is."""
    return _walk(root, name, lambda place: f"{MODELS_PREFIX}{place}")


def typed(text: str) -> Listing:
    """What is at a path of one's own: in a folder, or a single file."""
    try:
        path = Path(text).expanduser().resolve()
        folder = path.is_dir()
    except (OSError, ValueError, RuntimeError):  # a NUL, a link in a circle, the home of nobody
        return Listing(notes=["What was typed is no path on this machine."])
    name = path.name or "/"
    if not folder:
        return Listing([CatalogEntry(str(path), path, name)])
    return _walk(path, name, lambda place: str(path / place.partition("/")[2]))


def _walk(root: Path, name: str, refer: Callable[[str], str]) -> Listing:
    found, left = Listing(), MOST
    waiting = deque([(root, name, 0)])
    while waiting:
        folder, place, depth = waiting.popleft()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            found.notes.append(f"{place} cannot be read ({error.strerror}).")
            continue
        entries = [entry for entry in entries if not entry.name.startswith(".")]
        if len(entries) > left:
            found.notes.append(f"{place} holds too much: only the first {MOST:,} files and folders were looked at.")
            waiting.clear()
        entries, left = entries[:left], left - len(entries)
        inner = _Folder(folder, place, entries, refer).read_into(found)
        if depth < DEEPEST:
            waiting.extend((path, f"{place}/{path.name}", depth + 1) for path in inner if left > 0)
        elif inner:
            found.notes.append(f"{place} has folders in it that lie too deep; they were not looked at.")
    return found


@dataclass
class _Folder:
    """One folder of the walk."""

    path: Path
    place: str
    entries: Sequence[os.DirEntry[str]]
    refer: Callable[[str], str]

    def read_into(self, found: Listing) -> list[Path]:
        """Add what is in it; gives the folders in it that are to be walked."""
        files = {entry.name for entry in self.entries if not _is_folder(entry)}
        used = set[str]()
        if configs.ADAPTER in files or files & set(WEIGHTS):
            found.items.append(self._item("", folder=True))
            known = {
                *WEIGHTS,
                *ADAPTERS,
                configs.ADAPTER,
                configs.TRANSFORMERS,
                configs.OPEN_CLIP,
                configs.PREPROCESSOR,
            }
            used = {name for name in files if name in known or BESIDE.fullmatch(name)}
            found.others += [f"{self.place}/{name}" for name in sorted(used - known)]
        benchmark = {BENCHMARK, HEADS} <= files
        if benchmark:
            found.benchmarks.append(self._item("", folder=True))
            used |= {BENCHMARK, HEADS}
        for name in sorted(files - used):
            found.items.append(self._item(name))
        return [path for path in self._inner(found) if not (benchmark and path.name in OF_A_BENCHMARK)]

    def _inner(self, found: Listing) -> Iterator[Path]:
        for entry in self.entries:
            if entry.is_symlink() and _is_folder(entry):
                odd = "is a link to a folder, which is not followed; list the folder itself"
                found.items.append(self._item(entry.name, problem=odd))
            elif _is_folder(entry) and not (self.path.name.startswith("models--") and entry.name in OF_A_CACHE):
                yield Path(entry.path)

    def _item(self, name: str, *, folder: bool = False, problem: str = "") -> CatalogEntry:
        place = f"{self.place}/{name}" if name else self.place
        try:
            place.encode()
        except UnicodeEncodeError:
            problem = "has a name that is no text; rename it"
        sure = folder or bool(problem) or name.endswith((*SUFFIXES, INDEX))
        return CatalogEntry(self.refer(place), self.path / name if name else self.path, place, folder, problem, sure)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle is a file that cannot be opened
        return False
