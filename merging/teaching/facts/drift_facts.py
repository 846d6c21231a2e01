"""Facts about feature drift, its correlation with lost accuracy, and restored weights.

Cumulative drift compares whole models at a position in the network; isolated drift is caused by a single merged tensor
in the expert. The stored column ``cosine`` holds the drift, 1 − cosine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError
from merging.base.text import did_you_mean
from merging.teaching.fact import POINTS, Fact
from merging.teaching.facts.score_facts import SPLIT, read_score_rows

if TYPE_CHECKING:
    import pandas as pd

    from merging.teaching.lesson_context import LessonContext

DRIFT, PUT_BACK = "drift", "put_back"  # measurements; the second restores pretrained weights, part by part
ABLATION = "ablation"  # the measurement and its table
TASK, TENSOR = "task", "tensor"
CLASS = "class"  # the token whose drift the facts report
CORRELATIONS = ("pearson", "spearman", "points")


def drift(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """1 − cosine between the class tokens of the run and of the task's expert, on one data set or averaged over all.

    ``at`` is a position in the network such as "block 3", by default the last. With ``name`` "task", the fact is the
    title of the data set with the largest drift there; with "tensor", the name of the tensor with the largest isolated
    drift.
    """
    run = context.require_run(str(arguments["run"]))
    measured = context.find_measurement(DRIFT, run)
    notes, half = measured.notes, str(measured.notes["split"])
    source, seed = f"drift of {run.name}", notes.get("exemplar_seed")
    if arguments.get("name") == TENSOR:
        rows = measured.table("isolated")
        mean_drift = rows.groupby("tensor", sort=False)["relative"].mean()
        return Fact(float(mean_drift.max()), "", half=half, seed=seed, source=source, name=str(mean_drift.idxmax()))
    rows = _select_class_token_rows(measured.table("cumulative"), arguments.get("at"))
    if arguments.get("name") == TASK:
        by_task = rows.set_index("task")["cosine"]
        title = context.benchmark.find_task(str(by_task.idxmax())).title
        return Fact(float(by_task.max()), "", half=half, source=source, name=title)
    if arguments.get("name") is not None:
        raise LessonError(f"name is {TASK} or {TENSOR}; got {arguments['name']!r}.")
    if task := arguments.get("task"):
        rows = rows[rows["task"].isin(context.list_tasks(str(task), run.experts))]
    n = int(rows["n"].sum())
    return Fact(float(rows["cosine"].mean()), "", n=n, half=half, source=source, digits=3)


def _select_class_token_rows(rows: pd.DataFrame, requested_position: Any) -> pd.DataFrame:
    """The rows of the merged model's class token at a position, by default the last.

    At the embedding, tokens are not distinguished, and all rows are returned.
    """
    rows = rows[rows["model"] == "merged"]
    positions = list(dict.fromkeys(rows["place"]))
    position = positions[-1] if requested_position is None else str(requested_position)
    if position not in positions:
        raise LessonError(f"at is one of {', '.join(positions)}; got {position!r}.{did_you_mean(position, positions)}")
    rows = rows[rows["place"] == position]
    return rows[rows["token"] == CLASS] if (rows["token"] == CLASS).any() else rows


def correlation(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """Pearson's r between the drift of final features and the accuracy lost to the expert, over runs and tasks.

    ``over`` "spearman" gives Spearman's ρ, "points" the number of points. Points share tasks and runs, so they are not
    independent, and there is no interval.
    """
    import numpy as np

    from merging.study.analysis.correlation import accuracy_lost, fit_line

    over = str(arguments.get("over", "pearson"))
    if over not in CORRELATIONS:
        raise LessonError(f"over is one of {', '.join(CORRELATIONS)}; got {over!r}.")
    experts, _, _ = read_score_rows(context, "experts")
    expert_accuracies = experts.set_index("task")["accuracy"].astype(float).to_dict()
    drifts, losses = [], []
    for alias in arguments["runs"]:
        run = context.require_run(str(alias))
        final_drift = _select_class_token_rows(
            context.find_measurement(DRIFT, run).table("cumulative"), None
        ).set_index("task")["cosine"]
        scores, inside, _ = read_score_rows(context, str(alias))
        drops = accuracy_lost(
            scores, {str(task): expert_accuracies[task] for task in inside if task in expert_accuracies}
        )
        shared = [task for task in drops.index if task in final_drift.index]
        drifts += [float(final_drift[task]) for task in shared]
        losses += [float(drops[task]) for task in shared]
    fit = fit_line(np.array(drifts, np.float64), np.array(losses, np.float64))
    if over == "points":
        return Fact(float(fit.n), "points of data", digits=0, source="drift against accuracy lost")
    value = fit.pearson if over == "pearson" else fit.spearman
    return Fact(value, "", n=fit.n, half=SPLIT, counted_unit="points", source="drift against accuracy lost", digits=2)


def restored_accuracy(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The change of accuracy when a part's pretrained weights are restored, from the stored map; paired bootstrap.

    ``part`` is a block, a tensor or a kind of tensor, named as in the map. Without it, the part is the block (or, with
    ``name``, the part of that level) with the largest gain, and with ``name`` the fact is the part's name.
    """
    run, over = context.require_run(str(arguments["run"])), str(arguments["over"])
    measured = context.find_measurement(PUT_BACK, run)
    rows = measured.table("changes")
    scope = {"in": "in domain", "out": "out of domain"}.get(over, over)
    rows = rows[rows["over"] == scope]
    if rows.empty:
        context.list_tasks(over, run.experts)  # raises LessonError if ``over`` is unknown
    level = str(arguments.get("name", "block"))
    if part := arguments.get("part"):
        part_rows = rows[rows["name"].astype(str) == str(part)]
        if part_rows.empty:
            known = rows["name"].astype(str).tolist()
            raise LessonError(f"The map has no part {str(part)!r}.{did_you_mean(str(part), known)}")
    else:
        part_rows = rows[rows["level"] == level].nlargest(1, "change")
        if part_rows.empty:
            raise LessonError(f"The map has no parts of level {level!r}; use tensor, block or kind.")
    row, notes = part_rows.iloc[0], measured.notes
    return Fact(
        float(row["change"]), POINTS, float(row["low"]), float(row["high"]), int(row["n"]),
        str(notes.get("split", "choosing")), notes.get("sample_seed"), f"map of {run.name}",
        name=str(row["name"]) if "name" in arguments else "",
    )  # fmt: skip


