"""Stored measurements of runs, and the tables of the Drift page's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app import page_text
from app.reading import page_data
from app.reading.figures import cache_table
from app.reading.score_tables import REFERENCE_NAMES
from merging.recipes.papers.claims import BY_EXEMPLARS
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.analysis.correlation import LineFit

# Keys of measurements; their titles are in the measurement registry.
DRIFT, ABLATION, EXEMPLARS, SIGNS, EXPERT_PAIRS = "drift", "ablation", "exemplars", "signs", "pairs"
LAYER_DRIFT = "layer_drift"
FEATURES, TSNE = "features", "tsne"
JOINT_MAP, MERGE_PATH, MODEL_MAP = "joint_tsne", "merge_path", "model_map"
SPECTRA, SIMILARITY = "spectra", "cka"
DRM_ABLATIONS, TASK_COUNTS, METHOD_TIMES = "drm_ablations", "task_counts", "method_times"
RESET_TO_PRETRAINED, RESET_FIRST_ORDER = "put_back", "first_order"
LOSS_BY_LEARNING_STEP, MODULES_ON_TEST_IMAGES = "along_steps", "modules"
ROBUSTNESS, ROBUSTNESS_REFERENCES = "robustness", "robustness_references"
ANSWERS_BY_DEPTH, FEATURE_BANK = "depths", "feature_bank"
PRETRAINED = "pretrained"
CONFLICTS = "cat"  # the table that the edit CAT stores with a run
SPECTRUM = "lot"  # the table that the merge LOT stores with a run
MeasuredRuns = Sequence[tuple[Run, StoredMeasurement]]  # runs whose drift is measured
TENSOR_KINDS = {  # kinds of tensors, as pages name them -> roles
    "all tensors": (),
    "weight matrices": ("linear", "conv", "projection"),
    "norm scales": ("norm_scale",),
    "biases": ("shift",),
    "embeddings": ("embedding",),
}
TENSOR_COLUMNS = ["tensor", "order", "section", "role", "part"]


def find_measurement(key: str, run_id: str = "") -> StoredMeasurement | None:
    """The stored measurement of a run (or of the benchmark), None if there is none."""
    return stored_measurements.find_measurement_result(key, page_data.store(), page_data.benchmark(), run_id)


@cache_table
def measured_table(measured: StoredMeasurement, name: str) -> pd.DataFrame:
    """One table of a measurement."""
    return measured.table(name)


def titles_by_task() -> dict[str, str]:
    """Task key -> title."""
    return dict(page_data.data_set_titles())


def drift_by_depth(runs: MeasuredRuns, token: str) -> pd.DataFrame:
    """Drift of every run and task at every depth, and the pretrained model's if all runs have the same tasks.

    ``token`` names the features that are compared: those of the class token, or the mean of all tokens.
    """
    return _drift_by_depth_cached(_cache_key(runs), token, titles_by_task(), runs)


def _cache_key(runs: MeasuredRuns) -> tuple[tuple[str, ...], ...]:
    """The inputs of the tables of some runs: the runs' ids and names, and the measurements."""
    return tuple((run.id, run.name, run.benchmark or "", str(measured.path)) for run, measured in runs)


@cache_table
def _drift_by_depth_cached(
    cache_key: tuple[tuple[str, ...], ...], token: str, task_titles: Mapping[str, str], _runs: MeasuredRuns
) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for run, measured in _runs:
        rows = measured_table(measured, "cumulative")
        rows = rows[rows["token"] == token]
        frames.append(rows[rows["model"] == "merged"].assign(run=run.id, label=run.name, kind="merge"))
    if len({frozenset(run.experts) for run, _ in _runs}) == 1:  # then any run's rows have the pretrained model's, too
        frames.append(rows[rows["model"] == PRETRAINED].assign(run=PRETRAINED, label="Pretrained", kind=PRETRAINED))
    joined = pd.concat(frames, ignore_index=True)
    joined = joined.rename(columns={"place": "section"}).assign(title=joined["task"].map(task_titles))
    return joined[["run", "label", "kind", "task", "title", "section", "position", "cosine", "l1", "n"]]


