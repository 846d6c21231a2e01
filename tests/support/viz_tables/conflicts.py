"""Tables of the charts of conflicts between experts, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, tensors


def sign_histogram(spaces: int = 5, seed: int = 0) -> pd.DataFrame:
    """Shares of positions in five bins of agreement, before and after pruning."""
    rng = np.random.default_rng(seed)
    rows = []
    for space in range(spaces):
        for state, density, mean in (("before", 1.0, 0.65), ("after", 0.2, 0.86)):
            shares, chances = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5))
            for place in range(5):
                low = 0.5 + place / 10
                rows.append((
                    f"space_{space}", f"Space {space}", state, density, low, low + 0.1, shares[place], chances[place],
                    mean, mean - 0.015, density, 2_000_000,
                ))  # fmt: skip
    columns = ["space", "title", "state", "density", "low", "high", "share", "random", "mean", "null", "kept"]
    return pd.DataFrame(rows, columns=[*columns, "positions"])


def sign_layers(spaces: int = 5, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Agreement of the linear layers of a tower in that many spaces."""
    rng = np.random.default_rng(seed)
    base = _linear(blocks)
    frames = [
        base.assign(space=f"space_{space}", title=f"Space {space}", mean=rng.uniform(0.83, 0.88, len(base)))
        for space in range(spaces)
    ]
    table = pd.concat(frames, ignore_index=True).assign(null=0.845, kept=0.2, positions=90_000)
    return table.assign(excess=table["mean"] - table["null"])


