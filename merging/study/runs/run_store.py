"""Stored runs: this machine's own, and read-only libraries of precomputed ones.

A run, named by its id, may have several copies: an own one, own ones with scores on other benchmarks, and precomputed
ones in libraries.
"""

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
from merging.study.imported_scores import delete_scores
from merging.study.runs.run import FACTS, KIND, RECIPE, THIS_MACHINE, Run
from merging.tasks.context import QUIET, Context
from merging.tasks.quarantine import Damage, Quarantine
from merging.tasks.results import Result, ResultKind, Results

if TYPE_CHECKING:
    from merging.engine.evaluation.stored_features import StoredFeatures

T = TypeVar("T")
# The folder of runs by benchmark; digits of a benchmark's digest in folder names.
BY_BENCHMARK, BENCHMARK_DIGITS = "by_benchmark", 12
DRAFTS_FOLDER, LEARNING_FOLDER = "drafts", "learning"
RECHECK_SECONDS = 1.0  # for which files of a library are assumed to be unchanged
# Folders of the store with subfolders that are written to.
NESTED_FOLDERS = {BY_BENCHMARK, DRAFTS_FOLDER, "jobs", "uploads"}


class Store:
    """Runs under ``root`` (made when first written to), and in ``libraries``, which are never written to.

    A run is a folder named by its id. A damaged run counts as absent: an own run is moved to ``root``/corrupt, a run in
    a library remains, and a warning is logged; ``damaged`` lists both kinds. ``dated=False`` omits times of creation,
    for libraries under version control. ``benchmark`` is a digest; among the copies of a run, one with scores on it
    comes first. When a new copy replaces an own one that was scored on another benchmark, the old one is moved to
    ``root``/by_benchmark without its weights.
    """

    def __init__(
        self, root: Path | None = None, libraries: Sequence[Path] = (settings.LIBRARY_FOLDER,), *, dated: bool = True,
        benchmark: str = "",
    ) -> None:  # fmt: skip
        self.root = root or settings.store_root()
        self.libraries = tuple(libraries)
        self.dated, self.benchmark = dated, benchmark
        self._own_folder, self._benchmark_folder = self.root / "runs", self.root / BY_BENCHMARK
        self.damaged = Quarantine(self.root)
        self._results = Results(KIND, Run.from_result, self.root, self.libraries, self.damaged)
        self._cached_runs: dict[Path, tuple[tuple[int, ...], Run]] = {}  # runs with the state of their files when read
        self._folder_states: dict[Path, tuple[int, ...]] = {}  # the state of each run's folder when it was listed
        self._check_times: dict[Path, float] = {}  # when the files of a library's run were last checked
        atomic.remove_leftovers(self._own_folder)

    def list_runs(self) -> list[Run]:
        """Every run that is not damaged: own runs, newest first, then precomputed runs without an own copy.

        A changed file of a precomputed run has no effect on the list until ``find`` reads the run again.
        """
        own_runs = [run for path in _list_run_folders(self._own_folder) if (run := self._read(path))]
        own_runs.sort(key=lambda run: run.created or "", reverse=True)
        runs = {run.id: run for run in own_runs}
        other_own_folders = [self._benchmark_folder / self.benchmark[:BENCHMARK_DIGITS]] if self.benchmark else []
        for library in (*other_own_folders, *self.libraries):
            for path in _list_run_folders(library):
                known_run = runs.get(path.name)
                if known_run is not None and (not self.benchmark or self._has_benchmark_scores(known_run)):
                    continue
                if (run := self._read_unchecked(path)) and (known_run is None or self._has_benchmark_scores(run)):
                    runs[run.id] = run
        for path in [path for path in list(self._cached_runs) if path.name not in runs]:
            self._cached_runs.pop(path, None)  # deleted
        return list(runs.values())

    def _has_benchmark_scores(self, run: Run) -> bool:
        return run.has_scores and run.benchmark == self.benchmark

    def list_copies(self, run_id: str) -> list[Run]:
        """All copies of a run that are not damaged, the own one first."""
        if not SHORT_DIGEST.fullmatch(run_id):
            return []
        paths = [
            folder / run_id for folder in (self._own_folder, *_list_folders(self._benchmark_folder), *self.libraries)
        ]
        return [run for path in paths if path.is_dir() and (run := self._read_cached(path))]

    def find(self, run_id: str) -> Run | None:
        """The run, or None; a copy with scores comes before one without."""
        return max(
            self.list_copies(run_id), key=lambda run: (self._has_benchmark_scores(run), run.has_scores), default=None
        )

    def resolve_id(self, prefix: str) -> str:
        """The id of the only run whose id begins with ``prefix``, at least six digits; otherwise ``prefix``.

        Raises:
            StoreError: several ids begin with it; the message lists them.
        """
        if self.find(prefix) is not None:
            return prefix
        titles = {run.id: run.title for run in self.list_runs()}
        if len(matching_ids := match_prefix(prefix, titles)) > 1:
            choices = first_few(f"{run_id} ({titles[run_id]})" for run_id in matching_ids)
            raise StoreError(
                f"{len(matching_ids)} runs have ids that begin with {prefix}: {choices}. Write more digits."
            )
        return resolve_prefix(prefix, titles)

    def list_ids(self) -> set[str]:
        """The ids of all stored runs, including damaged ones, from one listing of each folder."""
        folders = (self._own_folder, *_list_folders(self._benchmark_folder), *self.libraries)
        return {path.name for folder in folders for path in _list_run_folders(folder)}

    def state(self) -> tuple[int, ...]:
        """Numbers that change when a run is added, replaced, deleted or quarantined."""
        folders = (self._own_folder, *_list_folders(self._benchmark_folder), *self.libraries)
        return tuple(
            number for folder in folders for number in atomic.fingerprint_files(folder.parent, (folder.name,)) or (0,)
        )

    def find_on_shared_disk(self, run_id: str) -> Run | None:
        """The run or None; waits for a shared disk, where another computer may have stored the run a moment ago."""
        if (
            (run := self.find(run_id)) is None
            and SHORT_DIGEST.fullmatch(run_id)
            and exists_on_shared_disk(self._own_folder / run_id)
        ):
            run = self.find(run_id)
        return run

    def get_run(self, run_id: str) -> Run:
        """The run of an id; raises StoreError if there is none."""
        if run := self.find_on_shared_disk(run_id):
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

        If another process wrote the run first, its copy remains and this one is dropped, unless ``replace``.

        Raises:
            StoreError: the store cannot be written to, or the disk is full.
        """
        if not SHORT_DIGEST.fullmatch(run_id):
            raise StoreError(f"{run_id[:40]!r} is not the id of a run; an id is twelve hexadecimal digits.")

        def keeps_old(old: Path) -> bool:
            if replace:
                self._preserve_replaced(old, folder)
            return not replace and self._read(old) is not None

        with atomic.write_folder(self._own_folder, run_id, keeps_old, f"Run {run_id}") as folder:
            yield folder

    def _preserve_replaced(self, old_folder: Path, new_folder: Path) -> None:
        """Copy an own run, before it is replaced, to ``root``/by_benchmark if its scores are on another benchmark."""
        run = self._read(old_folder) if atomic.is_whole(old_folder) else None
        if run is None or not run.benchmark or not (new_folder / FACTS).is_file():
            return
        if json.loads((new_folder / FACTS).read_bytes()).get("benchmark") not in {None, run.benchmark}:
            folder_of_benchmark = self._benchmark_folder / run.benchmark[:BENCHMARK_DIGITS]
            with atomic.write_folder(folder_of_benchmark, run.id, lambda target: False, f"Run {run.id}") as folder:
                _copy_without_models(run, folder)

    def delete(self, run_id: str) -> None:
        """Remove an own run, or only its copies scored on the store's benchmark; raises StoreError if it is not own."""
        copies = self.list_copies(run_id) if self.benchmark else []
        scored = [run.path for run in copies if self._has_benchmark_scores(run) and run.provenance == THIS_MACHINE]
        paths = scored or [self._own_folder / run_id]
        if not SHORT_DIGEST.fullmatch(run_id) or not paths[0].is_dir():
            raise StoreError(f"Run {run_id[:40]!r} is not one of this machine's own, so it cannot be deleted.")
        for path in paths:
            atomic.remove_entry(path, f"Run {run_id}")
        if not self.list_copies(run_id):
            delete_scores(self.root, run_id)

    def delete_models(self, run_id: str) -> None:
        """Remove the weights of an own run; its recipe, tables and scores remain.

        Raises:
            StoreError: the run is not one of this machine's own, or the store cannot be written to.
        """
        run = next((run for run in self.list_copies(run_id) if run.path == self._own_folder / run_id), None)
        if run is None:
            raise StoreError(f"Run {run_id[:40]!r} is not one of this machine's own, so its weights stay.")
        if run.models:
            with self.write_run(run_id, replace=True) as folder:
                _copy_without_models(run, folder)

    def learning_file(self, run_id: str) -> Path:
        """The file with the state of a run that learns, until the run is done."""
        return self.root / LEARNING_FOLDER / f"{run_id}.safetensors"

    def delete_learned_state(self, run_id: str) -> None:
        """Remove the learned state of a run, if there is one."""
        if SHORT_DIGEST.fullmatch(run_id):
            with contextlib.suppress(OSError):
                self.learning_file(run_id).unlink(missing_ok=True)

    def features_folder(self, run_id: str) -> StoredFeatures:
        """The stored features of a run's model on whole splits, which need not be computed twice."""
        from merging.engine.evaluation.stored_features import FOLDER, StoredFeatures  # it loads torch

        libraries = tuple(library.parent / FOLDER for library in self.libraries)
        return StoredFeatures(self.root / FOLDER, run_id, libraries)

    def results(self, kind: ResultKind, read_result: Callable[[Result], T | None]) -> Results[T]:
        """The results of a kind in this store and its libraries."""
        libraries = [library.parent / kind.folder for library in self.libraries]
        return Results(kind, read_result, self.root, libraries, self.damaged)

    def size(self) -> int:
        """Bytes of the own runs."""
        return sum(path.stat().st_size for path in self._own_folder.rglob("*") if path.is_file())

    def sweep(self) -> None:
        """Remove temporary files of crashed writers anywhere in the store, and restore files that they had renamed."""
        for folder in (self.root, *_list_folders(self.root)):
            atomic.remove_leftovers(folder)
            if folder.name in NESTED_FOLDERS:
                for inner in _list_folders(folder):
                    atomic.remove_leftovers(inner)

    def lock(self, name: str, context: Context = QUIET, activity: str = "") -> contextlib.AbstractContextManager[bool]:
        """Hold the lock of a name as soon as no other process does; see ``locks.hold_lock``.

        ``activity`` describes what the other process does, such as "computes the same run". The lock only avoids double
        work; correctness does not depend on it.
        """

        def report(holder: ProcessId) -> None:
            if context.progress is not None:
                holder_text = f"process {holder.pid}" if holder.pid else "another process"
                holder_text += " of another computer" if holder.is_remote else ""
                context.progress(Progress(f"Waiting for {holder_text}, which {activity}", 0, 1, None))

        return hold_lock(self.root / "locks" / f"{name}.lock", context.check, report)

    def _read(self, path: Path) -> Run | None:
        """The run in a folder, read again only if a file changed; None if it is damaged, after quarantining it."""
        state = atomic.fingerprint_files(path, (atomic.MANIFEST, FACTS))
        known_state, run = self._cached_runs.get(path, ((), None))
        if run is not None and known_state == state + atomic.fingerprint_files(path, run.files):
            return run
        if run := self._results.read(path):
            self._cached_runs[path] = state + atomic.fingerprint_files(path, run.files), run
        else:
            self._cached_runs.pop(path, None)
        return run

    def _read_cached(self, path: Path) -> Run | None:
        """The run in a folder; in a library, from which pages read often, files are checked once a second."""
        now = time.monotonic()
        if path.parent in self.libraries and now - self._check_times.get(path, -RECHECK_SECONDS) < RECHECK_SECONDS:
            return self._read_unchecked(path)
        self._check_times[path] = now
        return self._read(path)

    def _read_unchecked(self, path: Path) -> Run | None:
        """The run in a folder as it was read last, if the folder is the same; its files are not checked.

        Libraries are large, and each disk access lets all other threads of a busy server run first.
        """
        folder_state = atomic.fingerprint_files(path.parent, (path.name,))
        if path in self._cached_runs and self._folder_states.get(path) == folder_state:
            return self._cached_runs[path][1]
        self._folder_states[path] = folder_state
        return self._read(path)


def read_damaged_recipe(damage: Damage) -> Recipe | None:
    """The recipe of a damaged run; None if the recipe itself is damaged or cannot be read."""
    try:
        files = json.loads((damage.path / atomic.MANIFEST).read_bytes())["files"]
        atomic.verify_file(damage.path, files, RECIPE)
    except DamagedError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the manifest is damaged; the recipe may be intact
    try:
        return Recipe.from_yaml((damage.path / RECIPE).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, MergingError):
        return None


def _copy_without_models(run: Run, folder: Path) -> None:
    """Copy all files of a run except the weights and the manifest, which is written again.

    Raises:
        StoreError: a file is damaged; a new manifest would hide the damage.
    """
    for name in run.files:
        if name not in run.models.values() and name not in run.modules:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(run.file(name), folder / name)


def _list_folders(folder: Path) -> list[Path]:
    """The folders in a folder, by name."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _list_run_folders(folder: Path) -> list[Path]:
    """The folders whose names are ids of runs."""
    try:
        return sorted(path for path in folder.iterdir() if SHORT_DIGEST.fullmatch(path.name))
    except OSError:
        return []
