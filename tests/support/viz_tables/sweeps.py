"""Tables of the charts of sweeps, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, wilson


def sweep_lines(points: int = 11, recipes: int = 2, seed: int = 0) -> pd.DataFrame:
    """Averages along an axis of that many values, for two recipes: one falls, one rises."""
    rng = np.random.default_rng(seed)
    rows = []
    for line in range(recipes):
        for index, x in enumerate(np.linspace(0, 1, points)):
            inside, outside = 0.8 - 0.2 * x + rng.normal(0, 0.01), 0.5 + 0.1 * x + rng.normal(0, 0.01)
            scores = (inside, inside - 0.02, inside + 0.02, outside, outside - 0.02, outside + 0.02)
            h_score = 2 * inside * outside / (inside + outside)
            rows.append((str(line), f"Recipe {line}", x, f"p{line}{index:03}", *scores, h_score, 1024, 896))
    scores = ["in_domain", "in_low", "in_high", "out_of_domain", "out_low", "out_high", "h_score"]
    return pd.DataFrame(rows, columns=["line", "label", "x", "point", *scores, "n_in", "n_out"])


def sweep_tasks(tasks: int = 8, points: int = 5, seed: int = 0) -> pd.DataFrame:
    """Accuracy of two recipes on that many tasks at every value, every third task out of domain."""
    rng = np.random.default_rng(seed)
    rows = []
    for line in range(2):
        for index, x in enumerate(np.linspace(0, 1, points)):
            for task, title in enumerate(names(tasks, "Task")):
                correct = int(rng.binomial(128, 0.5 + 0.4 * x))
                found = (correct / 128, *wilson(correct, 128), 128, correct)
                rows.append(
                    (str(line), f"Recipe {line}", x, f"p{line}{index}", f"t{task}", title, task % 3 < 2, *found)
                )
    columns = ["line", "label", "x", "point", "task", "title", "in_domain", "accuracy", "low", "high", "n", "correct"]
    return pd.DataFrame(rows, columns=columns)


def sweep_contour(points: int = 5, seed: int = 0) -> pd.DataFrame:
    """Scores over a square grid with that many points on a side."""
    rng = np.random.default_rng(seed)
    rows = []
    for i, x in enumerate(np.linspace(-0.5, 1, points)):
        for j, y in enumerate(np.linspace(-0.5, 1, points)):
            inside = 0.8 - 0.3 * ((x - 0.3) ** 2 + (y - 0.3) ** 2) + rng.normal(0, 0.005)
            rows.append((x, y, f"p{i:02}{j:02}", inside, inside - 0.2, inside - 0.1, 256, 128))
    columns = ["x", "y", "point", "in_domain", "out_of_domain", "h_score", "n_in", "n_out"]
    return pd.DataFrame(rows, columns=columns)


def sweep_given(tasks: int = 3, points: int = 5, seed: int = 0) -> pd.DataFrame:
    """Accuracies of that many tasks with their mean, and a perplexity, as a program measured them."""
    rng = np.random.default_rng(seed)
    rows = []
    for index, x in enumerate(np.linspace(0, 1, points)):
        point, found = f"p{index}", []
        for task in names(tasks, "Task"):
            correct = int(rng.binomial(64, 0.4 + 0.4 * x))
            found.append(correct / 64)
            low, high = wilson(correct, 64)
            rows.append((task, task, x, point, "accuracy", correct / 64, low, high, "my_eval.py", 64, "higher", True))
        nothing = (float("nan"), float("nan"), "my_eval.py", float("nan"))
        rows.append(("Mean", "Mean", x, point, "accuracy", sum(found) / tasks, *nothing, "", True))
        rows.append(("news", "news", x, point, "perplexity", 20 - 5 * x, *nothing, "lower", False))
    columns = ["series", "label", "x", "point", "metric", "value", "low", "high", "origin", "n", "better", "proportion"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(source="program", mean=table["series"] == "Mean")
