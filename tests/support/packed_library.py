"""A small library with measurements and a sweep, and a pack of its runs."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tiny_library
from swept_library import run_library_sweep

from merging.images.benchmarks.benchmark import Benchmark
from merging.sharing.packs.pack_runs import pack_runs
from merging.study import measure
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Sweep
from merging.tasks.context import Context

MEASURED = ("drift", "signs", "pairs", "features", "features_in_domain")


@dataclass(frozen=True)
class PackedLibrary:
    """The benchmark with the library, the store with measurements and a sweep, and the pack of some of its runs."""

    folder: Path
    root: Path
    pack: Path
    sweep: Sweep
    run_ids: tuple[str, ...]
    pruned: str  # the id of the run whose edit prunes tensors by saliency

    @property
    def store(self) -> Store:
        """The store in which the packed results are."""
        return Store(self.root, libraries=(self.folder / "runs",))

    def write(self, path: Path) -> Path:
        """Pack the same runs again."""
        return pack_runs(self.run_ids, self.store, [Benchmark.load(self.folder)], path, allowed=["model"]).path


def write(folder: Path) -> PackedLibrary:
    """The library in ``folder``/library, its store beside it, and the pack."""
    library, root = tiny_library.write(folder / "library"), folder / "store"
    benchmark, store = Benchmark.load(library), Store(root, libraries=(library / "runs",))
    runs = {run.title: run for run in store.list_runs() if run.kind == "merge"}
    for run in runs.values():
        for key in MEASURED:
            measure.measure(key, store, benchmark, run.id, context=Context(device="cpu"))
    measure.measure("features", store, benchmark, next(one.id for one in store.list_runs() if one.kind == "pretrained"),
                    context=Context(device="cpu"))  # fmt: skip
    sweep = run_library_sweep(library, root, images=0)
    made = PackedLibrary(library, root, folder / "results.msc", sweep, tuple(run.id for run in runs.values()),
                         next(run.id for run in runs.values() if "lwptv" in run.chain))  # fmt: skip
    made.write(made.pack)
    return made


def read_members(pack: Path) -> dict[str, bytes]:
    """{name: bytes} of a pack, with its manifest."""
    with zipfile.ZipFile(pack) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(members: Mapping[str | zipfile.ZipInfo, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of members as they are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def read_manifest(pack: Path) -> dict:  # type: ignore[type-arg]
    """The manifest of a pack."""
    return dict(json.loads(read_members(pack)["pack.json"]))
