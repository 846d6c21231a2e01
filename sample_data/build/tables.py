"""The tables of the README that follow from what is stored: the library's runs and drift, and the scalings tried.

python -m sample_data.build.tables
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pandas as pd

from merging.base import settings
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import MULTITASK, Benchmark
from merging.images.benchmarks.metrics import summarize, wilson
from merging.models.formats.model_sources import open_checkpoint
from merging.models.model_references import PRETRAINED
from merging.recipes.presets import find_preset
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.measurements.drift import STEM
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from sample_data.build import scalings

SPLIT = "reporting"
DRIFT = {  # label: preset
    "weight averaging": "weight_averaging",
    "task arithmetic, 0.3": "task_arithmetic",
    "lwptv, task arithmetic, 0.3": "task_arithmetic_lwptv",
    "TIES, sum, 0.3": "ties",
    "LOT, 64 exemplars, 1.2": "lot",
}


TEAM_MERGES = (
    "weight_averaging", "task_arithmetic", "task_arithmetic_lwptv", "ties", "dare_ties", "pcb", "drm_h", "tsv_m",
    "wudi", "lot", "cat", "tatr", "regmean",
)  # fmt: skip


def one_decimal(share: Fraction) -> str:
    """A share in percent, as the app shows it."""
    return f"{100 * float(share):.1f}"


class StoredScores:
    """The reporting scores of the pretrained model, the experts and the multi-task model, as the library has them."""

    def __init__(self, store: Store, benchmark: Benchmark) -> None:
        stored = find_references(store, benchmark, compute=False)
        self.counts = {name: counts(run.scores) for name, run in stored.items()}
        self.inside = list(benchmark.experts)
        self.outside = [task.key for task in benchmark.tasks if not task.has_expert]

    def average(self, model: str, keys: Sequence[str]) -> Fraction:
        """The mean over data sets of a model's accuracy."""
        return sum((Fraction(*self.counts[model][key]) for key in keys), Fraction()) / len(keys)

    @property
    def own(self) -> Fraction:
        """The mean of the experts' accuracies, each on its own task."""
        return sum((self.average(key, [key]) for key in self.inside), Fraction()) / len(self.inside)

    @property
    def experts_outside(self) -> Fraction:
        """The mean over experts of their accuracy out of domain."""
        return sum((self.average(key, self.outside) for key in self.inside), Fraction()) / len(self.inside)


def counts(scores: pd.DataFrame | None) -> dict[str, tuple[int, int]]:
    assert scores is not None
    rows = scores[scores["split"] == SPLIT]
    return {str(task): (int(c), int(n)) for task, c, n in zip(rows["task"], rows["correct"], rows["n"], strict=True)}


def single_models(stored: StoredScores) -> Iterator[str]:
    """A row for each data set: the pretrained model, the task's own expert and the multi-task model."""
    for key in (*stored.inside, *stored.outside):
        models = (PRETRAINED, key if key in stored.inside else None, MULTITASK)
        cells = [_with_interval(*stored.counts[model][key]) if model else "" for model in models]
        yield f"| {key} | {stored.counts[PRETRAINED][key][1]} | {' | '.join(cells)} |"


def _with_interval(correct: int, n: int) -> str:
    low, high = wilson(correct, n)
    return f"{one_decimal(Fraction(correct, n))} [{100 * low:.1f}, {100 * high:.1f}]"


def merges(stored: StoredScores, tried: pd.DataFrame) -> Iterator[str]:
    """The table of merges between the models that bound it."""
    yield _row("pretrained", stored.average(PRETRAINED, stored.inside), stored.average(PRETRAINED, stored.outside))
    for label, row in scalings.reported_rows(tried):
        yield _row(label, Fraction(row["in_domain"]) / 100, Fraction(row["out_of_domain"]) / 100)
    joint = stored.average(MULTITASK, stored.inside), stored.average(MULTITASK, stored.outside)
    yield _row("multi-task model (trained, not merged)", *joint)
    yield _row("experts, each on its own task", stored.own, stored.experts_outside)


def _row(label: str, inside: Fraction, outside: Fraction) -> str:
    return f"| {label} | {one_decimal(inside)} | {one_decimal(outside)} |"