def drift_and_accuracy(runs: MeasuredRuns, stored: Sequence[Run]) -> pd.DataFrame:
    """A row for each run and task: drift of the final features, and accuracy lost relative to the task's expert."""
    expert_accuracies = _expert_accuracies([run for run, _ in runs], stored)
    return _drift_and_accuracy_cached(_cache_key(runs), titles_by_task(), expert_accuracies, runs)


def _expert_accuracies(runs: Sequence[Run], stored: Sequence[Run]) -> dict[str, dict[str, float]]:
    """{digest of a benchmark: {task: accuracy of the task's expert}} for the benchmarks of these runs."""
    rows = {run.benchmark: page_data.expert_scores(run.benchmark, stored) for run in runs}
    return {
        str(benchmark_digest): {task: row["accuracy"] for task, row in scores.items()}
        for benchmark_digest, scores in rows.items()
    }


@cache_table
def _drift_and_accuracy_cached(
    cache_key: tuple[tuple[str, ...], ...],
    task_titles: Mapping[str, str],
    experts: dict[str, dict[str, float]],
    _runs: MeasuredRuns,
) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for run, measured in _runs:
        scores, expert_accuracies = page_data.scores(run), experts[str(run.benchmark)]
        if scores is None:
            continue
        rows = measured_table(measured, "cumulative")
        rows = rows[(rows["model"] == "merged") & (rows["position"] == rows["position"].max())]
        rows = rows.drop_duplicates("task")[["task", "cosine", "l1", "n"]]
        accuracy = scores.set_index("task")[["accuracy", "n"]].rename(columns={"n": "n_scored"})
        rows = rows.join(accuracy, on="task")
        rows["expert"] = rows["task"].map(expert_accuracies).astype(float)
        frames.append(rows.assign(run=run.id, label=run.name, lost=rows["expert"] - rows["accuracy"]))
    if not frames:
        return pd.DataFrame(columns=["run", "label", "task", "title", "cosine", "l1", "lost"])
    joined = pd.concat(frames, ignore_index=True)
    return joined.assign(title=joined["task"].map(task_titles))


def fit_drift_line(points: pd.DataFrame, value: str) -> LineFit:
    """The line through all points."""
    from merging.study.analysis.correlation import fit_line

    return fit_line(points[value].to_numpy(float), points["lost"].to_numpy(float))


def loss_spread(runs: Sequence[Run], stored: Sequence[Run]) -> pd.DataFrame:
    """The loss of accuracy of each run and its spread over tasks, from stored accuracies (LOT, Table 10)."""
    cache_key = tuple((run.id, run.name, run.benchmark or "") for run in runs)
    return _loss_spread_cached(cache_key, titles_by_task(), _expert_accuracies(runs, stored), runs)


@cache_table
def _loss_spread_cached(
    cache_key: tuple[tuple[str, ...], ...],
    task_titles: Mapping[str, str],
    expert_accuracies: dict[str, dict[str, float]],
    _runs: Sequence[Run],
) -> pd.DataFrame:
    import pandas as pd

    from merging.study.analysis.correlation import accuracy_lost, accuracy_spread

    rows = []
    for run in _runs:
        scores, accuracies = page_data.scores(run), expert_accuracies[str(run.benchmark)]
        experts = {task: accuracy for task, accuracy in accuracies.items() if task in run.experts}
        if scores is None or not experts:
            continue
        losses = accuracy_lost(scores, experts)
        worst = task_titles.get(str(losses.idxmax()), "") if len(losses) else ""
        n = int(scores[scores["task"].isin(list(losses.index))]["n"].sum())
        spread, mean, largest_drop = 100 * accuracy_spread(losses), 100 * losses.mean(), 100 * losses.max()
        rows.append((run.name, spread, mean, worst, largest_drop, len(losses), n))
    return pd.DataFrame(rows, columns=["run", "spread", "mean", "worst", "largest_drop", "tasks", "n"])


def layer_drift_table(run: Run, measured: StoredMeasurement) -> pd.DataFrame:
    """Layer-isolated drift (of an expert with one merged tensor), with section, role and part of every tensor."""
    rows = measured_table(measured, "isolated").merge(
        page_data.run_table(run.id, "tensors")[TENSOR_COLUMNS], on="tensor", validate="many_to_one"
    )
    return rows.assign(title=page_text.look_up_names(rows["task"], titles_by_task()))


