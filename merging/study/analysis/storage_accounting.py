"""The size of a stored merge, counted in four ways from the tables of its run, without reading weights again.

paper    LwPTV, Table 15: four bytes for every nonzero entry of the merged task vector, nothing for their positions
dense    the bytes of the files that were written
sparse   the differences from the pretrained model, every tensor in its smallest encoding, and a header
deploy   everything that a user of the merge needs

A unified merge (EMR) is one vector for all tasks and, for each task, a mask of its scalars and a number that rescales
them. Dead scalars are those of text tensors that published image encoders contain but do not use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from merging.base.files.tables import Table

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.runs.run import Run

ACCOUNTS = ("paper", "dense", "sparse", "deploy")
LEFT_OUT, DENSE, BITMAP, COORDINATES = "left out", "dense", "bitmap", "coordinates"
MIB = 1 << 20
PAPER_BYTES, INDEX_BYTES, RESCALER_BYTES, HEAD_BYTES = 4, 4, 4, 4
UNIFIED, MASKS, RESCALERS, HEADS = "unified task vector", "masks", "rescalers", "heads"

VECTOR, MERGED_VECTOR = "task vector", "merged task vector"  # the second if parts of modules are task vectors, too
REPLACED_PART = "pretrained tensors"  # the part of modules that replaces tensors of the merged model

StorageRow = tuple[str, str, float]  # account, part, bytes


def storage_table(run: Run) -> pd.DataFrame:
    """One row for each account and part: account, part, bytes.

    A merge with one model per task that consists of a shared vector and a mask and a rescaler per task is counted by
    these parts, except under "dense", which counts the files.
    """
    import pandas as pd

    return pd.DataFrame(_list_rows(run), columns=["account", "part", "bytes"]).astype({"bytes": "float64"})


def sum_by_account(run: Run) -> dict[str, float]:
    """{account: bytes of all its parts} of ``storage_table``."""
    sizes: dict[str, float] = {}
    for account, _, size in _list_rows(run):
        sizes[account] = sizes.get(account, 0.0) + float(size)
    return sizes


def _list_rows(run: Run) -> list[StorageRow]:
    tensors = run.plain_table("tensors")
    head_bytes = _count_head_bytes(run, tensors)
    head_rows: list[StorageRow] = [("deploy", HEADS, head_bytes)] if head_bytes else []
    if not run.per_task:
        modules = run.table("modules") if "modules" in run.tables else None
        rows = (
            _count_one_model(tensors, run.sizes)
            if modules is None
            else _count_with_modules(tensors, run.sizes, modules)
        )
    elif "rescalers" in run.tables:
        rows = _count_unified(tensors, run.sizes, len(run.experts))
    else:
        rows = _count_many_models(tensors.frame(), run.table("task_tensors"), run.sizes)
    return [*rows, *head_rows]


def _count_one_model(tensors: Table, sizes: Mapping[str, int]) -> list[StorageRow]:
    return [
        ("paper", VECTOR, PAPER_BYTES * paper_entries(tensors, sizes["dead"])),
        ("dense", "merged model", sizes["files"]),
        ("sparse", "changed tensors", _smallest_encodings(tensors)[1].sum()),
        ("sparse", "header", sizes["header"]),
        ("deploy", "merged model", sizes["files"]),
    ]


def _count_with_modules(tensors: Table, sizes: Mapping[str, int], modules: pd.DataFrame) -> list[StorageRow]:
    """A model and the modules that an adapt put on top of it, part by part: whole, and without zeros.

    Modules that mix weights on top of pretrained tensors make the merged model's versions of these tensors unnecessary.
    Modules may have another precision than the model, so those tensors are counted with the model's bytes per scalar.
    """
    bytes_per_scalar = float((tensors["numel"] * tensors["itemsize"]).sum() / tensors["numel"].sum())
    replaced_bytes = round(int(modules["numel"][modules["part"] == REPLACED_PART].sum()) * bytes_per_scalar)
    rows = [(account, MERGED_VECTOR if part == VECTOR else part, size - replaced_bytes * (account == "deploy"))
            for account, part, size in _count_one_model(tensors, sizes)]  # fmt: skip
    itemsize = (modules["bytes"] // modules["numel"].clip(lower=1)).clip(lower=1)
    compact = tensor_encodings(modules.assign(kept_numel=modules["kept"], itemsize=itemsize))["bytes"]
    for part in dict.fromkeys(modules["part"].astype(str)):
        is_in_part = modules["part"] == part
        sparse_bytes = int(compact[is_in_part].sum())
        counts = (
            PAPER_BYTES * int(modules["kept"][is_in_part].sum()),
            int(modules["bytes"][is_in_part].sum()),
            sparse_bytes,
            sparse_bytes,
        )
        rows += [(account, part, size) for account, size in zip(ACCOUNTS, counts, strict=True)]
    return rows


def _count_unified(tensors: Table, sizes: Mapping[str, int], models: int) -> list[StorageRow]:
    """One vector for all tasks, and for each task a bit for every scalar of the changed tensors and one rescaler."""
    bits = tensors["numel"][tensors["kept_numel"] > 0]
    extra = ((MASKS, models * int((-(-bits // 8)).sum())), (RESCALERS, models * RESCALER_BYTES))
    vector = _smallest_encodings(tensors)[1].sum()
    rows: list[StorageRow] = [
        ("paper", UNIFIED, PAPER_BYTES * paper_entries(tensors, sizes["dead"])),
        ("dense", "models, one per task", sizes["files"]),
        ("sparse", UNIFIED, vector),
        ("sparse", "header", sizes["header"] // models),
        ("deploy", "pretrained model", sizes["files"] // models),
        ("deploy", UNIFIED, vector),
    ]
    return rows + [(account, part, size) for account in ("paper", "sparse", "deploy") for part, size in extra]


def _count_many_models(tensors: pd.DataFrame, by_task: pd.DataFrame, sizes: Mapping[str, int]) -> list[StorageRow]:
    """Models that share nothing are counted one by one."""
    tables = [
        tensors.drop(columns="kept_numel").merge(rows[["tensor", "kept_numel"]], on="tensor")
        for _, rows in by_task.groupby("expert", sort=False)
    ]
    return [
        (
            "paper",
            "task vectors, one per task",
            PAPER_BYTES * sum(paper_entries(table, sizes["dead"]) for table in tables),
        ),
        ("dense", "models, one per task", sizes["files"]),
        ("sparse", "changed tensors", sum(tensor_encodings(table)["bytes"].sum() for table in tables)),
        ("sparse", "headers", sizes["header"]),
        ("deploy", "models, one per task", sizes["files"]),
    ]


def paper_entries(tensors: Table, dead: int = 0) -> int:
    """Entries of the task vector that the paper's table counts, from the columns numel and kept_numel.

    A pruned vector counts by its nonzero entries. A dense vector counts whole, together with the ``dead`` entries of
    unused text tensors, which are always zero. A vector is dense if a bitmap (1 bit for each 32) would not save bytes.
    """
    numel, kept = int(tensors["numel"].sum()), int(tensors["kept_numel"].sum())
    return numel + dead if 32 * kept >= 31 * numel else kept


def tensor_encodings(tensors: pd.DataFrame) -> pd.DataFrame:
    """The smallest encoding of each tensor's changed scalars and its bytes: columns encoding and bytes.

    ``tensors`` has the columns numel, kept_numel and itemsize. Tensors without a change have the encoding "left out"
    and no bytes. If all others are dense, the encoding is a list of whole tensors, which is how LwPTV's masks are
    stored.
    """
    import pandas as pd

    names, sizes = _smallest_encodings(tensors)
    return pd.DataFrame({"encoding": names, "bytes": sizes}, index=tensors.index)


def _smallest_encodings(tensors: Table) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """Names and bytes (n,) of each tensor's smallest encoding."""
    numel, kept, item = (np.asarray(tensors[name], np.int64) for name in ("numel", "kept_numel", "itemsize"))
    costs = {
        DENSE: numel * item,
        BITMAP: -(-numel // 8) + kept * item,
        COORDINATES: kept * (INDEX_BYTES + item),
    }
    sizes = np.stack(list(costs.values()))
    names = np.array(list(costs))[sizes.argmin(axis=0)]  # among equal sizes the first, which is the simplest
    return np.where(kept > 0, names, LEFT_OUT), np.where(kept > 0, sizes.min(axis=0), 0)


def _count_head_bytes(run: Run, tensors: Table) -> int:
    """Bytes of the frozen heads of the merged tasks in float32; 0 if the run's tables do not determine their size."""
    # Only CLIP has these parts; the sizes are those of width × embed_dim and of width.
    numels = dict(zip(tensors["part"], tensors["numel"], strict=True))
    if run.scores is None or not numels.get("class_embedding") or "proj" not in numels:
        return 0
    rows = run.scores[run.scores["task"].isin(run.experts)].drop_duplicates("task")
    return HEAD_BYTES * int(rows["classes"].sum()) * int(numels["proj"] // numels["class_embedding"])
