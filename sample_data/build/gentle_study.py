"""Gentler fine-tuning: teams of four experts from the bundled pretrained model, and which claims of papers turn.

    python -m sample_data.build.gentle_study --store FOLDER            resumes where it stopped
    python -m sample_data.build.gentle_study --store FOLDER --tables   computes nothing, writes what is stored

One seed, one thread, the CPU. Every number is measured on the choosing half (240 images per task); experts are float32
files in FOLDER and are not part of the repository. Writes ``gentle_study.csv`` (a row per setting) and
``gentle_claims.csv`` (a row per setting and claim) into sample_data/.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from merging.base.settings import BUNDLED_FOLDER
from merging.engine.evaluation.image_features import compute_features, predict
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.paired_scores import find_interval
from merging.images.benchmarks.resampled_tasks import resample_task
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.papers.claims import CLAIMS, Claim
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import training_tables
from merging.study.measurements.parameter_kinds import ROLES_BY_KIND, reset_roles
from merging.study.paper_facts.comparison import Comparison, Verdict, judge
from merging.study.trials.drm_ablations import CUT_PARAMETER, VARIANTS
from merging.study.trials.exemplar_sensitivity import CANDIDATES, SEEDS
from merging.study.trials.trial_merges import merge_in_memory
from sample_data.build.gentle_tuning import (
    SETTINGS,
    TEAM,
    Setting,
    draw_images,
    measure_vectors,
    prepare_experts,
)
from sample_data.build.tasks import TASKS

OUTSIDE = tuple(task.key for task in TASKS if not task.in_domain)
HALF = "choosing"

# Presets that are measured in and out of domain; those of the last line only for claims.
PRESETS = (
    "weight_averaging", "task_arithmetic", "ties", "ties_mean", "task_arithmetic_lwptv", "ties_lwptv", "pcb", "cat",
    "ties_cat", "tatr", "ties_tatr", "lot", "regmean", "drm_h", "tsv_m", "iso_c", "wudi", "task_arithmetic_dare",
    "dare_ties", "consensus",
    "pcb_lwptv", "task_arithmetic_mean_abs_shared", "task_arithmetic_lwptv_own_masks", "task_arithmetic_pwptv",
    "random_mask",
)  # fmt: skip
FASTER_WUDI = "wudi, learning rate 1e-4"
DENSITIES = tuple(step / 10 for step in range(1, 11))
LINE = (0.25, 0.5, 0.75, 1.25)  # shares of the way from the pretrained model to an expert, besides 0 and 1
SWEPT = {  # the merges at those values of a swept parameter that claims compare
    ("lwptv", 0.0): "task_arithmetic",
    ("lwptv", 0.7): "task_arithmetic_lwptv",
    ("lwptv", 1.0): "pretrained",
    ("lot", 1.0): "lot 1",
    ("lot", 1.5): "lot 1.5",
}
OTHERS = {"TIES-Merging": "ties_mean", "DARE-TIES": "dare_ties", "Weight Averaging": "weight_averaging"}


@dataclass(frozen=True)
class Trial:
    """A merge and the tasks that it answers."""

    recipe: Recipe
    tasks: Sequence[str] = TEAM
    whole_weights: bool = False
    reset: str = ""  # the kind of parameters that are set back to the pretrained ones afterwards


def list_trials(benchmark: Benchmark) -> dict[str, Trial]:
    """All merges of a setting by name."""

    def make(key: str, pair: Sequence[str] = TEAM, **params: Any) -> Recipe:
        preset = find_preset(key)
        experts = {name: benchmark.experts[name] for name in pair}
        return replace(preset, params={**preset.params, **params}).recipe(benchmark.pretrained, experts)

    trials = {key: Trial(make(key), TEAM + OUTSIDE) for key in PRESETS}
    trials[FASTER_WUDI] = Trial(make("wudi", lr=1e-4), TEAM + OUTSIDE)
    for variant in VARIANTS[1:]:
        trials[variant.label] = Trial(make("drm_h", **variant.changed))
    trials["ranks"] = Trial(make("drm_h", **{CUT_PARAMETER: 0.2}))
    trials |= {f"lot {scaling:g}": Trial(make("lot", scaling=scaling)) for scaling in (1.0, 1.5)}
    trials["linear weights"] = Trial(make("lot"), reset="linear weights")
    for key, density in itertools.product(("drm_h", "ties_mean"), DENSITIES):
        trials[f"{key} {density:g}"] = Trial(make(key, density=density, scaling=1.0))
    for key, pair in itertools.product(("drm_h", "ties_mean"), itertools.combinations(TEAM, 2)):
        trials[f"{key} {' '.join(pair)}"] = Trial(make(key, pair), pair)
    counts = {"LOT": (4, 64), "CAT": (1, 32)}
    for one, seed in itertools.product(CANDIDATES, SEEDS):
        for count in counts.get(one.label, ()):
            trials[f"{one.label} {count} {seed}"] = Trial(one.build_recipe(benchmark, count, seed))
    for whole, seed in itertools.product((False, True), SEEDS):
        recipe = CANDIDATES[0]._replace(params={"scaling": 1.0}).build_recipe(benchmark, 1, seed)
        trials[f"altered {whole} {seed}"] = Trial(recipe, whole_weights=whole)
    return trials


def answer(weights: Any, benchmark: Benchmark, tasks: Sequence[str]) -> dict[str, np.ndarray]:
    """For each task, which choosing images a model classifies right (n,) bool."""
    encoder = Encoder.from_checkpoint(open_checkpoint(weights), fallback=benchmark.pretrained_tower)
    right = {}
    for key in tasks:
        images, labels = benchmark.load_images(key, HALF)
        right[key] = (
            predict(compute_features(encoder, benchmark.preprocess(images)), benchmark.load_head(key)) == labels
        )
    return right


def merge_and_answer(trial: Trial, benchmark: Benchmark) -> dict[str, np.ndarray]:
    """``answer`` of a trial's merge, which is not rounded: all files are in single precision."""
    weights = merge_in_memory(trial.recipe, benchmark, whole_weights=trial.whole_weights).state_dict
    if trial.reset:
        weights = reset_roles(open_checkpoint(weights), benchmark.open_pretrained(), ROLES_BY_KIND[trial.reset])
    return answer(weights, benchmark, trial.tasks)


