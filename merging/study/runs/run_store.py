"""Stored runs: those of this user, and read-only libraries of precomputed ones."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from merging.base import settings
from merging.base.errors import MergingError, StoreError
from merging.base.files import atomic
from merging.base.files.atomic import DamagedError
from merging.base.files.disk import exists_on_shared_disk
from merging.base.files.locks import hold_lock
from merging.base.files.processes import ProcessId
from merging.base.files.short_digest import SHORT_DIGEST, match_prefix, resolve_prefix
from merging.base.progress import Progress
from merging.base.text import first_few
from merging.recipes.recipe import Recipe
from merging.study.imported_scores import forget_scores
from merging.study.runs.run import FACTS, KIND, RECIPE, THIS_MACHINE, Run
from merging.tasks.context import QUIET, Context
from merging.tasks.quarantine import Damage, Quarantine
from merging.tasks.results import Result, ResultKind, Results

if TYPE_CHECKING:
    from merging.engine.evaluation.stored_features import StoredFeatures

T = TypeVar("T")
APART, DIGITS = "apart", 12  # the folder of runs by benchmark, and the digits of its digest that name each part
DRAFTS, LEARNING = "drafts", "learning"
AGAIN = 1.0  # seconds for which files of a library are taken to be as they were
DEEP = {APART, DRAFTS, "jobs", "uploads"}  # folders of the store that are written to one level further down


class Store:
    """Runs under ``root`` (made when first written to), and in ``libraries``, which are never written to.

    A run is a folder named by its id. A damaged run counts as absent: an own one is moved to ``root``/corrupt, one in a
    library stays, and one warning is logged; ``damaged`` lists both. ``dated=False`` leaves times of creation out, for
    libraries under version control. Of the copies of a run, one with scores on ``benchmark``, a digest, goes first.
    When an own copy that was scored on another benchmark is replaced, it is kept in ``root``/apart without weights.
    """

    def __init__(
        self, root: Path | None = None, libraries: Sequence[Path] = (settings.LIBRARY,), *, dated: bool = True,
        benchmark: str = "",
    ) -> None:  # fmt: skip
        self.root = root or settings.store_root()
        self.libraries = tuple(libraries)
        self.dated, self.benchmark = dated, benchmark
        self._own, self._apart = self.root / "runs", self.root / APART
        self.damaged = Quarantine(self.root)
        self._results = Results(KIND, Run.from_result, self.root, self.libraries, self.damaged)
        self._known: dict[Path, tuple[tuple[int, ...], Run]] = {}  # what was read, with the state of its files then
        self._folders: dict[Path, tuple[int, ...]] = {}  # their own state, when they were read for a list
        self._looked: dict[Path, float] = {}  # when the files of a library's run were looked at last
        atomic.sweep(self._own)

    def list_runs(self) -> list[Run]:
        """Every run that is not damaged: own ones, newest first, then the precomputed ones that are not among them.

        What was written into a file of a precomputed run since it was read is only seen when the run is looked up.
        """
        own = [run for path in _ids(self._own) if (run := self._read(path))]
        own.sort(key=lambda run: run.created or "", reverse=True)
        runs = {run.id: run for run in own}
        apart = [self._apart / self.benchmark[:DIGITS]] if self.benchmark else []
        for library in (*apart, *self.libraries):
            for path in _ids(library):
                present = runs.get(path.name)
                if present is not None and (not self.benchmark or self._on_benchmark(present)):
                    continue
                if (run := self._read_last(path)) and (present is None or self._on_benchmark(run)):
                    runs[run.id] = run
        for path in [path for path in list(self._known) if path.name not in runs]:
            self._known.pop(path, None)  # it is gone
        return list(runs.values())

    def _on_benchmark(self, run: Run) -> bool:
        return run.has_scores and run.benchmark == self.benchmark

    def list_copies(self, run_id: str) -> list[Run]:
        """All copies of a run that are not damaged, the own one first."""
        if not SHORT_DIGEST.fullmatch(run_id):
            return []
        paths = [folder / run_id for folder in (self._own, *_folders(self._apart), *self.libraries)]
        return [run for path in paths if path.is_dir() and (run := self._read_cached(path))]

    def find(self, run_id: str) -> Run | None:
        """The run, a copy with scores before one without, or None."""
        return max(self.list_copies(run_id), key=lambda run: (self._on_benchmark(run), run.has_scores), default=None)

    def resolve_id(self, written: str) -> str:
        """The id of the one run that begins with what is written, at least six digits; else what is written.

        Raises:
            StoreError: several runs begin with it; the message lists them.
        """
        if self.find(written) is not None:
            return written
        titles = {run.id: run.title for run in self.list_runs()}
        if len(several := match_prefix(written, titles)) > 1:
            choices = first_few(f"{run_id} ({titles[run_id]})" for run_id in several)
            raise StoreError(f"{len(several)} runs have ids that begin with {written}: {choices}. Write more digits.")
        return resolve_prefix(written, titles)

    def list_ids(self) -> set[str]:
        """The ids of all stored runs, damaged ones too, from one listing of each folder."""
        folders = (self._own, *_folders(self._apart), *self.libraries)
        return {path.name for folder in folders for path in _ids(folder)}

    def state(self) -> tuple[int, ...]:
        """Numbers that change when a run is added, replaced, deleted or set aside."""
        folders = (self._own, *_folders(self._apart), *self.libraries)
        return tuple(number for each in folders for number in atomic.state_of(each.parent, (each.name,)) or (0,))

    def find_promised(self, run_id: str) -> Run | None:
        """The run or None, for one that should be there: another computer may have stored it a moment ago."""
        if (
            (run := self.find(run_id)) is None
            and SHORT_DIGEST.fullmatch(run_id)
            and exists_on_shared_disk(self._own / run_id)
        ):
            run = self.find(run_id)
        return run

    def get_run(self, run_id: str) -> Run:
        """The run of that id; raises StoreError if there is none."""
        if run := self.find_promised(run_id):
            return run
        raise StoreError(
            f"There is no run {run_id[:40]!r} on this machine. A link that carries the recipe can compute it again."
        )

    def has_run(self, run_id: str) -> bool:
        """Whether the run is stored and not damaged."""
        return self.find(run_id) is not None

    @contextlib.contextmanager
    def write_run(self, run_id: str, *, replace: bool = False) -> Iterator[Path]:
        """A temporary folder that becomes the run if the block ends without an error, and is removed otherwise.

        If another writer was first, its copy stays and ours is dropped; with ``replace`` ours replaces it.

        Raises:
            StoreError: the store cannot be written to, or the disk is full.
        """
        if not SHORT_DIGEST.fullmatch(run_id):
            raise StoreError(f"{run_id[:40]!r} is no id of a run; an id is twelve hexadecimal digits.")

        def stays(old: Path) -> bool:
            if replace:
                self._keep_replaced(old, folder)
            return not replace and self._read(old) is not None

        with atomic.write_folder(self._own, run_id, stays, f"Run {run_id}") as folder:
            yield folder

    def _keep_replaced(self, old: Path, new: Path) -> None:
        """Keep an own run that the new copy replaces, if its scores are on another benchmark."""
        run = self._read(old) if atomic.is_whole(old) else None
        if run is None or not run.benchmark or not (new / FACTS).is_file():
            return
        if json.loads((new / FACTS).read_bytes()).get("benchmark") not in {None, run.benchmark}:
            apart = self._apart / run.benchmark[:DIGITS]
            with atomic.write_folder(apart, run.id, lambda target: False, f"Run {run.id}") as folder:
                _copy_without_models(run, folder)

    def delete(self, run_id: str) -> None:
        """Remove an own run, or only its copy scored on this store's benchmark; raises StoreError if it is not own."""
        copies = self.list_copies(run_id) if self.benchmark else []
        scored = [run.path for run in copies if self._on_benchmark(run) and run.provenance == THIS_MACHINE]
        paths = scored or [self._own / run_id]
        if not SHORT_DIGEST.fullmatch(run_id) or not paths[0].is_dir():
            raise StoreError(f"Run {run_id[:40]!r} is not one of this machine's own, so it cannot be deleted.")
        for path in paths:
            atomic.retire(path, f"Run {run_id}")
        if not self.list_copies(run_id):
            forget_scores(self.root, run_id)

    def delete_models(self, run_id: str) -> None:
        """Remove the weights of an own run; its recipe, tables and scores stay, and the recipe can compute them again.

        Raises:
            StoreError: the run is not one of this machine's own, or the store cannot be written to.
        """
        run = next((run for run in self.list_copies(run_id) if run.path == self._own / run_id), None)
        if run is None:
            raise StoreError(f"Run {run_id[:40]!r} is not one of this machine's own, so its weights stay.")
        if run.models:
            with self.write_run(run_id, replace=True) as folder:
                _copy_without_models(run, folder)

    def learning_file(self, run_id: str) -> Path:
        """The file in which a run that learns keeps its state until it is done."""
        return self.root / LEARNING / f"{run_id}.safetensors"

    def delete_learned(self, run_id: str) -> None:
        """Remove what a run has learned so far; nothing happens if there is nothing."""
        if SHORT_DIGEST.fullmatch(run_id):
            with contextlib.suppress(OSError):
                self.learning_file(run_id).unlink(missing_ok=True)

    def features_folder(self, run_id: str) -> StoredFeatures:
        """Where the features of a run's model on whole splits are kept, so that they need not be computed twice."""
        from merging.engine.evaluation.stored_features import FOLDER, StoredFeatures  # it loads torch

        libraries = tuple(library.parent / FOLDER for library in self.libraries)
        return StoredFeatures(self.root / FOLDER, run_id, libraries)

    def results(self, kind: ResultKind, view: Callable[[Result], T | None]) -> Results[T]:
        """The results of a kind in this store, and in its libraries."""
        libraries = [library.parent / kind.folder for library in self.libraries]
        return Results(kind, view, self.root, libraries, self.damaged)

    def size(self) -> int:
        """Bytes that the own runs take."""
        return sum(path.stat().st_size for path in self._own.rglob("*") if path.is_file())

    def sweep(self) -> None:
        """Remove what dead writers left anywhere in the store, and put back what they had put aside."""
        for folder in (self.root, *_folders(self.root)):
            atomic.sweep(folder)
            if folder.name in DEEP:
                for inner in _folders(folder):
                    atomic.sweep(inner)

    def lock(self, name: str, context: Context = QUIET, work: str = "") -> contextlib.AbstractContextManager[bool]:
        """Wait until no other process computes what has this name; see ``locks.hold_lock``.

        ``work`` says what that process does, "computes the same run" say. The lock only avoids computing a thing twice;
        correctness does not depend on it.
        """

        def report(holder: ProcessId) -> None:
            if context.progress is not None:
                who = f"process {holder.pid}" if holder.pid else "another process"
                who += " of another computer" if holder.is_remote else ""
                context.progress(Progress(f"Waiting for {who}, which {work}", 0, 1, None))

        return hold_lock(self.root / "locks" / f"{name}.lock", context.check, report)

    def _read(self, path: Path) -> Run | None:
        """The run in a folder, read again only where a file changed; a damaged one is set aside and gives None."""
        state = atomic.state_of(path, (atomic.MANIFEST, FACTS))
        known, run = self._known.get(path, ((), None))
        if run is not None and known == state + atomic.state_of(path, run.files):
            return run
        if run := self._results.read(path):
            self._known[path] = state + atomic.state_of(path, run.files), run
        else:
            self._known.pop(path, None)
        return run

    def _read_cached(self, path: Path) -> Run | None:
        """The run in a folder; of one in a library, which a page asks for often, files are looked at once a second."""
        now = time.monotonic()
        if path.parent in self.libraries and now - self._looked.get(path, -AGAIN) < AGAIN:
            return self._read_last(path)
        self._looked[path] = now
        return self._read(path)

    def _read_last(self, path: Path) -> Run | None:
        """The run in a folder as it was read last, if that is still the same folder.

        Libraries are large, and each question to the disk lets all other threads of a busy server run first.
        """
        folder = atomic.state_of(path.parent, (path.name,))
        if path in self._known and self._folders.get(path) == folder:
            return self._known[path][1]
        self._folders[path] = folder
        return self._read(path)


def read_damaged_recipe(damage: Damage) -> Recipe | None:
    """The recipe of a damaged run; None if it is what is damaged, or cannot be read."""
    try:
        files = json.loads((damage.place / atomic.MANIFEST).read_bytes())["files"]
        atomic.verify_file(damage.place, files, RECIPE)
    except DamagedError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the manifest is what is damaged, so the recipe is not
    try:
        return Recipe.from_yaml((damage.place / RECIPE).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, MergingError):
        return None


def _copy_without_models(run: Run, folder: Path) -> None:
    """Copy everything of a run but the weights, and the manifest, which is written again.

    Raises:
        StoreError: a file is damaged; a new manifest would hide that.
    """
    for name in run.files:
        if name not in run.models.values() and name not in run.modules:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(run.file(name), folder / name)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder, by name."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _ids(folder: Path) -> list[Path]:
    """The folders whose names are ids of runs."""
    try:
        return sorted(path for path in folder.iterdir() if SHORT_DIGEST.fullmatch(path.name))
    except OSError:
        return []
