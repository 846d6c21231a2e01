"""Small generated tables of the shape that the charts take, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

EXPERTS = ("Shapes", "Digits", "Stripes", "Letters", "Flags", "Leaves", "Signs", "Tiles")
ROLES = {"weight": "linear", "in_proj_weight": "linear", "bias": "shift", "in_proj_bias": "shift"}
BLOCK = (
    ("ln_1.weight", "ln_1", "norm_scale", 1), ("ln_1.bias", "ln_1", "shift", 1),
    ("attn.in_proj_weight", "attn.in_proj", "linear", 192), ("attn.in_proj_bias", "attn.in_proj", "shift", 3),
    ("attn.out_proj.weight", "attn.out_proj", "linear", 64), ("attn.out_proj.bias", "attn.out_proj", "shift", 1),
    ("ln_2.weight", "ln_2", "norm_scale", 1), ("ln_2.bias", "ln_2", "shift", 1),
    ("mlp.c_fc.weight", "mlp.c_fc", "linear", 256), ("mlp.c_fc.bias", "mlp.c_fc", "shift", 4),
    ("mlp.c_proj.weight", "mlp.c_proj", "linear", 256), ("mlp.c_proj.bias", "mlp.c_proj", "shift", 1),
)  # fmt: skip


def names(number: int, stem: str = "Expert") -> list[str]:
    """That many expert names."""
    return [EXPERTS[i] if i < len(EXPERTS) else f"{stem} {i + 1}" for i in range(number)]


def tensors(blocks: int = 6) -> pd.DataFrame:
    """The tensors of a vision tower: tensor, section, role, part, numel, order; 8 + 12 · blocks rows."""
    rows = [
        ("visual.class_embedding", "embeddings", "embedding", "class_embedding", 64),
        ("visual.positional_embedding", "embeddings", "embedding", "positional_embedding", 64 * 17),
        ("visual.conv1.weight", "embeddings", "conv", "conv1", 64 * 48),
        ("visual.ln_pre.weight", "embeddings", "norm_scale", "ln_pre", 64),
        ("visual.ln_pre.bias", "embeddings", "shift", "ln_pre", 64),
    ]
    for block in range(blocks):
        stem = f"visual.transformer.resblocks.{block}."
        rows += [(stem + name, f"block {block}", role, part, 64 * size) for name, part, role, size in BLOCK]
    rows += [
        ("visual.ln_post.weight", "output", "norm_scale", "ln_post", 64),
        ("visual.ln_post.bias", "output", "shift", "ln_post", 64),
        ("visual.proj", "output", "projection", "proj", 64 * 32),
    ]
    return pd.DataFrame(rows, columns=["tensor", "section", "role", "part", "numel"]).assign(order=range(len(rows)))


def saliency_matrix(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Saliency and masks as LwPTV makes them: own masks of the top 30 %, the final mask their union."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    level = rng.lognormal(-9, 0.8, len(base))
    frames = []
    for name in names(experts):
        saliency = level * rng.lognormal(0, 0.35, len(base))
        kept = saliency > np.sort(saliency)[int(0.7 * len(base))]
        frames.append(base.assign(expert=name, saliency=saliency, kept=kept))
    table = pd.concat(frames, ignore_index=True)
    return table.assign(final=table.groupby("tensor")["kept"].transform("any"))


def saliency_tensor(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """One tensor's rows."""
    rng = np.random.default_rng(seed)
    saliency, threshold = rng.lognormal(-9, 0.5, experts), rng.lognormal(-9, 0.1, experts)
    return pd.DataFrame(
        {"expert": names(experts), "saliency": saliency, "threshold": threshold, "kept": saliency > threshold}
    )


def kept_share(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """The final mask, one row a tensor."""
    table = saliency_matrix(experts, blocks, seed).drop_duplicates("tensor")
    return table[["tensor", "section", "role", "part", "numel", "order"]].assign(kept=table["final"])


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


def task_vector_norms(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Norms of every expert in every section."""
    rng = np.random.default_rng(seed)
    sections = ["embeddings", *(f"block {i}" for i in range(blocks)), "output"]
    rows = [
        (name, section, rng.uniform(0.5, 2), rng.uniform(0.01, 0.06)) for name in names(experts) for section in sections
    ]
    return pd.DataFrame(rows, columns=["expert", "section", "norm", "relative"])


def drift_depth(runs: int = 4, tasks: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Drift that grows with depth, of that many runs; of several, the last is the pretrained yardstick."""
    rng = np.random.default_rng(seed)
    places = ["stem", *(f"block {i}" for i in range(blocks)), "embedding"]
    rows = []
    for run in range(runs):
        kind = "pretrained" if runs > 1 and run == runs - 1 else "merge"
        for task, title in enumerate(names(tasks, "Task")):
            steps = np.cumsum(rng.uniform(0.01, 0.08, len(places)))
            rows += [
                (f"r{run:03}", f"Merge {run}", kind, f"t{task}", title, place, position, drift, 2 * drift, 240)
                for position, (place, drift) in enumerate(zip(places, steps, strict=True))
            ]
    columns = ["run", "label", "kind", "task", "title", "place", "position", "cosine", "l1", "n"]
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


def wilson(correct: int, n: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, p = 1.96, correct / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return float((middle - half) / (1 + z * z / n)), float((middle + half) / (1 + z * z / n))


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


def lineage(experts: int = 8, models: int = 0, others: int = 2) -> pd.DataFrame:
    """A run of that many experts with one edit: one merged model, or one for each of some tasks."""
    shown = names(experts)
    rows = [("base", "pretrained", "CLIP ViT-B/32", "3f9c1ab2", "")]
    rows += [(f"e{i}", "expert", name, f"{i:08x}", "base") for i, name in enumerate(shown)]
    rows += [("s0", "edit", "LwPTV", "prune ratio 0.7", " ".join(f"e{i}" for i in range(experts)))]
    rows += [("s1", "merge", "TIES", "density 0.2", "s0")]
    if models:
        rows += [(f"m{i}", "model", name, "", "s1") for i, name in enumerate(shown[:models])]
    else:
        rows += [("r", "run", "LwPTV → TIES", "91ab03cd", "s1")]
    rows += [(f"o{i}", "other", f"Another run {i}", f"{i:08x}", "") for i in range(others)]
    return pd.DataFrame(rows, columns=["node", "kind", "label", "detail", "parents"])