def answer_all(folder: Path) -> None:
    """Store the answers of a setting's pretrained model, experts, lines and merges, unless they are stored."""
    path, benchmark = folder / "answers.npz", Benchmark.load(folder)
    models = {name: load_file(folder / f"models/{name}.safetensors") for name in ("pretrained", *TEAM)}
    base = models["pretrained"]
    plans: dict[str, Any] = {"pretrained": lambda: answer(base, benchmark, TEAM + OUTSIDE)}
    for key in TEAM:
        plans[f"expert {key}"] = lambda key=key: answer(models[key], benchmark, (key, *OUTSIDE))
        for share in LINE:
            plans[f"line {key} {share:g}"] = lambda key=key, share=share: answer(
                {name: value.lerp(models[key][name], share) for name, value in base.items()}, benchmark, (key,)
            )
    for name, trial in list_trials(benchmark).items():
        plans[name] = lambda trial=trial: merge_and_answer(trial, benchmark)
    stored = dict(np.load(path)) if path.exists() else {}
    for number, (name, compute) in enumerate(plans.items()):
        if any(each.startswith(f"{name}|") for each in stored):
            continue
        started = time.process_time()
        stored |= {f"{name}|{task}": right for task, right in compute().items()}
        np.savez_compressed(path, **stored)
        print(f"{folder.name}: {number + 1}/{len(plans)} {name}, {time.process_time() - started:.1f} s", flush=True)


