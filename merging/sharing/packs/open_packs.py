"""Opening packs: verified, unpacked into a folder that appears whole or not at all, then read as a library."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from merging.base import settings
from merging.base.errors import MergingError, StoreError
from merging.base.files import atomic, disk
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import is_benchmark
from merging.sharing.packs.pack_file import PackContents, check_label_file, read_pack, read_pack_file
from merging.study.runs.run import KIND, Run
from merging.study.runs.run_store import Store
from merging.tasks.pack_folders import BENCHMARKS, FOLDER, FOLDERS_VARIABLE, RUNS, SUFFIX
from merging.tasks.quarantine import Quarantine
from merging.tasks.results import Results

BENCHMARK_VARIABLE = "MERGESCOPE_BENCHMARK"
MAX_UPLOAD_MB = 64  # a server holds an upload in memory


def open_pack_file(path: Path, root: Path) -> Path:
    """Open the pack at a path in the store at ``root``; returns the folder of its results.

    Raises:
        StoreError: it is not a pack that can be opened, or the store cannot be written to.
    """
    return unpack(read_pack_file(path), path.name, root / FOLDER)


def open_upload(file: IO[bytes], name: str, root: Path) -> Path:
    """Open an uploaded pack called ``name`` in the store at ``root``, like ``open_pack_file``."""
    return unpack(read_pack(file, name), name, root / FOLDER)


def unpack(contents: PackContents, name: str, folder: Path) -> Path:
    """The folder with the members of a pack, in ``folder``; it is named by the pack's ``name`` and digest.

    Raises:
        StoreError: the folder cannot be written to, or a run in the pack is none of this version.
    """
    stem = re.sub(r"[^\w .+()-]", "_", name.removesuffix(SUFFIX)).strip(" .")[:60] or "pack"
    same = sorted(folder.glob(f"*-{contents.digest}"))  # opened before, maybe from a file of another name
    final = same[0] if same else folder / f"{stem}-{contents.digest}"
    if same and atomic.is_whole(final):
        return final
    with atomic.write_folder(folder, final.name, atomic.is_whole, f"The pack {name[:80]}") as unpacked:
        for member, content in contents.members.items():
            path = unpacked / member
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(content)
        _check_unpacked(unpacked, contents, name)
    return final


def _check_unpacked(folder: Path, contents: PackContents, name: str) -> None:
    """Raise StoreError unless every run and benchmark in an unpacked folder can be read."""
    results = Results(KIND, Run.from_result, folder / "none", [folder / RUNS], Quarantine(folder / "none"))
    for run_id in {member.split("/")[1] for member in contents.members if member.startswith(f"{RUNS}/")}:
        if results.read(folder / RUNS / run_id) is None:
            raise StoreError(
                f"{name[:80]} was not opened: run {run_id} is damaged, or of a format that this version does not read."
            )
    for path in (folder / BENCHMARKS).glob("*/data/*.npz"):
        check_label_file(path, name[:80])
    for benchmark_folder in (folder / BENCHMARKS).glob("*"):
        try:
            benchmark = Benchmark.load(benchmark_folder)
        except MergingError as error:
            raise StoreError(f"{name[:80]} was not opened: {error}") from None
        _check_description(benchmark, contents, name)


def _check_description(benchmark: Benchmark, contents: PackContents, name: str) -> None:
    """Raise StoreError unless a benchmark in a pack is only a description, which leads to no file outside the pack."""
    prefix = f"{BENCHMARKS}/{benchmark.folder.name}"
    files = {f"{prefix}/data/{task.key}.npz" for task in benchmark.tasks}
    is_referring = benchmark.has_bundled_images or any(task.is_referenced for task in benchmark.tasks)
    if is_referring or benchmark.packed_digest[:12] != benchmark.folder.name or not files <= contents.members.keys():
        raise StoreError(f"{name[:80]} was not opened: its benchmark {benchmark.folder.name} is not a description.")


def close_pack(folder_name: str, root: Path) -> None:
    """Remove the folder of a pack that was opened in the store at ``root``. Raises StoreError if it stays."""
    atomic.remove_entry(root / FOLDER / Path(folder_name).name, "The pack")


def list_named_packs(extra: Sequence[Path] = ()) -> list[Path]:
    """The files of $MERGESCOPE_PACKS, whose folders stand for all packs in them, and ``extra`` ones.

    Raises:
        StoreError: one does not exist.
    """
    paths = [*extra]
    for text in filter(str.strip, os.environ.get(settings.PACKS_VARIABLE, "").split(os.pathsep)):
        path = Path(text.strip()).expanduser()
        paths += sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    for path in paths:
        if not path.is_file():
            raise StoreError(
                f"There is no pack {path.name}. {settings.PACKS_VARIABLE} and --open name files that `mergescope pack` "
                "wrote."
            )
    return list(dict.fromkeys(paths))


def open_for_server(extra: Sequence[Path] = ()) -> list[Path]:
    """Open the packs of $MERGESCOPE_PACKS and ``extra`` ones for this process and those that it starts.

    If the default benchmark of this process has none of the runs, the one of the first pack becomes the default.
    Returns the folders of the packs.

    Raises:
        StoreError: one cannot be opened.
    """
    files = list_named_packs(extra)
    if not files:
        return []
    folder = settings.store_root().absolute() / "opened" / FOLDER
    if not disk.is_writable(folder):
        folder = Path(tempfile.mkdtemp(prefix="mergescope-")) / FOLDER
        atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    folders = [unpack(read_pack_file(path), path.name, folder) for path in files]
    os.environ[FOLDERS_VARIABLE] = os.pathsep.join(map(str, folders))
    if extra and BENCHMARK_VARIABLE not in os.environ and (benchmark := find_benchmark_of_pack(folders[0])):
        os.environ[BENCHMARK_VARIABLE] = str(benchmark)
    return folders


def find_benchmark_of_pack(folder: Path) -> Path | None:
    """The benchmark on which a pack's runs were scored: a bundled one with its digest, else its description there."""
    described = {Benchmark.load(path).digest: path for path in sorted((folder / BENCHMARKS).glob("*"))}
    if not described:
        return None
    for bundled in settings.BUNDLED_TEAMS.values():
        if is_benchmark(bundled) and library_digest(bundled) in described:
            return bundled
    return next(iter(described.values()))


def library_digest(folder: Path) -> str:
    """The digest of a benchmark by the runs of its library; empty if it has none."""
    runs = Store(folder / "none", libraries=(folder / RUNS,)).list_runs()
    digests = [run.benchmark for run in runs if run.benchmark]
    return max(set(digests), key=digests.count, default="")
