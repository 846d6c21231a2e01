"""One run of an experiment: the chosen part of it, its folders and its settings."""

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

PUBLISHED_FOLDER = "published"  # of a store: the files of experiments


@dataclass(frozen=True)
class ExperimentFolders:
    """The folders of the files of an experiment: lock, choice and benchmark.

    The lock has the commits and files that later fetches must match.

    ``root`` is the store. ``separate_cache`` holds the downloads and their lock, instead of the Hub's cache, so that it
    can be taken to another machine.
    """

    root: Path
    key: str
    separate_cache: Path | None = None

    @property
    def folder(self) -> Path:
        """The experiment's folder."""
        return self.root / PUBLISHED_FOLDER / self.key

    @property
    def benchmark_folder(self) -> Path:
        """The folder of its benchmark, among the user's benchmarks."""
        return self.root / BENCHMARKS / f"{PUBLISHED_FOLDER}-{self.key}"

    @property
    def rates_folder(self) -> Path:
        """The folder of the rates that were measured on this machine, for all experiments."""
        return self.root / PUBLISHED_FOLDER

    @property
    def separate_lock_folder(self) -> Path | None:
        """The folder of the lock in the separate cache; None without such a cache."""
        return None if self.separate_cache is None else self.separate_cache / PUBLISHED_FOLDER / self.key

    def read_lock(self) -> Lock:
        """The lock in the experiment's folder; entries of the lock in the separate cache take precedence."""
        stored_lock = read_lock(self.folder)
        return (
            stored_lock
            if self.separate_lock_folder is None
            else stored_lock.replace_with(read_lock(self.separate_lock_folder))
        )

    def store_lock(self, lock: Lock) -> None:
        """Store the lock: in the separate cache if there is one, because another cache may have other commits."""
        write_lock(self.separate_lock_folder or self.folder, lock)


def find_folders(key: str, store: Path | None = None, separate_cache: Path | None = None) -> ExperimentFolders:
    """The folders of an experiment, in a store or in the user's default store."""
    return ExperimentFolders(store or settings.store_root(), key, separate_cache)


@dataclass(frozen=True)
class ExperimentRun:
    """A run of an experiment: ``choice`` is the part of the experiment that is run, ``folders`` where its files are.

    With ``latest``, newer commits than the pinned ones are used. ``revisions`` is {repository: branch, tag or commit to
    use instead of the pinned one}. ``bytes_per_second`` limits the rate of downloads; None is unlimited.
    """

    experiment: Experiment
    choice: Choice
    folders: ExperimentFolders
    device: str = "auto"
    latest: bool = False
    revisions: Mapping[str, str] = field(default_factory=dict)
    bytes_per_second: float | None = None

    @property
    def may_change_commits(self) -> bool:
        """Whether commits other than the pinned ones may be used."""
        return self.latest or bool(self.revisions)

    def open_store(self, benchmark: Benchmark) -> Store:
        """The store of its runs."""
        from merging.study.runs.run_store import Store

        return Store(self.folders.root, benchmark=benchmark.digest)
