"""Tables of the charts that compare two runs, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, tensors


def compare_cells(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Two runs' numbers for every expert and tensor, B above A for the first expert."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    frames = []
    for place, title in enumerate(names(experts)):
        a = rng.uniform(0.05, 0.9, len(base))
        b = a + (0.1 if place == 0 else rng.uniform(-0.05, 0.05, len(base)))
        frames.append(base.assign(row=f"e{place}", title=title, a=a, b=b, difference=b - a))
    return pd.concat(frames, ignore_index=True)


def compare_tensor(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """One tensor's saliency in two runs, the second of which drops what is not salient."""
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(-9, 0.5, experts), rng.lognormal(-9, 0.5, experts)
    limits = {"threshold_a": 1e-4, "threshold_b": 1.2e-4, "merged_a": True, "merged_b": b > 1.2e-4}
    return pd.DataFrame({"expert": names(experts), "a": a, "b": b, "difference": b - a, **limits})


def compare_spectrum(directions: int = 40) -> pd.DataFrame:
    """Two spectra, the second of which falls faster and has a direction less."""
    a, b = 0.9 ** np.arange(directions), 1.1 * 0.85 ** np.arange(directions)
    b[1:][-1:] = np.nan
    return pd.DataFrame({"direction": np.arange(1, directions + 1), "a": a, "b": b, "difference": b - a})


def compare_scores(tasks: int = 8, seed: int = 0) -> pd.DataFrame:
    """Three averages, then that many data sets, every third out of domain."""
    rng = np.random.default_rng(seed)
    heads = [("in_domain", "Mean in domain"), ("out_of_domain", "Mean out of domain"), ("h_score", "H-score")]
    rows = [(scope, title, "Averages", 0.6, 0.62, 0.02, 0.01, 0.03, 3600) for scope, title in heads]
    for task, title in enumerate(names(tasks, "Task")):
        difference, group = rng.normal(0, 0.05), "Out of domain" if task % 3 == 2 else "In domain"
        ends = (difference - 0.03, difference + 0.03)
        rows.append((f"t{task}", title, group, 0.6, 0.6 + difference, difference, *ends, 240))
    return pd.DataFrame(rows, columns=["scope", "title", "group", "a", "b", "difference", "low", "high", "n"])


def compare_agreement(images: int = 240) -> pd.DataFrame:
    """Four cells of some images, in halves."""
    counts = {("right", "right"): 3.0, ("right", "wrong"): 1.5, ("wrong", "right"): 2.0, ("wrong", "wrong"): 3.5}
    rows = [(a, b, images * count / 10, count / 10) for (a, b), count in counts.items()]
    return pd.DataFrame(rows, columns=["a", "b", "count", "share"])


def compare_distance(bins: int = 30, seed: int = 0) -> pd.DataFrame:
    """Histograms of two runs over the same bins, and of the difference."""
    rng = np.random.default_rng(seed)
    a, b = rng.gamma(4, 0.4, 500).clip(0, 6), rng.gamma(5, 0.4, 500).clip(0, 6)
    frames = []
    for panel, values, low in (("a", a, 0), ("b", b, 0), ("difference", b - a, -6)):
        edges = np.linspace(low, 6, bins + 1)
        count = np.histogram(values, edges)[0]
        bars = {"low": edges[:-1], "high": edges[1:], "count": count, "share": count / 500}
        frames.append(pd.DataFrame({"panel": panel, **bars, "mean": values.mean(), "n": 500}))
    return pd.concat(frames, ignore_index=True)
