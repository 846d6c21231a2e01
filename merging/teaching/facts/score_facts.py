"""Facts about stored scores: accuracies, their differences, and the H-score."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import StoreError
from merging.study.runs.run_answers import join_experts, read_correctness
from merging.teaching.fact import PERCENT, POINTS, Fact

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.paired_scores import Correctness
    from merging.images.benchmarks.resampled_tasks import Floats
    from merging.teaching.lesson_context import LessonContext

SPLIT = "reporting"
EXPERTS = "experts"  # in place of a run: each task's own expert


def read_score_rows(context: LessonContext, alias: str) -> tuple[pd.DataFrame, tuple[str, ...], str]:
    """Scores of a run or a reference on the reporting half, its in-domain tasks, and its title.

    Raises:
        StoreError: the run or an expert's evaluation is not stored.
    """
    inside = tuple(context.benchmark.experts)
    if alias == EXPERTS:
        from merging.images.benchmarks.metrics import individual

        missing = [task for task in inside if task not in context.references]
        if missing:
            raise StoreError(f"The expert of {missing[0]} has not been evaluated on this benchmark.")
        tables = {task: context.references[task].scores for task in inside}
        scores = individual({task: table for task, table in tables.items() if table is not None})
        title = "each task's own expert"
    else:
        run = context.require_run(alias)
        assert run.scores is not None  # the context lists only runs with scores
        scores, title = run.scores, run.name
        inside = run.experts if run.kind == "merge" else inside
    return scores[scores["split"] == SPLIT], inside, title


def accuracy(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """Mean accuracy of a run or a reference over the data sets "in" or "out" of domain, or on one data set."""
    from merging.images.benchmarks.metrics import average, wilson

    alias, over = str(arguments["run"]), str(arguments["over"])
    scores, inside, title = read_score_rows(context, alias)
    tasks = context.list_tasks(over, inside)
    rows = scores[scores["task"].isin(tasks)]
    n = int(rows["n"].sum())
    value, low, high = average(rows)
    if len(rows) == 1:
        low, high = wilson(int(rows["correct"].iloc[0]), n)
    draws = average_draws(context, alias, read_run_correctness(context, alias), inside, over)
    return Fact(value, PERCENT, low, high, n, SPLIT, source=title, draws=draws)


def h_score(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The harmonic mean of both averages. Its ends are those of the two lower and the two upper ends: rather wide."""
    from merging.images.benchmarks.metrics import h_score as harmonic
    from merging.images.benchmarks.metrics import summarize

    alias = str(arguments["run"])
    scores, inside, title = read_score_rows(context, alias)
    means = summarize(scores, inside)
    ends = (harmonic(means.in_low, means.out_low), harmonic(means.in_high, means.out_high))
    draws = average_draws(context, alias, read_run_correctness(context, alias), inside, "h")
    return Fact(means.h_score, PERCENT, *ends, means.n_in + means.n_out, SPLIT, source=title, draws=draws)


def difference(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The accuracy of a run minus that of another, in points; over "h" the difference of the H-scores.

    The interval is paired, image by image. It is unknown (NaN) if the answers of one are not stored.
    """
    from merging.images.benchmarks.paired_scores import compare_models
    from merging.images.benchmarks.resampled_tasks import SEED

    run, against, over = (str(arguments[name]) for name in ("run", "against", "over"))
    score = h_score if over == "h" else accuracy
    new, old = (score(context, {"run": alias, "over": over}) for alias in (run, against))
    ours, theirs = read_run_correctness(context, run), read_run_correctness(context, against)
    if ours is None or theirs is None:
        source = f"{new.source} and {old.source}, without stored answers"
        return Fact(new.value - old.value, POINTS, n=new.n, half=SPLIT, source=source)
    table = compare_models(ours, theirs, read_score_rows(context, run)[1], only=[name_average(over)])
    row, source = table.iloc[0], f"{new.source} and {old.source}, image by image"
    return Fact(
        float(row["difference"]), POINTS, float(row["low"]), float(row["high"]), int(row["n"]), SPLIT, SEED, source
    )


def name_average(over: str) -> str:
    """The name in ``paired_scores`` of the average "in", "out" or "h"; a data set's key as it is."""
    from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN

    return {"in": IN_DOMAIN, "out": OUT_OF_DOMAIN, "h": H_SCORE}.get(over, over)


def read_run_correctness(context: LessonContext, alias: str) -> Correctness | None:
    """{data set: (n,)}: whether a run, or each task's own expert, is right; see ``SplitAnswers.correctness``.

    None if the answers are not stored.
    """
    if alias == EXPERTS:
        experts = {task: context.references[task] for task in context.benchmark.experts}
        answers = {task: read_correctness(run, context.benchmark) for task, run in experts.items()}
        by_expert = {task: correctness for task, correctness in answers.items() if correctness is not None}
        return join_experts(by_expert) if len(by_expert) == len(experts) else None
    return context.compute_once(
        ("answers", alias), lambda: read_correctness(context.require_run(alias), context.benchmark)
    )


def average_draws(
    context: LessonContext, name: str, correctness: Correctness | None, inside: Collection[str], over: str
) -> Floats | None:
    """An average, or the accuracy on a data set, on resamples of the images (draws,); None if it is not known.

    The answers of the model with this ``name`` are resampled once for each context.
    """
    from merging.images.benchmarks.paired_scores import average_groups, group_tasks, resample_accuracies

    if correctness is None:
        return None
    by_task = context.compute_once(("draws", name), lambda: resample_accuracies({name: correctness})[name])
    return (by_task | average_groups(by_task, group_tasks(by_task, inside))).get(name_average(over))
