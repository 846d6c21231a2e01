"""Everything that is written through ``merging.base.files``: how it comes to be, how it changes, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tiny
from stored_runs import ID, fill

from merging.base.errors import StoreError
from merging.base.files.atomic import replace_file
from merging.models.formats.safetensors import save
from merging.recipes.recipe import Recipe
from merging.sharing.catalog import model_set_store, uploaded_models
from merging.sharing.export.destination import replace_folder, write_mark
from merging.study.analysis import measurement_store
from merging.study.runs import run
from merging.study.runs.drafts import Drafts
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps.sweep import Axis, Sweep
from merging.tasks.quarantine import Quarantine
from merging.tasks.results import Result, ResultKind, Results

KINDS = {kind.noun: kind for kind in (run.KIND, measurement_store.KIND, points.KIND)}
OLD, NEW, ABSENT, MIXED = 1, 2, 0, -1
TOKEN = "x" * 22
ROWS = 300


@dataclass(frozen=True)
class StoredThing:
    """One stored thing: ``write`` puts a version of it in place of another one, and ``read`` says which is there.

    ``read`` gives ``ABSENT`` for none, and fails if what is there is no version. Errors call it as ``called`` matches.
    ``before`` lists the versions that may be there when ``NEW`` is written, and ``after`` is the one behind that.
    Folders that take the place of others are missing for a moment.
    """

    called: str
    write: Callable[[Path, int], Any]
    read: Callable[[Path], int]
    before: tuple[int, ...] = (ABSENT, OLD)
    after: int = NEW
    folder: bool = False


def results(root: Path, kind: ResultKind) -> Results[Result]:
    """The results of a kind in a store, read as they are."""
    return Results(kind, lambda result: result, root, (), Quarantine(root))


def write_result(root: Path, kind: ResultKind, number: int) -> None:
    """A result all of whose files hold a number, in place of another one."""
    tables = {kind.table or "t": pd.DataFrame({"number": np.full(ROWS, number)})}
    results(root, kind).write(ID, {"number": number}, tables, {"a": np.full(ROWS, number)}, replace=True)


def read_result(found: Result | None) -> int:
    """The number in a result; ``MIXED`` where files are of two versions, which replaced each other meanwhile.

    Raises:
        StoreError: it is damaged. AssertionError: a file is of two versions itself.
    """
    if found is None:
        return ABSENT
    files = ([found.facts["number"]], found.columns(found.kind.table or "t")["number"], found.array("a"))
    numbers = [{int(number) for number in file} for file in files]
    assert all(len(each) == 1 for each in numbers), numbers
    return int(found.facts["number"]) if len(set.union(*numbers)) == 1 else MIXED


def _result(kind: ResultKind) -> StoredThing:
    return StoredThing(
        f"The {kind.noun}", lambda root, number: write_result(root, kind, number),
        lambda root: read_result(results(root, kind).find(ID)), folder=True,
    )  # fmt: skip


def _write_run(root: Path, number: int) -> None:
    with Store(root, libraries=()).write_run(ID, replace=True) as folder:
        fill(folder, title=str(number))
        (folder / "model.safetensors").write_bytes(bytes([number]) * ROWS)


def _read_run(root: Path) -> int:
    found = Store(root, libraries=()).find(ID)
    if found is None:
        return ABSENT
    assert found.table("saliency") is not None
    if not found.has_model:
        return NEW
    try:
        numbers = {*found.file("model.safetensors").read_bytes()}
    except FileNotFoundError:  # replaced since it was found: for a moment there is no such folder
        return _read_run(root)
    assert len(numbers) == 1
    return int(found.title) if numbers == {int(found.title)} else MIXED


def _deletion(root: Path, number: int) -> None:
    if number == OLD:
        _write_run(root, OLD)
    else:
        Store(root, libraries=()).delete(ID)


def _loss_of_weights(root: Path, number: int) -> None:
    if number == OLD:
        _write_run(root, OLD)
    else:
        Store(root, libraries=()).delete_models(ID)


def _set(number: int) -> model_set_store.ModelSet:
    return model_set_store.make_model_set(f"Größe {number}", "/a/b", {"x": "/c/d"})


def _sweep(number: int) -> Sweep:
    recipe = Recipe.build("ties", {}, ["lwptv"], "p.safetensors", {"a": "a.safetensors", "b": "b.safetensors"})
    return Sweep(recipes=(recipe,), axes=(Axis("lwptv.prune_ratio", (0.0, 0.5)),), images=8, title=f"Größe {number}")


def _read_sweep(root: Path) -> int:
    return next(
        (int(each.title.split()[1]) for each in sweep_storage.list_sweeps(Store(root, libraries=())).values()), ABSENT
    )


def _draft(root: Path, number: int) -> None:
    parts = {f"{number}" * 32: lambda: bytes([number]) * ROWS, "f" * 32: lambda: b"of both"}
    Drafts(Store(root, libraries=())).store("report", {"number": number}, TOKEN, parts)


def _read_draft(root: Path) -> int:
    drafts = Drafts(Store(root, libraries=()))
    try:
        number = int(drafts.read("report", TOKEN)["number"])
        assert drafts.read_part("report", TOKEN, "f" * 32) == b"of both"
    except StoreError as error:
        assert "There is no report" in str(error), error
        return ABSENT
    with suppress(StoreError):  # another one has changed it between the two looks
        assert drafts.read_part("report", TOKEN, f"{number}" * 32) == bytes([number]) * ROWS
    return number


def _export(root: Path, number: int) -> None:
    with replace_folder(root / "exports" / "model", overwrite=True) as folder:
        for name in ("a", "b"):
            (folder / name).write_text(str(number))
        write_mark(folder, None, "hf")


def _read_export(root: Path) -> int:
    try:
        texts = {(root / "exports" / "model" / name).read_text() for name in ("a", "b")}
    except FileNotFoundError:
        return ABSENT
    assert len(texts) == 1
    return int(texts.pop())


def _file(root: Path, number: int) -> None:
    with replace_file(root / "exports" / "file.bin") as path:
        path.write_bytes(bytes([number]) * ROWS)


def _read_file(root: Path) -> int:
    try:
        found = (root / "exports" / "file.bin").read_bytes()
    except FileNotFoundError:
        return ABSENT
    assert found == found[:1] * ROWS
    return found[0]


def _upload(root: Path, number: int) -> None:
    save(root.with_name("own.safetensors"), tiny.family(("flags",))[0])
    uploaded_models.store_upload(root, "my model.safetensors", root.with_name("own.safetensors").read_bytes())


THINGS = {
    "a measurement": _result(measurement_store.KIND),
    "a point": _result(points.KIND),
    "a run": StoredThing(f"Run {ID}", _write_run, _read_run, folder=True),
    "a deletion": StoredThing(f"Run {ID}", _deletion, _read_run, (OLD,), ABSENT, folder=True),
    "a loss of weights": StoredThing(f"Run {ID}", _loss_of_weights, _read_run, (OLD,), folder=True),
    "a set": StoredThing(
        "The set", lambda root, number: model_set_store.store_model_set(root, _set(number)),
        lambda root: next((int(each.title.split()[1]) for each in model_set_store.list_model_sets(root)), ABSENT),
    ),
    "a sweep": StoredThing("The sweep", lambda root, n: sweep_storage.store_sweep(_sweep(n), Store(root,
        libraries=())), _read_sweep),
    "a draft": StoredThing("The draft of the report", _draft, _read_draft),
    "an export": StoredThing("(model|/exports)", _export, _read_export, folder=True),
    "a file": StoredThing("file.bin", _file, _read_file),
    "an upload": StoredThing("my_model.safetensors", _upload,
        lambda root: NEW * len(uploaded_models.list_uploads(root)), (ABSENT,)),
}  # fmt: skip


CASES = [(name, before) for name, thing in THINGS.items() for before in thing.before]