def read_answers(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """The stored answers of a setting, by model and task."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for each, right in np.load(folder / "answers.npz").items():
        found.setdefault(each.partition("|")[0], {})[each.partition("|")[2]] = right
    return found


class Accuracies:
    """Accuracies in percent of a setting's models: arrays of the measured value, then of those on resamples.

    All models answer the same images, which are resampled together, so that differences are paired, also those between
    settings.
    """

    def __init__(self, found: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        self._values: dict[tuple[str, str], np.ndarray] = {}
        self.n: dict[str, int] = {}  # images of each task
        for task in TEAM + OUTSIDE:
            names = [name for name, right in found.items() if task in right]
            right = np.stack([found[name][task] for name in names]).astype(float)  # (models, n)
            self.n[task] = right.shape[1]
            values = 100 * np.column_stack([right.mean(axis=1), resample_task(task, right)])
            self._values |= {(name, task): row for name, row in zip(names, values, strict=True)}

    def average(self, name: str, tasks: Sequence[str] = TEAM) -> np.ndarray:
        """A model's mean over tasks (1 + draws,)."""
        return np.mean([self._values[name, task] for task in tasks], axis=0)

    def list_own_accuracies(self) -> np.ndarray:
        """Each expert's accuracy on its own task (tasks, 1 + draws)."""
        return np.stack([self._values[f"expert {task}", task] for task in TEAM])

    def compute_losses(self, name: str) -> np.ndarray:
        """The accuracy of each task's expert minus that of a merge (tasks, 1 + draws)."""
        return self.list_own_accuracies() - np.stack([self._values[name, task] for task in TEAM])

    def average_seeds(self, name: str) -> np.ndarray:
        """A merge's mean over tasks and samples of exemplars (1 + draws,)."""
        return np.mean([self.average(f"{name} {seed}") for seed in SEEDS], axis=0)

    def compute_range(self, key: str) -> np.ndarray:
        """The range of a merge's mean over tasks, over densities (1 + draws,)."""
        return np.ptp([self.average(f"{key} {density:g}") for density in DENSITIES], axis=0)

    def average_pairs(self, key: str) -> np.ndarray:
        """A merge's mean over all teams of two experts, each on its own tasks (1 + draws,)."""
        return np.mean([self.average(f"{key} {' '.join(two)}", two) for two in itertools.combinations(TEAM, 2)], axis=0)


def compare_claim(claim: Claim, at: Accuracies) -> tuple[np.ndarray, np.ndarray] | None:
    """The two values of a claim about accuracies of merges that do not learn (1 + draws,); None for another claim.

    Where the paper's claim is about eight experts, ours is about the team of four.
    """
    arguments = claim.arguments
    first, second = arguments.get("first"), arguments.get("second")
    tasks = OUTSIDE if arguments.get("over") == "out" else TEAM
    match claim.fact:
        case "accuracy" if {first, second} <= set(PRESETS):
            values = at.average(first, tasks), at.average(second, tasks)
        case "sweep":
            names = [SWEPT[arguments["chain"][0], value] for value in (first, second)]
            values = at.average(names[0], tasks), at.average(names[1], tasks)
        case "exemplars":
            values = tuple(at.average_seeds(f"{arguments['method']} {count}") for count in (first, second))
        case "altered":
            vectors, whole = at.average_seeds("altered False"), at.average_seeds("altered True")
            values = vectors - whole, at.list_own_accuracies().mean(axis=0) - vectors
        case "spread":
            values = at.compute_losses(first).std(axis=0, ddof=1), at.compute_losses(second).std(axis=0, ddof=1)
        case "range":
            values = at.compute_range("drm_h"), at.compute_range("ties_mean")
        case "counts" if arguments["size"] == 2:
            values = at.average_pairs("drm_h"), at.average_pairs(OTHERS[second])
        case "counts":
            values = at.average("drm_h"), at.average(OTHERS[second])
        case "ranks":
            values = at.average("ranks"), at.average("drm_h")
        case "drm":
            values = at.average("drm_h"), at.average(arguments["variant"])
        case "ablation":
            values = at.average("lot"), at.average(arguments["kind"])
        case _:
            return None
    return values


def compare_claims(setting: Setting, at: Accuracies) -> dict[str, np.ndarray]:
    """{claim: its two values and their difference (3, 1 + draws)} of the claims that ``compare_claim`` compares.

    Raises:
        ValueError: a claim needs a merge that is not measured.
    """
    found = {}
    for claim in CLAIMS:
        try:
            values = compare_claim(claim, at)
        except KeyError as missing:
            raise ValueError(f"{setting.key}: claim {claim.key} needs {missing}, which is not measured.") from missing
        if values is not None:
            found[claim.key] = np.stack([*values, values[0] - values[1]])
    return found


def judge_claims(
    setting: Setting, compared: Mapping[str, np.ndarray], stored: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """A row for each claim, with the intervals of its difference, and of the change of that from the stored experts'.

    Both arguments are from ``compare_claims``; the changes are paired by images.
    """
    rows = []
    for claim in CLAIMS:
        if claim.key not in compared:
            continue
        first, second, difference = compared[claim.key]
        change = difference - stored[claim.key][2]
        low, high = find_interval(difference[1:])
        change_low, change_high = find_interval(change[1:])
        found = {
            "first": first[0], "second": second[0], "difference": difference[0], "low": low, "high": high,
            "change": change[0], "change_low": change_low, "change_high": change_high,
        }  # fmt: skip
        found = {name: round(float(value), 2) + 0.0 for name, value in found.items()}  # + 0.0 makes -0.0 0.0
        names = ("first", "second", "difference", "low", "high")
        verdict = judge(claim.direction, Comparison(**{name: found[name] for name in names}, sample=HALF))
        about = {"setting": setting.key, "claim": claim.key, "paper_direction": claim.direction}
        rows.append(about | found | {"verdict": verdict.value})
    return rows


def count_claims(rows: Sequence[Mapping[str, Any]], stored: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims a setting has, and how many of them it turns and loses against the stored experts.

    Both arguments are from ``judge_claims``. A turned or lost claim is significant if the interval of its change
    excludes zero.
    """
    same, stored_same = (np.array([row["verdict"] == Verdict.SAME for row in each]) for each in (rows, stored))
    significant = np.array([row["change_low"] > 0 or row["change_high"] < 0 for row in rows])
    turned, lost = same & ~stored_same, stored_same & ~same
    counts = {"same": same, "turned": turned, "turned_significant": turned & significant}
    counts |= {"lost": lost, "lost_significant": lost & significant}
    return {"claims": len(rows)} | {name: int(each.sum()) for name, each in counts.items()}


def measure_line(at: Accuracies) -> dict[str, float]:
    """Own accuracy along the line, the mean over tasks, and the largest fall of a task below the line's chord."""
    paths = {0.0: [at.average("pretrained", [key])[0] for key in TEAM], 1.0: list(at.list_own_accuracies()[:, 0])}
    paths |= {share: [at.average(f"line {key} {share:g}", [key])[0] for key in TEAM] for share in LINE}
    start, end = np.array(paths[0.0]), np.array(paths[1.0])
    falls = [start + share * (end - start) - paths[share] for share in LINE if share < 1]
    barriers = np.maximum(np.max(falls, axis=0), 0)
    means = {f"line_{share:g}": float(np.mean(paths[share])) for share in sorted(paths)}
    return means | {"barrier": float(barriers.max())}


def _add_interval(name: str, values: np.ndarray) -> dict[str, float]:
    """A measured value with the ends of its interval, from values (1 + draws,)."""
    low, high = find_interval(values[1:])
    return {name: values[0], f"{name} low": low, f"{name} high": high}


def describe_setting(setting: Setting, folder: Path, at: Accuracies) -> dict[str, Any]:
    """The row of a setting: how it was trained, its task vectors, its experts, and its merges in and out of domain."""
    seconds = []
    for key in TEAM:
        with safe_open(folder / f"models/{key}.safetensors", "pt") as file:
            seconds.append(float(file.metadata()["seconds"]))
    own = at.list_own_accuracies()
    found = {"seconds_per_expert": float(np.mean(seconds)), **measure_vectors(folder)}
    found |= {f"own_{key}": value for key, value in zip(TEAM, own[:, 0], strict=True)}
    found |= _add_interval("own", own.mean(axis=0)) | {"own_least": own[:, 0].min()}
    found |= _add_interval("experts_out", np.mean([at.average(f"expert {key}", OUTSIDE) for key in TEAM], axis=0))
    found |= measure_line(at)
    for name in ("pretrained", *PRESETS, FASTER_WUDI):
        found |= {f"{name} in": at.average(name)[0], f"{name} out": at.average(name, OUTSIDE)[0]}
    for part, tasks in (("in", TEAM), ("out", OUTSIDE)):
        found |= _add_interval(f"task_arithmetic {part}", at.average("task_arithmetic", tasks))
        found[f"n_{part}"] = sum(at.n[task] for task in tasks)
    digits = {"linear_change": 6, "cosine": 4}
    rounded = {
        name: value if isinstance(value, int) else round(float(value), digits.get(name, 2))
        for name, value in found.items()
    }
    return {"setting": setting.key, **{k: v for k, v in vars(setting).items() if k != "key"}, **rounded}


def write_tables(folders: Mapping[Setting, Path]) -> None:
    """Write the tables of these settings, the stored experts first."""
    settings, claims = [], []
    for setting, folder in folders.items():
        at = Accuracies(read_answers(folder))
        compared = compare_claims(setting, at)
        if setting.key == training_tables.STORED:
            stored, stored_rows = compared, judge_claims(setting, compared, compared)
        rows = judge_claims(setting, compared, stored)
        claims += rows
        settings.append(describe_setting(setting, folder, at) | count_claims(rows, stored_rows))
        print({name: settings[-1][name] for name in ("setting", "norm", "own", "own_least", "same", "turned", "lost")})
    pd.DataFrame(settings).to_csv(BUNDLED_FOLDER / training_tables.SETTINGS, index=False)
    pd.DataFrame(claims).to_csv(BUNDLED_FOLDER / training_tables.SETTING_CLAIMS, index=False)


def main() -> None:
    """Train, measure, and write both tables after each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="folder for images, experts and answers")
    parser.add_argument("--tables", action="store_true", help="compute nothing, write the tables of what is stored")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folders: dict[Setting, Path] = {}
    if options.tables:
        folders = {
            one: options.store / one.key for one in SETTINGS if (options.store / one.key / "answers.npz").exists()
        }
        write_tables(folders)
        return
    draw_images(options.store / "images")
    for setting in SETTINGS:
        folders[setting] = prepare_experts(setting, options.store)
        answer_all(folders[setting])
        write_tables(folders)


if __name__ == "__main__":
    main()
