"""The folders of opened packs: files of results from elsewhere, unpacked, which stores read as libraries.

A pack that was uploaded is in the store, in packs/NAME-DIGEST, until it is closed. Packs that a server was started with
are in folders that an environment variable lists, so that the processes of jobs read them, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from merging.base import settings
from merging.base.files.short_digest import SHORT_DIGEST

FOLDER, SUFFIX = "packs", ".msc"  # in a store; of the file of a pack
FOLDERS_VARIABLE = "MERGESCOPE_PACK_FOLDERS"  # set for the processes of a server that was started with packs
RUNS, BENCHMARKS = "runs", "benchmarks"  # folders in that of a pack
FOLDER_NAME = re.compile(rf"([^/\\]{{1,60}})-{SHORT_DIGEST.pattern}")


def list_pack_folders(root: Path | None = None) -> list[Path]:
    """The folders of all opened packs: those of this server, then those in the store at ``root``."""
    started_with = [Path(text) for text in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if text]
    folders = {folder.name: folder for folder in [*list_uploaded(root), *started_with]}
    return list(folders.values())


def list_uploaded(root: Path | None = None) -> list[Path]:
    """The folders of the packs that are opened in the store at ``root``, by name."""
    try:
        folders = sorted(((root or settings.store_root()) / FOLDER).iterdir())
    except OSError:
        return []
    return [folder for folder in folders if FOLDER_NAME.fullmatch(folder.name)]


def list_libraries(benchmark_folder: Path, root: Path | None = None) -> tuple[Path, ...]:
    """The libraries of runs that a store at ``root`` reads on a benchmark: the benchmark's own, then opened packs."""
    return benchmark_folder / RUNS, *(folder / RUNS for folder in list_pack_folders(root))


def pack_name(path: Path) -> str:
    """The name of the pack, such as results.msc, that a result or a benchmark is in; empty for other paths."""
    if len(path.parents) < 3 or path.parents[2].name != FOLDER:
        return ""
    match = FOLDER_NAME.fullmatch(path.parents[1].name)
    return f"{match[1]}{SUFFIX}" if match else ""
