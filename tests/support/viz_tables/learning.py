"""Tables of the charts of merges that learn and of modules, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, tensors
from viz_tables.scores import id_ood_scatter


def coefficient_map(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Coefficients that rise with depth; every thirtieth tensor is pruned."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    pruned = base["order"] % 30 == 4
    rise = np.linspace(0.15, 0.55, len(base))
    return pd.concat(
        [
            base.assign(expert=name, coefficient=(rise + rng.normal(0, 0.05, len(base))).round(4), pruned=pruned)
            for name in names(experts)
        ],
        ignore_index=True,
    )


def coefficient_steps(experts: int = 8, steps: int = 30, seed: int = 0) -> pd.DataFrame:
    """Coefficients that leave 0.3, at every tenth step."""
    rng = np.random.default_rng(seed)
    rows = []
    for name in names(experts):
        path = 0.3 + np.cumsum(rng.normal(0.002, 0.004, steps + 1)) - 0.002
        rows += [(10 * at, name, value, value - 0.1, value + 0.1) for at, value in enumerate(path)]
    return pd.DataFrame(rows, columns=["step", "expert", "coefficient", "low", "high"])


def learning_loss(experts: int = 8, steps: int = 80, seed: int = 0) -> pd.DataFrame:
    """Losses that fall with noise, at every step."""
    rng = np.random.default_rng(seed)
    rows = []
    for name in names(experts):
        falls = rng.uniform(0.3, 1) * np.exp(-np.arange(steps) / 40) + rng.uniform(0.05, 0.2)
        noisy = falls * rng.lognormal(0, 0.1, steps)
        rows += [(step, name, loss, 0.3 + step / 500, 0.01 * (step > 40)) for step, loss in enumerate(noisy)]
    return pd.DataFrame(rows, columns=["step", "expert", "loss", "coefficient_mean", "at_zero"])


def coefficient_sums(runs: int = 3, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Sums that rise with depth, of that many runs; every other run prunes every fifth tensor."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    frames = []
    for run in range(runs):
        total = np.linspace(1, 4, len(base)) + rng.normal(0, 0.2, len(base))
        total[(base["order"] % 5 == 4) & (run % 2 == 1)] = np.nan
        frames.append(base.assign(run=f"r{run:03}", label=f"Merge {run}", total=total))
    return pd.concat(frames, ignore_index=True)


def entropy_loss(tasks: int = 8, steps: int = 5, seed: int = 0) -> pd.DataFrame:
    """Entropy that falls everywhere, and a loss that turns on every other task."""
    rng = np.random.default_rng(seed)
    rows = []
    for task, title in enumerate(names(tasks, "Task")):
        start = rng.uniform(0.6, 1.4)
        for at in range(steps):
            share = at / max(steps - 1, 1)
            loss = start * (1 - 0.5 * share) if task % 2 else start * (1 - 0.4 * share + 0.7 * share**2)
            rows.append((f"t{task}", title, 50 * at, start * (1 - 0.7 * share), loss, 0.5 + 0.2 * share, 240))
    return pd.DataFrame(rows, columns=["task", "title", "step", "entropy", "loss", "accuracy", "n"])


def learning_arrows(runs: int = 6, seed: int = 0) -> pd.DataFrame:
    """Merges of which every third learns, starting from the one before it."""
    table = id_ood_scatter(runs + 2, seed)
    table = table[table["kind"] != "paper"].drop(columns="source").reset_index(drop=True)
    learned = (table.index % 3 == 0) & (table.index > 2)
    return table.assign(start=table["run"].shift(1).where(learned, ""), adapts_on_test=learned & (table.index % 2 == 0))


def localization_map(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Masks that keep a few percent, more in large tensors."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    frames = [
        base.assign(expert=name, kept=(base["numel"] * rng.beta(1.2, 14, len(base))).astype(int))
        for name in names(experts)
    ]
    return pd.concat(frames, ignore_index=True)


def localization_overlap(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """Shares of every pair of experts, both ways, and of each with itself."""
    rng = np.random.default_rng(seed)
    keys = names(max(experts, 2))
    rows = [(a, b, 1.0 if a == b else rng.uniform(0.02, 0.4)) for a in keys for b in keys]
    return pd.DataFrame(rows, columns=["first", "second", "share"])


def feature_shift(tasks: int = 8, seed: int = 0) -> pd.DataFrame:
    """Shifts of which modules leave about half."""
    rng = np.random.default_rng(seed)
    before = rng.uniform(0.6, 1.2, tasks)
    return pd.DataFrame(
        {
            "task": [f"t{task}" for task in range(tasks)], "title": names(tasks, "Task"), "before": before,
            "after": before * rng.uniform(0.3, 0.7, tasks), "cosine_before": rng.uniform(0.2, 0.4, tasks),
            "cosine_after": rng.uniform(0.05, 0.2, tasks), "n": 240,
        }
    )  # fmt: skip


def routing_map(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Mean weights of every expert in every block."""
    rng = np.random.default_rng(seed)
    rows = []
    for block in range(blocks):
        for at, name in enumerate(names(experts)):
            weight = 0.3 + 0.1 * block * (at == 0) + rng.normal(0, 0.05)
            rows.append((block, name, weight, weight - 0.1, weight + 0.12, 240))
    return pd.DataFrame(rows, columns=["block", "expert", "weight", "low", "high", "n"])


def routing_image(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """The weights of one image."""
    return routing_map(experts, blocks, seed)[["block", "expert", "weight"]]


def routing_own(tasks: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Weights of the own expert, which rise with depth."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"t{task}", title, block, weight := 0.3 + 0.08 * block + rng.normal(0, 0.04), weight - 0.1, weight + 0.1, 240)
        for task, title in enumerate(names(tasks, "Task"))
        for block in range(blocks)
    ]
    return pd.DataFrame(rows, columns=["task", "title", "block", "weight", "low", "high", "n"])


def router_confusion(experts: int = 8, unseen: int = 3, seed: int = 0) -> pd.DataFrame:
    """Shares of images by expert: most of a task's go to its own, those of unseen sets anywhere."""
    rng = np.random.default_rng(seed)
    keys, rows = names(experts), []
    for task in range(experts + unseen):
        inside = task < experts
        shares = rng.dirichlet(np.full(experts, 0.7)) * (0.2 if inside and experts > 1 else 1)
        if inside and experts > 1:
            shares[task] += 0.8
        title = keys[task] if inside else f"Unseen task {task - experts + 1}"
        rows += [(f"t{task}", title, inside, key, share, 240) for key, share in zip(keys, shares, strict=True)]
    return pd.DataFrame(rows, columns=["task", "title", "in_domain", "expert", "share", "n"])


def storage_parts(runs: int = 4, seed: int = 0) -> pd.DataFrame:
    """A merged model each, with heads, and modules and a router for some."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        sizes = [("merged model", 5_250_000), ("heads", 31_000)]
        sizes += [("modules", int(rng.integers(50_000, 4_000_000)))] * (run % 2)
        sizes += [("router", 90_000)] * (run % 4 == 3)
        rows += [(f"r{run:03}", f"Merge {run}", part, size) for part, size in sizes]
    return pd.DataFrame(rows, columns=["run", "label", "part", "bytes"])
