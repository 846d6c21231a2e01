"""A small store with something of everything in it, work that is to be killed, and what must hold afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import small_sweeps

from merging.base.files import atomic
from merging.base.files.locks import hold_lock
from merging.base.files.temporary import is_temporary
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.sharing.export import stored_exports
from merging.study import measure
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import Axis
from merging.tasks.context import Context

VISIBLE = ("runs", "measured", "points", "sweeps", "exports", "benchmarks")  # folders of what pages and commands list
VARYING = {"seconds", "created", "work"}  # in JSON files
FACTS = {"run.json", "measured.json"}  # which hold these, so that their hashes vary
Request = Sequence[Any]  # the name of a method of the queue, and its arguments (see nursery.submit)
Entries = dict[str, dict[str, bytes]]  # {"runs/0123…": {file: content}}


@dataclass(frozen=True)
class Work:
    """One job that may be killed: what is asked of the queue, for a store at a path."""

    name: str
    request: Callable[[Path], Request]


@dataclass(frozen=True)
class FaultStore:
    """A store to be copied, and every kind of work on such a copy."""

    root: Path
    works: tuple[Work, ...]

    def copy(self, place: Path) -> Path:
        """A copy of the store in an empty folder."""
        shutil.copytree(self.root, place)
        return place


def write(folder: Path, benchmark: Benchmark) -> FaultStore:
    """Fill a store: a scored run, a measurement of it, half a sweep, an export."""
    folder.mkdir(exist_ok=True)
    root = folder / "store"
    store = Store(root, libraries=())
    recipe = small_sweeps.recipe(benchmark, edits=[])
    fresh = small_sweeps.recipe(benchmark, "weight_averaging")
    run = execute(recipe, store, benchmark=benchmark, context=Context(device="cpu"))
    measure.measure("signs", store, benchmark, run.id, context=Context(device="cpu"))
    sweep = small_sweeps.sweep(benchmark, "task_arithmetic", images=8)
    half = Axis(small_sweeps.RATIO.target, small_sweeps.RATIO.values[:2])
    small_sweeps.run(small_sweeps.sweep(benchmark, images=8, axes=(half,)), store, benchmark)
    sweep_storage.store_sweep(sweep, store)
    assert main([*_exporting(root, run.id), "--store", str(root)]) == 0
    (root / "exports" / f"{run.id}-hf" / "README.md").write_text("An earlier export.")
    works = (
        Work("merge", lambda root: ("submit", fresh.to_yaml())),
        Work("measurement", lambda root: ("measure", "pairs", run.id, str(benchmark.folder))),
        Work("sweep", lambda root: ("sweep", sweep.id, "Small", str(benchmark.folder))),
        Work("export", lambda root: ("command", "export-hf", run.id, "An export", _exporting(root, run.id))),
    )
    return FaultStore(root, works)


def _exporting(root: Path, run_id: str) -> list[str]:
    return stored_exports.export_command(run_id, "hf", stored_exports.default_folder(root, run_id, "hf"), "cpu")


# What must hold


def entries(root: Path) -> Entries:
    """Everything that pages and commands could list, without what varies from one computation to the next."""
    return {
        f"{kind}/{place.name}": _contents(place)
        for kind in VISIBLE
        for place in sorted((root / kind).glob("*"))
    }  # fmt: skip


def _contents(place: Path) -> dict[str, bytes]:
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): _steady(path) for path in files if path.parent.name != "locks"}


def _steady(path: Path) -> bytes:
    if path.suffix != ".json":
        return path.read_bytes()
    return json.dumps(_without(json.loads(path.read_bytes())), sort_keys=True).encode()


def _without(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without(value) for key, value in data.items() if key not in VARYING | FACTS}
    return [_without(value) for value in data] if isinstance(data, list) else data


def check_after_restart(root: Path, before: Entries, after: Entries) -> None:
    """Every entry is as it was or as it was to become; none is missing; nothing temporary is left; locks are free."""
    assert leftovers(root) == []
    now = entries(root)
    assert set(before) <= set(now) <= set(after)
    assert [name for name, files in now.items() if files not in (before.get(name), after[name])] == []
    sealed = [place for kind in ("runs", "measured", "points") for place in (root / kind).glob("*")]
    assert [place.name for place in sealed if not atomic.is_whole(place)] == []
    check_locks_are_free(root)


def leftovers(root: Path) -> list[str]:
    """Temporary files and folders anywhere in a store."""
    return [str(path.relative_to(root)) for path in root.rglob("*") if is_temporary(path.name) or ".tmp" in path.name]


def check_locks_are_free(root: Path) -> None:
    for path in (root / "locks").glob("*"):
        with hold_lock(path, max_seconds=0.0) as got:
            assert got, path.name