def lot_objective_table(run: Run, measured: StoredMeasurement) -> pd.DataFrame:
    """LOT's objective (each layer's squared drift, summed over tasks), with section, role and part of every tensor."""
    tensors = page_data.run_table(run.id, "tensors")[TENSOR_COLUMNS]
    return measured_table(measured, "objective").merge(tensors, on="tensor", validate="one_to_one")


def lot_spectrum_in_words(run: Run) -> str:
    """A sentence on the share of the inputs' spectrum that LOT used in a run; empty for other runs."""
    if SPECTRUM not in run.tables:
        return ""
    rows = tensors_of_kind(page_data.run_table(run.id, SPECTRUM), "weight matrices")
    share = 100 * rows["directions"] / rows["width"]
    return (
        f"In the {len(rows)} weight matrices of this run LOT solved on {share.min():.0f}% to {share.max():.0f}% of the "
        f"input directions, which contain at least {100 * rows['trace_kept'].min():.2f}% of the inputs' energy; the "
        "others stay pretrained."
    )


def removed_conflicts(run: Run) -> pd.DataFrame:
    """The table of the parts that CAT removed in a run, with titles of the tasks that the benchmark knows."""
    rows = page_data.run_table(run.id, CONFLICTS)
    rows = rows.sort_values("expert", key=lambda names: names.map(list(run.experts).index), kind="stable")
    return rows.assign(title=page_text.look_up_names(rows["expert"], titles_by_task()))


def tensors_of_kind(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The tensors of one of ``TENSOR_KINDS``."""
    return rows[rows["role"].isin(TENSOR_KINDS[kind])] if TENSOR_KINDS[kind] else rows


def one_tensor(runs: MeasuredRuns, tensor: str) -> pd.DataFrame:
    """One tensor's drift for every run that has it."""
    import pandas as pd

    frames = []
    for run, measured in runs:
        rows = measured_table(measured, "isolated")
        frames.append(rows[rows["tensor"] == tensor].assign(run=run.id, label=run.name))
    joined = pd.concat(frames, ignore_index=True)
    return joined.assign(title=page_text.look_up_names(joined["task"], titles_by_task()))


def ablation_table(measured: StoredMeasurement) -> pd.DataFrame:
    """A row for each kind of parameter that stays pretrained: mean accuracy and accuracy on every task, in percent."""
    rows = page_text.add_titles(measured_table(measured, ABLATION))
    table = 100 * rows.pivot(index="kind", columns="title", values="accuracy")
    table = table.loc[list(dict.fromkeys(rows["kind"])), list(dict.fromkeys(rows["title"]))]
    table.insert(0, "Mean", table.mean(axis=1))
    return table.reset_index()


def exemplar_tables(measured: StoredMeasurement) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean accuracy by method, number of exemplars and draw, and the rank of the Gram matrices."""
    from merging.study.trials.exemplar_sensitivity import average_accuracy

    return average_accuracy(measured_table(measured, "accuracy")), measured_table(measured, "rank")


def published_curves() -> pd.DataFrame:
    """The numbers of papers by number of exemplars: method, exemplars, accuracy (a fraction), source."""
    import pandas as pd

    rows = [
        (curve.method, n, float(value) / 100, f"{curve.paper}, {curve.where}")
        for curve in BY_EXEMPLARS
        for n, value in curve.values.items()
    ]
    return pd.DataFrame(rows, columns=["method", "exemplars", "accuracy", "source"])


def reference_accuracies(stored: Sequence[Run]) -> dict[str, float]:
    """Mean in-domain accuracy of the models that need no exemplars, by name."""
    benchmark = page_data.benchmark()
    tables = page_data.reference_scores(benchmark.digest, tuple(benchmark.experts), stored)
    inside = {
        kind: rows[rows["task"].isin(list(benchmark.experts))]["accuracy"].mean() for kind, rows in tables.items()
    }
    return {REFERENCE_NAMES[kind]: float(mean) for kind, mean in inside.items()}
