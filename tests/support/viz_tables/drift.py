"""Tables of the charts of drift, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, tensors


def drift_depth(runs: int = 4, tasks: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Drift that grows with depth, of that many runs; of several, the last is the pretrained yardstick."""
    rng = np.random.default_rng(seed)
    sections = ["stem", *(f"block {i}" for i in range(blocks)), "embedding"]
    rows = []
    for run in range(runs):
        kind = "pretrained" if runs > 1 and run == runs - 1 else "merge"
        for task, title in enumerate(names(tasks, "Task")):
            steps = np.cumsum(rng.uniform(0.01, 0.08, len(sections)))
            rows += [
                (f"r{run:03}", f"Merge {run}", kind, f"t{task}", title, section, position, drift, 2 * drift, 240)
                for position, (section, drift) in enumerate(zip(sections, steps, strict=True))
            ]
    columns = ["run", "label", "kind", "task", "title", "section", "position", "cosine", "l1", "n"]
    return pd.DataFrame(rows, columns=columns)


def drift_accuracy(runs: int = 4, tasks: int = 8, seed: int = 0) -> pd.DataFrame:
    """Accuracy lost that grows with drift, with noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        for task, title in enumerate(names(tasks, "Task")):
            drift, expert = rng.uniform(0.05, 0.5), rng.uniform(0.85, 0.98)
            lost = 0.8 * drift + rng.normal(0, 0.05)
            scores = (expert - lost, expert, 240)
            rows.append((f"r{run:03}", f"Merge {run}", f"t{task}", title, drift, 2 * drift, lost, 240, *scores))
    columns = ["run", "label", "task", "title", "cosine", "l1", "lost", "n", "accuracy", "expert", "n_scored"]
    return pd.DataFrame(rows, columns=columns)


def drift_layers(tasks: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Layer-isolated drift of every tensor on that many tasks."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    relative = rng.lognormal(-4, 1.2, len(base))
    frames = []
    for task, title in enumerate(names(tasks, "Task")):
        own = relative * rng.lognormal(0, 0.3, len(base))
        frames.append(base.assign(task=f"t{task}", title=title, relative=own, mean_square=own**2))
    return pd.concat(frames, ignore_index=True)


def drift_tensor(runs: int = 4, tasks: int = 8, seed: int = 0) -> pd.DataFrame:
    """Drift of one layer, run beside run."""
    table = drift_accuracy(runs, tasks, seed)
    return table[["run", "label", "task", "title"]].assign(relative=table["cosine"], mean_square=table["l1"])


def drift_objective(blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """LOT's objective for every tensor of a tower of that many blocks."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    before, least = rng.lognormal(0, 2, len(base)), rng.uniform(0.1, 0.5, len(base))
    return base.assign(
        pretrained=before, least=least * before, mean=(least + 0.3) * before, merged=(least + 0.1) * before
    )


def drift_removed(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """What is removed from every task vector; nothing from some tensors."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    frames = []
    for name in names(experts):
        top = rng.lognormal(-3, 1, len(base)) * (rng.random(len(base)) < 0.8)
        removed = rng.uniform(0, 0.4, len(base)) * (top > 0)
        found = {"removed": removed, "conflicts": 4, "conflict_sum": 2 * top, "conflict_top": top}
        frames.append(base.assign(expert=name, **found))
    return pd.concat(frames, ignore_index=True)


def drift_case_weights(directions: int = 6) -> pd.DataFrame:
    """Weights of two tasks along that many directions."""
    first = np.linspace(1, 0, directions) if directions > 1 else np.array([0.5])
    rows = [
        (direction + 1, task, weight, 0.3 + weight)
        for direction, share in enumerate(first)
        for task, weight in (("task A", share), ("task B", 1 - share))
    ]
    return pd.DataFrame(rows, columns=["direction", "task", "weight", "energy"])


def drift_case_objective(merges: int = 4) -> pd.DataFrame:
    """Drift that is left by that many ways to merge."""
    rows = [
        (f"merge {merge}", task, (0.5 if task == "task A" else 0.4) / (merge + 1))
        for merge in range(merges)
        for task in ("task A", "task B")
    ]
    return pd.DataFrame(rows, columns=["merge", "task", "drift"])


def drift_altered(counts: int = 4, seed: int = 0) -> pd.DataFrame:
    """Losses that fall with the number of exemplars, three draws each; the last part is a gain."""
    rng = np.random.default_rng(seed)
    rows = [
        (2**place, draw, 0.5 / 2**place - 0.01 + rng.normal(0, 0.002), 0.3 + rng.normal(0, 0.01))
        for place in range(counts)
        for draw in range(3)
    ]
    table = pd.DataFrame(rows, columns=["exemplars", "seed", "altered", "fused"])
    return table.assign(lost=table["altered"] + table["fused"], n=1920)


def drift_exemplars(methods: int = 4, seed: int = 0) -> pd.DataFrame:
    """Accuracies that rise with the number of exemplars, three draws each."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"Method {method}", n, draw, 0.5 + 0.04 * np.log2(n) + 0.02 * method + rng.normal(0, 0.01), 8, 1920)
        for method in range(methods)
        for n in (1, 2, 4, 8, 16, 32, 64)
        for draw in range(3)
    ]
    return pd.DataFrame(rows, columns=["method", "exemplars", "seed", "accuracy", "tasks", "n"])


def cka_depths(blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """CKA of every two depths, largest where they are equal."""
    rng = np.random.default_rng(seed)
    rows = [
        (first, second, linear, linear - 0.05, 600)
        for first in range(blocks + 2)
        for second in range(blocks + 2)
        for linear in [float(0.95 * np.exp(-abs(first - second) / 3) + rng.uniform(0, 0.04))]
    ]
    return pd.DataFrame(rows, columns=["depth", "other_depth", "linear", "debiased", "n"])