def election_layers(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """What survives the election of the linear layers of a tower."""
    rng = np.random.default_rng(seed)
    base = _linear(blocks)
    frames = [
        base.assign(expert=name, kept=20_000, won=rng.integers(12_000, 18_000, len(base))) for name in names(experts)
    ]
    table = pd.concat(frames, ignore_index=True)
    taken = table["won"] / table.groupby("tensor")["won"].transform("sum")
    return table.assign(survived=table["won"] / table["kept"], taken=taken)


def _linear(blocks: int) -> pd.DataFrame:
    base = tensors(blocks)
    return base[base["role"].isin(["linear", "projection"])]


def task_counts(methods: int = 4, tasks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Accuracies that fall with the number of experts merged, four subsets of each size but the last."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"Method {method}", size, 4 * size + subset, accuracy, accuracy / 0.9, f"{size} tasks", 240 * size)
        for method in range(methods)
        for size in range(2, tasks + 1)
        for subset in range(4 if size < tasks else 1)
        for accuracy in [float(0.9 - 0.05 * size + 0.02 * method + rng.normal(0, 0.01))]
    ]
    return pd.DataFrame(rows, columns=["method", "size", "subset", "accuracy", "normalized", "tasks", "n"])


def rank_truncation(methods: int = 2, cuts: int = 6) -> pd.DataFrame:
    """Accuracies that fall once few ranks are kept."""
    rows = []
    for method in range(methods):
        for group, level in (("in domain", 0.7), ("out of domain", 0.5)):
            for cut in range(cuts):
                kept = 1 - cut / cuts
                accuracy = level - 0.02 * method - 0.2 * (kept < 0.3)
                span = (max(kept - 0.1, 0), min(kept + 0.1, 1), accuracy, accuracy - 0.02, accuracy + 0.02, 1920)
                rows.append((f"Method {method}", group, cut / 10, kept, *span))
    columns = ["method", "group", "cut", "kept", "kept_low", "kept_high", "accuracy", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns)


def pair_matrix(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """Every ordered pair of that many experts, two at least; what is symmetric is."""
    rng = np.random.default_rng(seed)
    known = names(max(experts, 2))
    rows = []
    for j, second in enumerate(known):
        for first in known[:j]:
            numbers = (rng.uniform(-0.2, 0.5), rng.uniform(0.2, 0.6), rng.uniform(0.1, 0.3), 0.11, 1000, 400)
            rows += [(first, second, *numbers), (second, first, *numbers)]
    return pd.DataFrame(rows, columns=["first", "second", "cosine", "conflict", "overlap", "chance", "both", "opposed"])


def pair_depth(blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """One pair in every tensor of a tower of that many blocks."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    value = rng.uniform(-0.1, 0.4, len(base))
    whole = pd.Series(value).groupby(base["section"]).transform("mean")
    return base.assign(value=value, chance=0.0, whole=whole, low=value - 0.1, high=value + 0.1)


def joint_spectrum(directions: int = 40) -> pd.DataFrame:
    """Singular values that fall by a tenth each, to half of a percent of the largest at most."""
    value = 0.9 ** np.arange(directions)
    energy = (value**2).cumsum() / (value**2).sum()
    return pd.DataFrame(
        {"direction": np.arange(1, directions + 1), "value": value, "share": value, "kept": value > 0.01,
         "energy": energy}
    )  # fmt: skip


def joint_energy(experts: int = 8, directions: int = 20, seed: int = 0) -> pd.DataFrame:
    """Row norms and energies, three directions to a column."""
    rng = np.random.default_rng(seed)
    first = 1 + 3 * np.arange(directions)
    frames = []
    for name in names(experts):
        energy = rng.dirichlet(np.ones(directions))
        found = {"norm": rng.uniform(0, 1, directions), "energy": energy, "cumulative": energy.cumsum()}
        frames.append(pd.DataFrame({"expert": name, "first": first, "last": first + 2, **found}))
    return pd.concat(frames, ignore_index=True)


def joint_dropped(experts: int = 4, directions: int = 30, seed: int = 0) -> pd.DataFrame:
    """What is dropped from every row, evenly if renormalized."""
    rng = np.random.default_rng(seed)
    frames = [
        pd.DataFrame(
            {"direction": np.arange(1, directions + 1), "expert": name, "renorm": renorm,
             "dropped": rng.uniform(0.45 if renorm else 0, 0.55 if renorm else 1, directions)}
        )
        for name in names(experts)
        for renorm in (True, False)
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def joint_steps(experts: int = 4, seed: int = 0) -> pd.DataFrame:
    """Reduced matrices of every step, 12 x 10 for each expert."""
    rng = np.random.default_rng(seed)
    owned = [(step, name) for step in ("decomposed", "renormalized", "pruned") for name in names(experts)]
    frames = []
    for step, name in [*owned, ("merged", ""), ("delta", "")]:
        row, column = np.divmod(np.arange(120), 10)
        value = rng.uniform(0, 1, 120)
        frames.append(pd.DataFrame({"step": step, "expert": name, "row": 2 * row, "column": column, "value": value}))
    return pd.concat(frames, ignore_index=True)


def model_map(merges: int = 12, seed: int = 0) -> pd.DataFrame:
    """Positions of the pretrained model, eight experts and some merges."""
    rng = np.random.default_rng(seed)
    rows = [("pretrained", "Pretrained", "pretrained"), *((name, name, "expert") for name in names(8))]
    rows += [(f"run{number}", f"Merge {number}", "merge") for number in range(merges)]
    table = pd.DataFrame(rows, columns=["run", "label", "kind"])
    x, y = rng.normal(0, 3, (2, len(table)))
    return table.assign(x=x, y=y, length=np.hypot(x, y), nearest="Pretrained", distance=rng.uniform(0.5, 2, len(table)))


def layer_spectrum(experts: int = 8, directions: int = 40, seed: int = 0) -> pd.DataFrame:
    """Falling singular values of task vectors, of their sum and of the merged change."""
    rng = np.random.default_rng(seed)
    kinds = [(name, name, "expert") for name in names(experts)]
    kinds += [("sum of task vectors", "Sum of all", "sum"), ("merged change", "Merged", "merged")]
    rows = []
    for matrix, label, kind in kinds:
        values = np.sort(rng.uniform(0.1, 1, directions) * np.exp(-np.arange(directions) / 10))[::-1]
        shares = values**2 / (values**2).sum()
        rows += [(matrix, label, kind, index + 1, *pair) for index, pair in enumerate(zip(values, shares, strict=True))]
    return pd.DataFrame(rows, columns=["matrix", "label", "kind", "direction", "value", "share"])


def rank_depth(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Ranks of task vectors, of their sum and of the merged change in the linear maps of a tower."""
    rng = np.random.default_rng(seed)
    base = _linear(blocks)
    frames = [
        base.assign(matrix=name, title=name, effective=rng.uniform(5, 60, len(base)), full=64, norm=1.2)
        for name in [*names(experts), "sum of task vectors", "merged change"]
    ]
    table = pd.concat(frames, ignore_index=True)
    return table.assign(stable=table["effective"] / 3)


def alignment_depth(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Alignment ratios of experts in the linear maps of a tower."""
    rng = np.random.default_rng(seed)
    base = _linear(blocks)
    frames = [
        base.assign(expert=name, title=name, ratio=rng.uniform(0.3, 1, len(base)), rank=30) for name in names(experts)
    ]
    return pd.concat(frames, ignore_index=True)


def alignment_accuracy(runs: int = 3, tasks: int = 8, seed: int = 0) -> pd.DataFrame:
    """Accuracy kept, which rises with alignment, of some runs on some tasks."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"run{run}", f"Merge {run}", task, task, alignment, kept, kept - 0.04, kept + 0.04, 320)
        for run in range(runs)
        for task in names(tasks)
        for alignment in [rng.uniform(0.4, 0.9)]
        for kept in [float(0.3 + 0.7 * alignment + rng.normal(0, 0.03))]
    ]
    return pd.DataFrame(rows, columns=["run", "label", "task", "title", "alignment", "kept", "low", "high", "n"])
