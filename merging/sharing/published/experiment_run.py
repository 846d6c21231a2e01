"""One run of an experiment: what is computed, where it is kept, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from merging.base import settings
from merging.models.model_references import BENCHMARKS
from merging.sharing.published.choice import Choice
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.repository_lock import Lock, read_lock, write_lock

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run_store import Store

PUBLISHED_FOLDER = "published"  # the folder of a store that holds what belongs to experiments


@dataclass(frozen=True)
class ExperimentFolders:
    """Where an experiment's own files are: its lock, its choice and its benchmark. ``into`` is a cache of its own."""

    root: Path
    key: str
    into: Path | None = None

    @property
    def folder(self) -> Path:
        """The experiment's folder."""
        return self.root / PUBLISHED_FOLDER / self.key

    @property
    def benchmark_folder(self) -> Path:
        """The folder of its benchmark, among the user's own."""
        return self.root / BENCHMARKS / f"{PUBLISHED_FOLDER}-{self.key}"

    @property
    def rates_folder(self) -> Path:
        """The folder of what was measured on this machine, for all experiments."""
        return self.root / PUBLISHED_FOLDER

    @property
    def lock_cache_folder(self) -> Path | None:
        """Where the lock lies in a cache of its own, so that another machine has it, too."""
        return None if self.into is None else self.into / PUBLISHED_FOLDER / self.key

    def read_lock(self) -> Lock:
        """What is pinned: in the cache that was carried here, whose files are then read, or else here."""
        own = read_lock(self.folder)
        return own if self.lock_cache_folder is None else own.replace_with(read_lock(self.lock_cache_folder))

    def store_lock(self, lock: Lock) -> None:
        """Keep what is pinned where its files are: another cache may have other commits."""
        write_lock(self.lock_cache_folder or self.folder, lock)


def find_folders(key: str, store: Path | None = None, into: Path | None = None) -> ExperimentFolders:
    """Where an experiment's files are, in a store or in the user's own."""
    return ExperimentFolders(store or settings.store_root(), key, into)


@dataclass(frozen=True)
class ExperimentRun:
    """What is run of which experiment, where its files are, and how: the device, and bytes a second at most.

    ``latest`` takes newer commits than those pinned, and ``revisions`` {repository: branch, tag or commit} other ones,
    once that is agreed to.
    """

    experiment: Experiment
    choice: Choice
    folders: ExperimentFolders
    device: str = "auto"
    latest: bool = False
    revisions: Mapping[str, str] = field(default_factory=dict)
    limit_rate: float | None = None

    @property
    def may_change_commits(self) -> bool:
        """Whether other commits may be taken than those pinned."""
        return self.latest or bool(self.revisions)

    def open_store(self, benchmark: Benchmark) -> Store:
        """The store of its runs."""
        from merging.study.runs.run_store import Store

        return Store(self.folders.root, benchmark=benchmark.digest)
