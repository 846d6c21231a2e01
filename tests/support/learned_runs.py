"""Runs with the tables of methods that learn and of modules, made up for the tests of pages: nothing is learned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import viz_tables

from merging.base.files.records import write_json
from merging.base.files.tables import write_table
from merging.study.runs.run import FACTS, Run
from merging.study.runs.run_store import Store

LAYERWISE, TASKWISE, MODULES, ROUTED, MASKED = (f"aaaa0000000{number}" for number in range(1, 6))
TITLES = {
    LAYERWISE: "Learned by tensor", TASKWISE: "Learned by task", MODULES: "Modules for tasks", ROUTED: "Routed images",
    MASKED: "Masked scalars",
}  # fmt: skip
PLACE = ["tensor", "order", "part"]


def add(folder: Path, like: tuple[str, ...] = ("ties",)) -> None:
    """Put a run of each kind into a library, each with the scores and the tensors of its run of the chain ``like``."""
    library = Store(folder / "nothing", libraries=(folder / "runs",))
    base = next(run for run in library.list_runs() if run.chain == like)
    making = Store(folder / "learned", libraries=(), dated=False)
    for run_id, tables in _tables(base).items():
        _write(making, base, run_id, tables)
        shutil.move(making.root / "runs" / run_id, folder / "runs" / run_id)


def _write(store: Store, base: Run, run_id: str, tables: dict[str, pd.DataFrame]) -> None:
    facts = json.loads((base.path / FACTS).read_text("utf-8"))
    adapted = {"adapted_on": "reporting" if run_id in (LAYERWISE, MODULES) else "choosing"} if run_id != MASKED else {}
    adapted |= {"adapt": "surgery"} if run_id == MODULES else {}
    with store.write_run(run_id) as folder:
        for name in base.files:
            if name != FACTS:
                (folder / name).parent.mkdir(exist_ok=True)
                shutil.copy(base.path / name, folder / name)
        schemas = {name: write_table(folder, name, table) for name, table in tables.items()}
        write_json(
            folder / FACTS,
            facts | {"id": run_id, "title": TITLES[run_id], "tables": facts["tables"] | schemas} | adapted,
        )


def _tables(base: Run) -> dict[str, dict[str, pd.DataFrame]]:
    """The tables of every kind of run, for the experts and the tensors of ``base``."""
    experts, tensors = list(base.experts), base.table("tensors")
    routing = _routing(experts)
    return {
        LAYERWISE: _coefficients(experts, tensors),
        TASKWISE: _coefficients(experts, pd.DataFrame({"tensor": [""], "order": [0], "part": [""]})),
        MODULES: {"feature_shift": _shift(experts)},
        ROUTED: {"routing": routing, "confusion": _confusion(experts)},
        MASKED: _masks(experts, tensors),
    }


def _coefficients(experts: list[str], tensors: pd.DataFrame, steps: int = 41) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    cells = pd.concat([tensors[PLACE].assign(expert=expert) for expert in experts], ignore_index=True)
    speed = rng.uniform(-1, 2, len(cells)) / 200
    history = [cells.assign(step=step, coefficient=0.3 + step * speed) for step in range(0, steps, 10)]
    pruned = (cells["order"] % 7 == 3) & (cells["tensor"] != "")
    final = cells.assign(coefficient=(0.7 * history[-1]["coefficient"]).mask(pruned), pruned=pruned)
    rows: list[Any] = []
    for expert in experts:
        own = speed[(cells["expert"] == expert).to_numpy()]
        for step in range(steps):
            now = 0.3 + step * own
            loss = 0.4 * np.exp(-step / 20) + rng.uniform(0.1, 0.12)
            rows.append((step, expert, loss, now.mean(), now.min(), now.max(), float((now <= 0).mean())))
    columns = ["step", "expert", "loss", "coefficient_mean", "coefficient_min", "coefficient_max", "at_zero"]
    steps_table = pd.concat(history, ignore_index=True)
    kept = steps_table[~((steps_table["order"] % 7 == 3) & (steps_table["tensor"] != ""))]
    return {
        "coefficients": final[["expert", *PLACE, "coefficient", "pruned"]],
        "coefficient_steps": kept[["step", "expert", *PLACE, "coefficient"]].reset_index(drop=True),
        "learning": pd.DataFrame(rows, columns=columns),
    }


def _shift(experts: list[str]) -> pd.DataFrame:
    table = viz_tables.feature_shift(len(experts))
    return table.assign(task=experts).drop(columns="title")


def _routing(experts: list[str]) -> pd.DataFrame:
    frames = [
        viz_tables.routing_map(len(experts), 2, seed).assign(
            expert=lambda table: np.tile(experts, len(table) // len(experts)), task=task
        )
        for seed, task in enumerate(experts)
    ]
    return pd.concat(frames, ignore_index=True)


def _confusion(experts: list[str]) -> pd.DataFrame:
    table = viz_tables.router_confusion(len(experts), 1)
    tasks = [*experts, "unseen"]
    return table.assign(
        task=np.repeat(tasks, len(experts)), expert=np.tile(experts, len(tasks)),
    )[["task", "expert", "share", "n"]]  # fmt: skip


def _masks(experts: list[str], tensors: pd.DataFrame) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)
    cells = pd.concat([tensors[[*PLACE, "numel"]].assign(expert=expert) for expert in experts], ignore_index=True)
    kept = (cells["numel"] * rng.uniform(0, 0.2, len(cells))).astype(int)
    pairs = [(a, b, 1.0 if a == b else float(rng.uniform(0, 0.3))) for a in experts for b in experts]
    return {
        "localization": cells.assign(kept=kept)[["expert", *PLACE, "kept", "numel"]],
        "overlap": pd.DataFrame(pairs, columns=["expert", "other", "share"]),
    }
