"""Tables of the charts of scores, with made-up numbers."""

from __future__ import annotations

import string

import numpy as np
import pandas as pd

from viz_tables.base import EXPERTS, names, wilson


def id_ood_scatter(runs: int = 12, seed: int = 0) -> pd.DataFrame:
    """Scores of that many runs: references first, then merges, every fifth from a paper."""
    rng = np.random.default_rng(seed)
    labels = ["Pretrained", "Individual experts", "Weight averaging", "Task arithmetic", "Task arithmetic w/ LwPTV",
              "TIES", "TIES w/ LwPTV", "PCB", "LOT", "Iso-C", "Layer-wise AdaMerging",
              "TIES (LwPTV, Table 2)"]  # fmt: skip
    points = [(0.48, 0.615), (0.905, 0.47), (0.658, 0.613), (0.691, 0.505), (0.728, 0.609), (0.729, 0.578),
              (0.731, 0.603), (0.758, 0.53), (0.827, 0.562), (0.79, 0.59), (0.813, 0.545), (0.72, 0.585)]  # fmt: skip
    kinds = ["pretrained", "individual", *["merge"] * 9, "paper"]
    while len(labels) < runs:
        labels.append(f"Sweep {len(labels) - 11}")
        points.append((float(rng.uniform(0.6, 0.85)), float(rng.uniform(0.5, 0.62))))
        kinds.append("merge")
    inside, outside = np.array(points[:runs]).T
    return pd.DataFrame(
        {
            "run": [f"r{i:03}" for i in range(runs)], "label": labels[:runs], "kind": kinds[:runs], "in_domain": inside,
            "out_of_domain": outside, "h_score": 2 * inside * outside / (inside + outside),
            "in_low": inside - 0.012, "in_high": inside + 0.012,
            "out_low": outside - 0.015, "out_high": outside + 0.015,
            "n_in": 3200, "n_out": 2000,
            "adapts_on_test": ["AdaMerging" in label for label in labels[:runs]],
            "source": ["LwPTV, Table 2" if kind == "paper" else "" for kind in kinds[:runs]],
        }
    )  # fmt: skip


def score_letters(runs: int = 12, seed: int = 0) -> pd.DataFrame:
    """The runs of ``id_ood_scatter`` in domain, each of which shares a letter with the next two."""
    table = id_ood_scatter(runs, seed).sort_values("in_domain", ascending=False, kind="stable")
    table = table[table["kind"] != "paper"].rename(columns={"in_domain": "value", "in_low": "low", "in_high": "high"})
    places = range(2, 2 + len(table))
    letters = ["".join(string.ascii_letters[max(0, place - 4) : place - 1]) for place in places]
    return table[["run", "label", "kind", "value", "low", "high", "adapts_on_test"]].assign(letters=letters, n=3200)


def seed_spread(merges: int = 10, seed: int = 0) -> pd.DataFrame:
    """The scores of merges trained from two seeds, and their means, a row each."""
    rng = np.random.default_rng(seed)
    rows = []
    for merge in range(merges):
        values = rng.uniform(0.5, 0.8) + rng.normal(0, 0.02, 2)
        for run, label, value, half in (
            ("0", "Seed 0", values[0], 0.01), ("1", "Seed 1", values[1], 0.01), ("mean", "Mean", values.mean(), 0.03),
        ):  # fmt: skip
            rows.append(
                (run, label, f"Merge {merge}", value, value - half, value + half, np.nan if half > 0.02 else 3730)
            )
    return pd.DataFrame(rows, columns=["run", "label", "task", "value", "low", "high", "n"])


def tuning_settings(settings: int = 6, seed: int = 0) -> pd.DataFrame:
    """Two kinds of accuracy of settings of fine-tuning, with their intervals."""
    rng = np.random.default_rng(seed)
    rows = [
        (run, label, f"Setting {setting}", rng.uniform(0.01, 0.04), rng.uniform(0.5, 0.9))
        for run, label in (("own", "Experts, own task"), ("merged", "Task Arithmetic"))
        for setting in range(settings)
    ]
    table = pd.DataFrame(rows, columns=["run", "label", "setting", "norm", "value"])
    return table.assign(low=table["value"] - 0.02, high=table["value"] + 0.02, n=960)


