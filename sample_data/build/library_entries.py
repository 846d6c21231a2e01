"""Entries of the library as they lie there: without weights, seconds and dates, with short and packed tables."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from merging.base import settings
from merging.base.files.atomic import MANIFEST, seal
from merging.base.files.records import write_json
from merging.base.files.tables import PACKED_SUFFIX, find_table_file, read_table, write_table
from merging.study.runs import edit_pairs
from merging.study.runs.run import FACTS, SALIENCY, Run
from merging.study.runs.run_store import Store

PACK_ABOVE = 5_000  # bytes of a table or an array
SMALLER = 0.95  # of these bytes that a packed one has at most
# Tables of steps: the significant digits that they keep, and the most steps, but for the last.
HISTORY = {"coefficient_steps": (3, 15), "learning": (3, 250), "learning_adapt": (3, 250)}


def copy_into_library(run: Run) -> Path:
    """Put a run of another store into the library, in place of an older copy; returns its folder there.

    Raises:
        StoreError: a file of the run is damaged.
    """
    with tempfile.TemporaryDirectory(dir=settings.BUNDLED_FOLDER) as folder:
        aside = Store(Path(folder), libraries=(settings.LIBRARY_FOLDER,), dated=False)
        with aside.write_run(run.id) as own:
            for name in {*run.files} - {*run.models.values(), *run.modules}:
                (own / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(run.file(name), own / name)
            facts = json.loads((own / FACTS).read_bytes())
            nothing = {"models": {}, "modules": []}
            write_json(own / FACTS, {name: nothing.get(name, value) for name, value in facts.items()})
        copied = aside.get_run(run.id)
        if SALIENCY in copied.tables and edit_pairs.find_same_saliency(copied, aside.list_runs()):
            copied = without_saliency(copied, aside)
        place = settings.LIBRARY_FOLDER / run.id
        put_entry(copied.path, settings.LIBRARY_FOLDER, FACTS)
        return place


def put_entry(entry: Path, place: Path, facts: str) -> None:
    """Put a copy of one entry into a folder of the library; ``facts`` is the name of its file of facts."""
    with tempfile.TemporaryDirectory(dir=settings.BUNDLED_FOLDER) as folder:
        shutil.copytree(entry, Path(folder) / entry.name)
        remove_seconds(Path(folder), facts)
        place.mkdir(exist_ok=True)
        swap_folder(Path(folder) / entry.name, place / entry.name)


def without_saliency(run: Run, store: Store) -> Run:
    """The run without its table of saliency, which an earlier one of the library has."""
    with store.write_run(run.id, replace=True) as folder:
        shutil.copytree(run.path, folder, dirs_exist_ok=True)
        table_path(folder, SALIENCY).unlink()
        (folder / MANIFEST).unlink()  # a new one is written when the block ends
        facts = json.loads((folder / FACTS).read_bytes())
        del facts["tables"][SALIENCY]
        write_json(folder / FACTS, facts)
    return store.get_run(run.id)


def remove_seconds(root: Path, facts: str) -> None:
    """Leave seconds out of every entry, since they say nothing about another machine; shorten and pack its tables."""
    for path in root.glob(f"*/{facts}"):
        content = json.loads(path.read_bytes())
        if "seconds" in content:
            content["seconds"] = {} if isinstance(content["seconds"], dict) else None
        if "created" in content:
            content["created"] = None
        write_json(path, content)
        for name in content.get("tables", {}).keys() & HISTORY.keys():
            shorten(path.parent, name, content["tables"][name])
        pack(path.parent)
        (path.parent / MANIFEST).unlink()
        seal(path.parent)


def table_path(folder: Path, name: str) -> Path:
    """The file of a table in the folder of a run."""
    return folder / find_table_file({path.relative_to(folder).as_posix() for path in folder.rglob("*")}, name)


def shorten(folder: Path, name: str, schema: Mapping[str, str]) -> None:
    """Round a table of ``HISTORY`` and thin out its steps; what was shortened already stays as it is."""
    place, (digits, most) = table_path(folder, name), HISTORY[name]
    table = read_table(place, schema)
    short = table[table["step"].isin(thin_steps(sorted(set(table["step"])), most))]
    rounded = {
        column: [float(f"{value:.{digits}g}") for value in short[column]] for column in short.select_dtypes("float")
    }
    short = short.assign(**rounded)
    if place.suffix == PACKED_SUFFIX and table.equals(short):
        return
    place.unlink()
    write_table(folder, name, short)


def thin_steps(steps: Sequence[int], most: int) -> set[int]:
    """Every step, every second one, every fourth and so on, so that at most ``most`` stay; and the last one."""
    if len(steps) <= most + 1:  # no more than are left of many
        return set(steps)
    stride = 1
    while len(steps[::stride]) > most:
        stride *= 2
    return {*steps[::stride], *steps[-1:]}


def pack(folder: Path) -> None:
    """Pack the tables of an entry that are larger than ``PACK_ABOVE``, and the arrays that it makes much smaller.

    Equal tables and arrays give equal files.
    """
    for path in (*folder.glob("tables/*.csv"), *folder.glob("*.csv"), *folder.glob("*.npy")):
        content = path.read_bytes()
        packed = gzip.compress(content, 9, mtime=0) if len(content) > PACK_ABOVE else content
        if len(packed) < SMALLER * len(content):
            path.with_name(path.name + PACKED_SUFFIX).write_bytes(packed)
            path.unlink()


def swap_folder(new: Path, place: Path) -> None:
    """Put a folder in another's place, readable for everybody: the store keeps what it writes private."""
    if place.exists():
        shutil.rmtree(place)
    new.rename(place)
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