def ablated_accuracy(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The change of a run's accuracy in domain, in points, if one ``kind`` of its parameters is reset to pretrained."""
    from merging.images.benchmarks.paired_scores import IN_DOMAIN, compare_models
    from merging.images.benchmarks.resampled_tasks import SEED
    from merging.study.measurements.parameter_kinds import NOTHING_RESET
    from merging.study.trials.row_answers import join_answers, join_rows

    run, kind = context.require_run(str(arguments["run"])), str(arguments["kind"])
    rows = join_answers(ABLATION, context.find_measurement(ABLATION, run).table)
    kinds = [name for name in dict.fromkeys(rows["kind"]) if name != NOTHING_RESET]
    if kind not in kinds:
        raise LessonError(f"kind is one of {', '.join(kinds)}; got {kind!r}.{did_you_mean(kind, kinds)}")
    reset, whole = (join_rows(rows[rows["kind"] == name]) for name in (kind, NOTHING_RESET))
    table = compare_models(reset, whole, list(whole))
    row = table[table["over"] == IN_DOMAIN].iloc[0]
    ends, source = (float(row["low"]), float(row["high"])), f"{run.title} with pretrained {kind}"
    return Fact(float(row["difference"]), POINTS, *ends, int(row["n"]), SPLIT, SEED, source)