def given_scores(runs: int = 4, seed: int = 0) -> pd.DataFrame:
    """Accuracies of every run on two tasks, with n on one of them, and a perplexity."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        for task, n in (("rte", 277), ("qasc, validation", 0)):
            value = float(rng.uniform(0.5, 0.8))
            low, high = wilson(round(value * n), n) if n else (np.nan, np.nan)
            rows.append((f"r{run:03}", f"Merge {run}", task, "accuracy", value, low, high, n or np.nan, "higher", True))
        value = float(rng.uniform(8, 30))
        rows.append((f"r{run:03}", f"Merge {run}", "book", "perplexity", value, np.nan, np.nan, np.nan, "lower", False))
    columns = ["run", "label", "task", "metric", "value", "low", "high", "n", "better", "proportion"]
    return pd.DataFrame(rows, columns=columns).assign(source="given", origin="results.csv")


def plugin_arrows(pairs: int = 6, seed: int = 0) -> pd.DataFrame:
    """That many merges without and with an edit, and two references."""
    rng = np.random.default_rng(seed)
    points = [("pretrained", "pretrained", 0.48, 0.615), ("multitask", "multitask", 0.89, 0.55)]
    for name in names(pairs, "Merge"):
        x, y = rng.uniform(0.6, 0.8), rng.uniform(0.45, 0.6)
        points += [(name, "plain", x, y), (name, "plugged", x + rng.normal(0.01, 0.02), y + rng.uniform(-0.02, 0.08))]
    table = pd.DataFrame(points, columns=["pair", "kind", "in_domain", "out_of_domain"])
    inside, outside = table["in_domain"], table["out_of_domain"]
    return table.assign(
        run=[f"r{i:03}" for i in range(len(table))], label=table["pair"] + ", " + table["kind"],
        h_score=2 * inside * outside / (inside + outside), in_low=inside - 0.02, in_high=inside + 0.02,
        out_low=outside - 0.02, out_high=outside + 0.02, n_in=1920, n_out=1680,
    )  # fmt: skip


def task_accuracy(runs: int = 4, tasks: int = 12, seed: int = 0) -> pd.DataFrame:
    """Accuracy of every run on every task, the first two thirds of the tasks in-domain."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(tasks):
        n, expert, zero_shot = 400, rng.uniform(0.85, 0.99), rng.uniform(0.25, 0.6)
        title = EXPERTS[task] if task < len(EXPERTS) else f"Unseen task {task - len(EXPERTS) + 1}"
        inside = task < (2 * tasks + 2) // 3
        for run in range(runs):
            correct = int(rng.binomial(n, rng.uniform(zero_shot, expert)))
            low, high = wilson(correct, n)
            rows.append((
                f"r{run:03}", f"Merge {run}", f"t{task}", title, inside, correct / n, low, high, n, correct,
                expert if inside else np.nan, zero_shot, 0.1,
            ))  # fmt: skip
    columns = ["run", "label", "task", "title", "in_domain", "accuracy", "low", "high", "n", "correct"]
    return pd.DataFrame(rows, columns=[*columns, "expert", "zero_shot", "chance"])


def storage(runs: int = 4, seed: int = 0) -> pd.DataFrame:
    """Four accounts of every run, the last two in parts; every fourth run has one model per task."""
    rng = np.random.default_rng(seed)
    rows = []
    for run in range(runs):
        whole, models = 5_250_000.0, 8 if run % 4 == 3 else 1
        kept = float(rng.uniform(0.3, 1)) * whole
        parts = [("paper", "task vector", 2 * kept), ("dense", "files", models * whole)]
        parts += [("sparse", "changed tensors", kept), ("sparse", "header", 9_000.0)]
        parts += [("deploy", "merged model", whole), ("deploy", "heads", 31_000.0)]
        parts += [("deploy", "masks", models * whole / 16)] * (models > 1)
        rows += [(f"r{run:03}", f"Merge {run}", *part) for part in parts]
    return pd.DataFrame(rows, columns=["run", "label", "account", "part", "bytes"])


def corrupted_accuracy(runs: int = 4, kinds: int = 6, seed: int = 0) -> pd.DataFrame:
    """Accuracy of the pretrained model, the experts and that many runs at six severities of each kind of corruption."""
    rng = np.random.default_rng(seed)
    models = [("pretrained", "Pretrained", "pretrained"), ("individual", "Individual experts", "individual")]
    models += [(f"r{run:03}", f"Merge {run}", "merge") for run in range(runs)]
    corruptions = ("Mean of all kinds", "Noise", "Blur", "Less contrast", "JPEG", "Pixelation")[:kinds]
    rows = []
    for run, label, kind in models:
        start = float(rng.uniform(0.5, 0.9))
        for corruption in corruptions:
            step = float(rng.uniform(0.01, 0.08))
            rows += [(run, label, kind, corruption, severity, start - step * severity) for severity in range(6)]
    table = pd.DataFrame(rows, columns=["run", "label", "kind", "corruption", "severity", "accuracy"])
    return table.assign(low=table["accuracy"] - 0.02, high=table["accuracy"] + 0.02, n=960)
