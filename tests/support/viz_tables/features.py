"""Tables of the charts of features, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, wilson
from viz_tables.masks import saliency_matrix


def feature_map(runs: int = 4, images: int = 40, seed: int = 0) -> pd.DataFrame:
    """The same images in as many clouds."""
    rng = np.random.default_rng(seed)
    frames = []
    for run in range(runs):
        task, label = np.arange(images) % 3, rng.integers(0, 4, images)
        frames.append(
            pd.DataFrame(
                {
                    "run": f"r{run:03}", "label": f"Merge {run}", "image": [f"t{t}:{i}" for i, t in enumerate(task)],
                    "x": rng.normal(3 * label, 1), "y": rng.normal(2 * task, 1), "task": [f"t{t}" for t in task],
                    "title": [names(3)[t] for t in task], "truth": [f"class {c}" for c in label],
                    "predicted": "class 0", "before": "class 1", "group": [names(3)[t] for t in task],
                    "distance": rng.uniform(0, 2, images),
                }
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def feature_moves(runs: int = 4, images: int = 40, seed: int = 0) -> pd.DataFrame:
    """The same images with their moves to as many runs."""
    rng, table = np.random.default_rng(seed), feature_map(runs, images, seed)
    shifts = rng.gamma(1, 0.3, (len(table), 2))
    return table.assign(
        x0=table["x"] - shifts[:, 0], y0=table["y"] - shifts[:, 1], move=np.hypot(*shifts.T) / 20,
        displacement=rng.uniform(0, 0.5, len(table)),
    )  # fmt: skip


def feature_separability(runs: int = 4, tasks: int = 7, seed: int = 0) -> pd.DataFrame:
    """Numbers of as many models on several data sets."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        for task, title in enumerate(names(tasks, "Task")):
            correct = int(rng.integers(60, 190))
            found = (rng.uniform(-0.1, 0.4), correct / 200, rng.uniform(0.1, 2), *wilson(correct, 200), 200, 10)
            rows.append((f"r{run:03}", f"Merge {run}", f"t{task}", title, *found))
    columns = ["run", "label", "task", "title", "silhouette", "knn", "scatter", "low", "high", "n", "classes"]
    return pd.DataFrame(rows, columns=columns)


def feature_distance(runs: int = 4, bins: int = 30, seed: int = 0) -> pd.DataFrame:
    """Histograms of as many runs over the same bins."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, 6, bins + 1)
    frames = []
    for run in range(runs):
        values = rng.gamma(4 + run % 4, 0.4, 500).clip(0, 6)
        count = np.histogram(values, edges)[0]
        bars = {"low": edges[:-1], "high": edges[1:], "count": count, "share": count / 500}
        frames.append(pd.DataFrame({"run": f"r{run:03}", "label": f"Merge {run}", **bars, "mean": values.mean()}))
    return pd.concat(frames, ignore_index=True).assign(n=500)


def feature_components(blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """One expert's saliency with the component of each tensor."""
    table = saliency_matrix(1, blocks, seed)
    component = [
        "Attention" if p.startswith("attn") else "MLP" if p.startswith("mlp") else "Other" for p in table["part"]
    ]
    return table.assign(component=component)


def feature_layers(blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """The same for the chart by layer."""
    return feature_components(blocks, seed)
