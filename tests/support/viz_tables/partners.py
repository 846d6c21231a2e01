"""Tables of the charts of a team's subsets, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names


def partner_losses(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """Changes of every task but an expert's own, and out of domain, when the expert joins; two experts at least."""
    rng = np.random.default_rng(seed)
    known = names(max(experts, 2))
    rows = [
        (task, expert, change, change - 0.08, change + 0.08, 0.7, 0.7 + change, 64)
        for expert in known
        for task in (*known, "out of domain")
        if task != expert
        for change in [float(rng.normal(-0.04, 0.08))]
    ]
    return pd.DataFrame(rows, columns=["first", "second", "change", "low", "high", "before", "after", "n"])


def shapley_matrix(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """What every expert brings to every task: most to its own."""
    table = partner_losses(experts, seed).drop(columns=["before", "after"])
    known = names(max(experts, 2))
    own = pd.DataFrame({"first": known, "second": known, "change": 0.3, "low": 0.2, "high": 0.4, "n": 64})
    return pd.concat([own, table], ignore_index=True)


def shapley_waterfall(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """The steps from the pretrained model to all experts."""
    changes = np.random.default_rng(seed).normal(0.02, 0.05, experts)
    after = 0.4 + np.cumsum(changes)
    steps = pd.DataFrame({
        "expert": names(experts), "start": after - changes, "change": changes, "low": changes - 0.03,
        "high": changes + 0.03, "accuracy": after,
    })  # fmt: skip
    last = float(after[-1]) if experts else 0.4
    ends = [{"expert": name, "start": 0.0, "accuracy": value} for name, value in (("Pretrained", 0.4), ("All", last))]
    return pd.concat([pd.DataFrame(ends[:1]), steps, pd.DataFrame(ends[1:])], ignore_index=True)


def best_subsets(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """The best subset of every size by three scores; the last size is not reported yet."""
    rng = np.random.default_rng(seed)
    rows = []
    for metric, level in (("in domain", 0.5), ("out of domain", 0.9), ("H-score", 0.65)):
        for size in range(experts + 1):
            chosen, value = level + 0.02 * size, level + 0.02 * size - float(rng.uniform(0, 0.05))
            reported = (value, value - 0.03, value + 0.03, chosen - value) if size < experts else (np.nan,) * 4
            subset = " + ".join(names(size)) or "pretrained"
            rows.append((metric, metric.capitalize(), size, subset, 5, chosen, *reported, 480))
    columns = ["metric", "label", "size", "subset", "tried", "chosen", "value", "low", "high", "gap", "n"]
    return pd.DataFrame(rows, columns=columns)


def foretold_losses(chains: int = 5, seed: int = 0) -> pd.DataFrame:
    """Four sets of predictors for every chain; the size of teams has no control."""
    rng = np.random.default_rng(seed)
    rows = []
    for chain in names(chains):
        for label in ("All predictors", "Cosine alone", "Pretrained accuracy alone", "Team size alone"):
            rho, control = float(rng.uniform(-0.2, 0.8)), float(rng.uniform(-0.3, 0))
            judged = (control, 0.005 if rho > 0.3 else 0.4) if "size" not in label else (np.nan, np.nan)
            rows.append((label.lower(), label, chain, rho, rho - 0.1, rho + 0.1, *judged, 224, 84))
    columns = ["run", "label", "task", "rho", "low", "high", "control", "p", "n", "teams"]
    return pd.DataFrame(rows, columns=columns)
