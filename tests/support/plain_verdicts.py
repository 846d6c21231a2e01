"""Our sides of claims about accuracies, computed by numpy alone from the stored answers of a library's folder.

Only the names of points and of presets' runs are asked of the program; nothing here uses its statistics.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.papers.claims import Claim
from merging.recipes.presets import find_preset
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep_session import plan_sweep

DRAWS, SEED = 8000, 2024  # other ones than the program's
VOTERS = 20
Right = dict[str, np.ndarray]  # {task: (n,)}, 1 if the image is right, else 0, or the share of models or samples
Means = Mapping[Any, Mapping[str, Any]]  # {model: {task: its accuracy, or accuracies (draws,)}}


class Question(NamedTuple):
    """What a claim asks: the answers of models, and a number that is made of their accuracies by task.

    A range is larger on samples of the images than on the images, so that its interval is reflected.
    """

    models: Mapping[Any, Right]
    difference: Callable[[Means], Any]
    is_range: bool = False


class Plain(NamedTuple):
    """The difference with its interval, in points."""

    difference: float
    low: float
    high: float

    def judge(self, direction: int) -> str:
        """The verdict on a claim whose first value is more (1), the same (0) or less (-1)."""
        if self.low <= 0 <= self.high:
            return "not reproduced here" if direction else "same direction"
        return "same direction" if self.difference * direction > 0 else "other direction"


def mean_of(means: Mapping[str, Any], tasks: list[str]) -> Any:
    return np.mean([means[task] for task in tasks], axis=0)


def subtract(models: Mapping[Any, Right], tasks: list[str]) -> Question:
    """The first of two models minus the second, on average over the tasks."""
    first, second = models
    return Question(models, lambda means: mean_of(means[first], tasks) - mean_of(means[second], tasks))


def draw_counts(n: int, task: str) -> np.ndarray:
    """How often each of n images is drawn with replacement, (DRAWS, n), for every task anew."""
    rng = np.random.default_rng([SEED, n, *task.encode()])
    counts = np.zeros((DRAWS, n), np.float32)
    for images in rng.integers(n, size=(n, DRAWS)):
        counts[np.arange(DRAWS), images] += 1
    return counts


def resample(question: Question) -> Plain:
    """The answer to a question, with its bootstrap interval: the images of each task are sampled again."""
    observed = {name: {task: right.mean() for task, right in own.items()} for name, own in question.models.items()}
    drawn: dict[Any, dict[str, Any]] = {name: {} for name in question.models}
    for task in {task for own in question.models.values() for task in own}:
        having = {name: own[task] for name, own in question.models.items() if task in own}
        stacked = np.stack(list(having.values()), axis=1)
        accuracies = draw_counts(len(stacked), task).astype(np.float64) @ stacked / len(stacked)
        for name, column in zip(having, accuracies.T, strict=True):
            drawn[name][task] = column
    difference = 100 * float(question.difference(observed))
    low, high = 100 * np.percentile(question.difference(drawn), [2.5, 97.5])
    if question.is_range:
        low, high = 2 * difference - high, 2 * difference - low
    return Plain(difference, float(low), float(high))


@dataclass(frozen=True)
class PlainLibrary:
    """The files of a benchmark with its library."""

    folder: Path
    _labels: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def labels(self, task: str, split: str) -> np.ndarray:
        if (task, split) not in self._labels:
            with np.load(self.folder / "data" / f"{task}.npz") as arrays:
                self._labels[task, split] = arrays[f"{split}_labels"]
        return self._labels[task, split]

    @cached_property
    def experts(self) -> list[str]:
        tasks = json.loads((self.folder / "tasks.json").read_bytes())["tasks"]
        return [task["key"] for task in tasks if (self.folder / "models" / f"{task['key']}.safetensors").is_file()]

    @cached_property
    def runs(self) -> dict[str, Path]:
        """Folders of the merges of all experts, by title."""
        facts = {path.parent: json.loads(path.read_bytes()) for path in self.folder.glob("runs/*/run.json")}
        return {
            run["title"]: folder
            for folder, run in facts.items()
            if run["kind"] == "merge" and set(run["experts"]) == set(self.experts)
        }

    def find_run(self, preset: str) -> Path | None:
        return self.runs.get(find_preset(preset).title)

    def find_measured(self, key: str, run: str = "") -> Path | None:
        for path in self.folder.glob("measured/*/measured.json"):
            facts = json.loads(path.read_bytes())
            if facts["key"] == key and facts["run"] == run:
                return path.parent
        return None

    def read_answers(self, folder: Path, split: str = "reporting") -> Right:
        """The answers of a run to a half of the images."""
        table = read_csv(folder, "answers")
        return {
            row.task: self._compare_classes(row.predicted, self.labels(row.task, split))
            for row in table[table["split"] == split].itertuples()
        }

    def _compare_classes(self, text: str, labels: np.ndarray) -> np.ndarray:
        classes = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2").reshape(-1, len(labels))
        return np.mean([row == labels for row in classes], axis=0)

    def read_points(self, chosen: Callable[[Any], int | None]) -> list[dict[float, Right]]:
        """{value: answers} of a line of each sweep along one axis; ``chosen`` gives the line, or None."""
        benchmark = Benchmark.load(self.folder)
        store, lines = Store(self.folder / "none", libraries=(self.folder / "runs",)), []
        for sweep in sweep_storage.list_sweeps(store).values():
            if (line := chosen(sweep)) is None:
                continue
            points = {}
            for one in plan_sweep(sweep, benchmark):
                folder, run = self.folder / "points" / one.name, self.folder / "runs" / (one.run_id or "none")
                if one.point.line == line and folder.is_dir():
                    points[float(one.point.values[0])] = self._read_point(folder, sweep)
                elif one.point.line == line and run.is_dir() and not sweep.images:  # its scores are those of the run
                    points[float(one.point.values[0])] = self.read_answers(run, sweep.split)
            lines.append(points)
        return lines

    def _read_point(self, folder: Path, sweep: Any) -> Right:
        right = {}
        for row in read_csv(folder, "scores").itertuples():
            labels = self.labels(row.task, sweep.split)
            if row.n < len(labels):
                labels = labels[np.sort(np.random.default_rng(sweep.seed).permutation(len(labels))[: row.n])]
            right[row.task] = self._compare_classes(row.predicted, labels)
        return right

    # What each fact asks

    def ask(self, claim: Claim) -> Question | None:
        """What a claim asks of the library; None if something that it needs is not stored."""
        ask: Callable[..., Question | None] = getattr(self, f"_ask_{claim.fact}")
        return ask(**claim.arguments)

    def _ask_accuracy(self, first: str, second: str, over: str) -> Question | None:
        folders = {name: self.find_run(name) for name in (first, second)}
        if None in folders.values():
            return None
        models = {name: self.read_answers(folder) for name, folder in folders.items() if folder}
        return subtract(models, [task for task in models[first] if (task in self.experts) == (over == "in")])

    def _ask_sweep(self, chain: list[str], target: str, first: float, second: float, over: str) -> Question | None:
        def find_line(sweep: Any) -> int | None:
            chains = [[step.key for step in recipe.steps] for recipe in sweep.recipes]
            return chains.index(chain) if [axis.target for axis in sweep.axes] == [target] and chain in chains else None

        for points in self.read_points(find_line):
            if {first, second} <= set(points):
                models = {value: points[value] for value in (first, second)}
                return subtract(models, [task for task in models[first] if (task in self.experts) == (over == "in")])
        return None

    def _ask_range(self, target: str, first: str, second: str, params: Mapping[str, float]) -> Question | None:
        def find_line(sweep: Any, merge: str) -> int | None:
            values = [(recipe.merge.key, recipe.merge.params.values()) for recipe in sweep.recipes]
            keys = [key if params.items() <= given.items() else "" for key, given in values]
            has_both = [axis.target for axis in sweep.axes] == [target] and {first, second} <= set(keys)
            return keys.index(merge) if has_both else None

        lines = [self.read_points(lambda sweep, merge=merge: find_line(sweep, merge)) for merge in (first, second)]
        if not all(lines):
            return None
        models = {(merge, value): right for merge, (points, *_) in enumerate(lines) for value, right in points.items()}

        def spread(means: Means, merge: int) -> Any:
            return np.ptp([mean_of(means[name], self.experts) for name in models if name[0] == merge], axis=0)

        return Question(models, lambda means: spread(means, 0) - spread(means, 1), is_range=True)

    def _read_rows(self, measured: Path, name: str) -> pd.DataFrame:
        """A table of a measurement with the answers behind its rows."""
        return read_csv(measured, name).assign(right=read_csv(measured, f"{name}_answers")["right"].map(unpack_right))

    def _average_seeds(self, rows: pd.DataFrame) -> Right:
        return {
            task: np.mean([right[task] for right in of_task["right"]], axis=0) for task, of_task in rows.groupby("task")
        }

    def _ask_exemplars(self, method: str, first: int, second: int) -> Question | None:
        if (measured := self.find_measured("exemplars")) is None:
            return None
        rows = self._read_rows(measured, "accuracy")
        rows = rows[rows["method"] == method]
        models = {count: self._average_seeds(rows[rows["exemplars"] == count]) for count in (first, second)}
        return subtract(models, self.experts) if all(models.values()) else None

    def _ask_altered(self, exemplars: int) -> Question | None:
        if (measured := self.find_measured("exemplars")) is None:
            return None
        rows = self._read_rows(measured, "weights")
        rows = rows[rows["exemplars"].isin([exemplars, 0])]
        models = {name: self._average_seeds(of_name) for name, of_name in rows.groupby("solved")}

        def difference(means: Means) -> Any:
            v, w, o = (mean_of(means[name], self.experts) for name in ("task vectors", "whole weights", "own experts"))
            return 2 * v - w - o

        return Question(models, difference) if len(models) == 3 else None

    def _ask_counts(self, first: str, second: str, size: int) -> Question | None:
        if size < len(self.experts) or (measured := self.find_measured("task_counts")) is None:
            return None  # of several subsets, whose interval is that of subsets
        rows = self._read_rows(measured, "counts")
        rows = rows[rows["size"] == len(self.experts)]
        models = {name: self._average_seeds(rows[rows["method"] == name]) for name in (first, second)}
        return subtract(models, self.experts) if all(models.values()) else None

    def _ask_drm(self, method: str, variant: str) -> Question | None:
        return self._ask_rows("ablations", method, "variant", (0, variant))

    def _ask_ranks(self, method: str, cut: float) -> Question | None:
        return self._ask_rows("ranks", method, "cut", (cut, 0.0))

    def _ask_rows(self, table: str, method: str, column: str, names: tuple[Any, Any]) -> Question | None:
        """Two rows of the ablations of DRM by a column; 0 stands for the first row of all."""
        if (measured := self.find_measured("drm_ablations")) is None:
            return None
        rows = self._read_rows(measured, table)
        rows = rows[rows["method"] == method]
        models = {}
        for place, name in enumerate(names):
            chosen = rows if column == "variant" and name == 0 else rows[rows[column] == name]
            if chosen.empty:
                return None
            models[place] = chosen["right"].iloc[0]
        return subtract(models, self.experts)

    def _ask_ablation(self, preset: str, kind: str) -> Question | None:
        run = self.find_run(preset)
        if run is None or (measured := self.find_measured("ablation", run.name)) is None:
            return None
        rows = self._read_rows(measured, "ablation")
        models = {name: self._average_seeds(rows[rows["kind"] == name]) for name in ("nothing", kind)}
        return subtract(models, self.experts)

    def _ask_neighbors(self, first: str, second: str) -> Question | None:
        models = {}
        for preset in (first, second):
            run = self.find_run(preset)
            if run is None or (measured := self.find_measured("features", run.name)) is None:
                return None
            images = read_csv(measured, "images")
            plain, packed = measured / "features.npy", measured / "features.npy.gz"
            content = plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
            features = np.load(io.BytesIO(content))
            models[preset] = {"all": vote(features, images["task"] + ":" + images["truth"])}
        return subtract(models, ["all"])


def vote(features: np.ndarray, labels: pd.Series[str]) -> np.ndarray:
    """Whether each image's class is the commonest among its nearest neighbors; one of t equally common ones is 1/t."""
    rows = features.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = rows @ rows.T
    np.fill_diagonal(similarity, -np.inf)
    right = []
    for image, nearest in enumerate(np.argsort(-similarity, axis=1)[:, :VOTERS]):
        names, votes = np.unique(labels.to_numpy(str)[nearest], return_counts=True)
        commonest = set(names[votes == votes.max()])
        right.append((labels.iloc[image] in commonest) / len(commonest))
    return np.array(right)


def unpack_right(text: str) -> Right:
    """Which images are right from a cell of a table of answers, bit by bit."""
    return {
        task: np.array([byte >> (7 - bit) & 1 for byte in base64.b64decode(packed) for bit in range(8)][:n], np.float64)
        for task, (n, packed) in json.loads(text).items()
    }


def read_csv(folder: Path, name: str) -> pd.DataFrame:
    path = next(folder.rglob(f"{name}.csv*"))
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return pd.read_csv(file, keep_default_na=False)