def drift(store: Store, benchmark: Benchmark) -> Iterator[str]:
    """Drift of the class token after every block and at the output, mean over tasks, of the merges in ``DRIFT``."""
    for label, key in DRIFT.items():
        run_id = open_inputs(find_preset(key).recipe(benchmark.pretrained, benchmark.experts)).run_id()
        measured = stored_measurements.find_measurement_result("drift", store, benchmark, run_id)
        assert measured is not None, f"the library lacks the drift of {key}"
        rows = measured.table("cumulative")
        rows = rows[(rows["model"] == MERGED) & (rows["token"] == "class") & (rows["place"] != STEM)]
        yield f"| {label} | {' '.join(f'{mean:.3f}' for mean in rows.groupby('position')['cosine'].mean())} |"


def team_experts(stored: Sequence[StoredScores], benchmarks: Sequence[Benchmark]) -> Iterator[str]:
    """For each expert: the relative norm of its task vector in percent, and its own accuracy, in both teams."""
    for key in stored[0].inside:
        norms = [f"{measure_norm(benchmark, key):.1f}" for benchmark in benchmarks]
        own = [_with_interval(*one.counts[key][key]) for one in stored]
        yield f"| {key} | {' | '.join([*norms, *own])} |"


def measure_norm(benchmark: Benchmark, key: str) -> float:
    """The norm of an expert's task vector over that of the pretrained weights, in percent."""
    base, tuned = (open_checkpoint(model).state_dict() for model in (benchmark.pretrained, benchmark.experts[key]))
    change = math.fsum(float((tuned[name].double() - value.double()).square().sum()) for name, value in base.items())
    return 100 * math.sqrt(change / math.fsum(float(value.double().square().sum()) for value in base.values()))


def team_merges(
    stored: Sequence[StoredScores], stores: Sequence[Store], benchmarks: Sequence[Benchmark]
) -> Iterator[str]:
    """Accuracy of merges in and out of domain, in both teams, below that of the experts."""
    experts = [one_decimal(share) for one in stored for share in (one.own, one.experts_outside)]
    yield f"| experts, each on its own task | {' | '.join(experts)} |"
    for key in TEAM_MERGES:
        cells = []
        for store, benchmark in zip(stores, benchmarks, strict=True):
            recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
            run = store.get_run(open_inputs(recipe, benchmark=benchmark).run_id())
            assert run.scores is not None
            found = summarize(run.scores, run.experts)
            cells += [f"{100 * found.in_domain:.1f}", f"{100 * found.out_of_domain:.1f}"]
        yield f"| {find_preset(key).title} | {' | '.join(cells)} |"


def bounds(stored: StoredScores) -> Mapping[str, str]:
    """Measured quantities of single models in the table of floors and goals, by their name there."""
    least = min(stored.average(key, [key]) for key in stored.inside)
    below = stored.average(PRETRAINED, stored.outside) - stored.experts_outside
    return {
        "pretrained, in domain": one_decimal(stored.average(PRETRAINED, stored.inside)),
        "pretrained, out of domain": one_decimal(stored.average(PRETRAINED, stored.outside)),
        "experts, own task, mean": one_decimal(stored.own),
        "experts, own task, least": one_decimal(least),
        "experts, out of domain, below pretrained": f"{one_decimal(below)} points",
        "multi-task model, in domain": one_decimal(stored.average(MULTITASK, stored.inside)),
    }


def main() -> None:
    """Print the tables."""
    benchmarks = [Benchmark.load(folder) for folder in settings.BUNDLED_TEAMS.values()]
    with tempfile.TemporaryDirectory() as folder:
        stores = [Store(Path(folder), libraries=(benchmark.folder / "runs",)) for benchmark in benchmarks]
        both = [StoredScores(*pair) for pair in zip(stores, benchmarks, strict=True)]
        stored, store, benchmark = both[0], stores[0], benchmarks[0]
        tables = (
            single_models(stored), merges(stored, scalings.read(settings.BUNDLED_FOLDER)), drift(store, benchmark),
            team_experts(both, benchmarks), team_merges(both, stores, benchmarks),
        )  # fmt: skip
        for lines in tables:
            print(*lines, sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
