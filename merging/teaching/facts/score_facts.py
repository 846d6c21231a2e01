"""Facts about stored scores: accuracies, their differences, and the H-score."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import StoreError
from merging.study.runs.run_answers import join_experts, read_correctness
from merging.teaching.fact import PERCENT, POINTS, Fact
from merging.teaching.lesson_context import NotMeasured

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.paired_scores import Correctness, Floats
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

    scores, inside, title = read_score_rows(context, str(arguments["run"]))
    tasks = context.list_tasks(str(arguments["over"]), inside)
    rows = scores[scores["task"].isin(tasks)]
    n = int(rows["n"].sum())
    value, low, high = average(rows)
    if len(rows) == 1:
        low, high = wilson(int(rows["correct"].iloc[0]), n)
    draws = _draw_scores(context, str(arguments["run"]), inside, str(arguments["over"]))
    return Fact(value, PERCENT, low, high, n, SPLIT, source=title, draws=draws)


def h_score(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The harmonic mean of both averages. Its ends are those of the two lower and the two upper ends: rather wide."""
    from merging.images.benchmarks.metrics import h_score as harmonic
    from merging.images.benchmarks.metrics import summarize

    scores, inside, title = read_score_rows(context, str(arguments["run"]))
    means = summarize(scores, inside)
    ends = (harmonic(means.in_low, means.out_low), harmonic(means.in_high, means.out_high))
    draws = _draw_scores(context, str(arguments["run"]), inside, "h")
    return Fact(means.h_score, PERCENT, *ends, means.n_in + means.n_out, SPLIT, source=title, draws=draws)


def difference(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The accuracy of a run minus that of another, in points; over "h" the difference of the H-scores.

    The interval is paired, image by image. It is unknown (NaN) if the answers of one are not stored.
    """
    run, against, over = (str(arguments[name]) for name in ("run", "against", "over"))
    try:
        return _paired_difference(context, run, against, over)
    except NotMeasured:
        pass
    score = h_score if over == "h" else accuracy
    new, old = (score(context, {"run": alias, "over": over}) for alias in (run, against))
    change, source = new.value - old.value, f"{new.source} and {old.source}, without stored answers of both"
    return Fact(change, POINTS, n=new.n, half=SPLIT, source=source)


def _paired_difference(context: LessonContext, run: str, against: str, over: str) -> Fact:
    """The paired difference, see ``compare_models``. Raises NotMeasured without the answers of both."""
    from merging.images.benchmarks.paired_scores import SEED, compare_models

    new, old = read_run_correctness(context, run), read_run_correctness(context, against)
    (_, inside, title), (_, _, other_title) = (read_score_rows(context, alias) for alias in (run, against))
    scope = name_average(over)
    if scope == over:
        context.list_tasks(over, inside)  # raises LessonError if ``over`` is unknown
    table = compare_models(new, old, inside)
    row = table[table["over"] == scope].iloc[0]
    ends, source = (float(row["low"]), float(row["high"])), f"{title} and {other_title}, image by image"
    return Fact(float(row["difference"]), POINTS, *ends, int(row["n"]), SPLIT, SEED, source)


def name_average(over: str) -> str:
    """The name in ``paired_scores`` of the average "in", "out" or "h"; a data set's key as it is."""
    from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN

    return {"in": IN_DOMAIN, "out": OUT_OF_DOMAIN, "h": H_SCORE}.get(over, over)


def _draw_scores(context: LessonContext, alias: str, inside: Collection[str], over: str) -> Floats | None:
    """The scores of a run on resamples of its images (draws,); None if its answers are not stored."""
    try:
        correctness = read_run_correctness(context, alias)
    except NotMeasured:
        return None
    return average_draws(context, alias, correctness, inside, over)


def average_draws(
    context: LessonContext, name: str, correctness: Correctness, inside: Collection[str], over: str
) -> Floats | None:
    """An average, or the accuracy on a data set, on resamples of the images (draws,); None without such data sets.

    The accuracies of the model with this ``name`` are resampled once for each context.
    """
    from merging.images.benchmarks.paired_scores import average_groups, group_tasks, resample_accuracies

    by_task = context.compute_once(("draws", name), lambda: resample_accuracies({name: correctness})[name])
    return (by_task | average_groups(by_task, group_tasks(by_task, inside))).get(name_average(over))


def read_run_correctness(context: LessonContext, alias: str) -> Correctness:
    """{data set: (n,)}: whether a run, or each task's own expert, is right; see ``SplitAnswers.correctness``.

    Raises:
        NotMeasured: the answers are not stored.
    """
    if alias == EXPERTS:
        experts = {task: context.references[task] for task in context.benchmark.experts}
        by_expert = {task: read_correctness(run, context.benchmark) or {} for task, run in experts.items()}
        return join_experts(by_expert)
    correctness = context.compute_once(
        ("answers", alias), lambda: read_correctness(context.require_run(alias), context.benchmark)
    )
    if correctness is None:
        raise NotMeasured("The answers to each image are not stored.")
    return correctness
