"""The table of an experiment: our accuracies with their intervals, the printed ones, and a verdict for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merging.images.benchmarks.metrics import h_score
from merging.images.benchmarks.paired_scores import AVERAGE, IN_DOMAIN, compare_models
from merging.images.prompt_sets import CLIP, read_prompts
from merging.recipes.papers.published_figures import OUT_OF_DOMAIN_TASKS
from merging.sharing.published.accuracy_verdicts import (
    Average,
    ExpertGate,
    RowVerdict,
    TaskScore,
    average_scores,
    judge_average,
    judge_experts,
)
from merging.sharing.published.catalogue_parts import PublishedModels, PublishedSet
from merging.sharing.published.choice import Choice, list_test_sets, uses_own_folder
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.row_variants import (
    INDIVIDUAL,
    PRETRAINED,
    ComparedFigure,
    RowVariant,
    find_figures,
    find_printed_experts,
    find_printed_tasks,
    find_reference_figures,
)

RightAnswers = Mapping[str, NDArray[np.bool_]]  # {task: (images,) bool, whether the answer is right}
REFERENCE_TITLES = {PRETRAINED: "Pretrained", INDIVIDUAL: "Each expert on its own task"}
NEAR_CHANCE_SETS = ("kmnist", "pcam", "rendered_sst2")  # test sets on which models are near chance
NOT_CATALOGUED_REASON = "not the catalogue's files"
OTHER_WORDING_REASON = "other wording: class names as the Hub writes them"


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The measurements of a row: its accuracies by task, and, if known, which answers were right.

    ``row`` is PRETRAINED, INDIVIDUAL, or a variant of a row. ``run`` is the stored run.
    """

    row: str | RowVariant
    scores: Mapping[str, TaskScore]
    right: RightAnswers | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class ComparedAverage:
    """Our average and the printed one, in percent. With ``computed``, the latter was computed from printed parts."""

    ours: Average
    printed: float | None
    verdict: RowVerdict
    computed: bool = False


@dataclass(frozen=True, slots=True)
class TaskLine:
    """One task of a row, in percent: our accuracy with its interval, and the printed one.

    ``inside`` is whether the task is in domain. ``chance`` is the accuracy of guessing, None unless models are near it.
    """

    task: str
    title: str
    inside: bool
    ours: float
    low: float
    high: float
    n: int
    printed: float | None
    chance: float | None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row. ``change`` is the difference from the row above and its interval, in points, by a paired bootstrap.

    ``compared`` is False if the printed values belong to another experiment; they are shown in gray.
    """

    key: str
    title: str
    in_domain: ComparedAverage
    out_of_domain: ComparedAverage | None
    h_score: tuple[float, float | None] | None  # ours and the printed one
    change: tuple[float, float, float] | None
    tasks: tuple[TaskLine, ...]
    source: str
    compared: bool
    run: str = ""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """The whole table; ``notes`` are the sentences below it."""

    experiment: str
    title: str
    models: str
    tower: str
    images: str
    seed: int
    device: str
    gate: ExpertGate
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]

    @property
    def verdicts(self) -> tuple[RowVerdict, ...]:
        """The verdicts of all rows, in domain and out of it."""
        averages = [(row.in_domain, row.out_of_domain) for row in self.rows]
        return tuple(one.verdict for pair in averages for one in pair if one is not None)


@dataclass(frozen=True, slots=True)
class _JudgedExperiment:
    """The inputs that all verdicts of a table share."""

    experiment: Experiment
    choice: Choice
    models: PublishedModels
    experts: ExpertGate
    latest: tuple[str, ...]  # repositories at another commit than the catalogue's


def build_table(
    experiment: Experiment,
    choice: Choice,
    models: PublishedModels,
    measured: Sequence[MeasuredRow],
    *,
    device: str,
    latest: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> PublishedTable:
    """The table of measured rows, in their order. ``latest`` are repositories at another commit than the catalogue's.

    The row INDIVIDUAL determines the gate. Without that row, no row is judged reproduced.
    """
    tasks = {one.key for one in experiment.tasks}
    scores = next((one.scores for one in measured if one.row == INDIVIDUAL), {})
    expert_scores = {task: score for task, score in scores.items() if task in tasks}
    experts = judge_experts(
        expert_scores, find_printed_experts(experiment, models.tower, models.authors), whole=choice.images is None
    )
    judged = _JudgedExperiment(experiment, choice, models, experts, tuple(latest))
    files = f"{NOT_CATALOGUED_REASON}: {', '.join(latest)}" if latest else ""
    origin = f"compared with those of {models.authors}" if uses_own_folder(experiment, choice) else models.authors
    return PublishedTable(
        experiment=experiment.key,
        title=experiment.title,
        models=f"{models.title} ({origin})",
        tower=models.tower,
        images=choice.images_text,
        seed=choice.seed,
        device=device,
        gate=experts,
        rows=tuple(_build_row(judged, one, above) for one, above in zip(measured, (None, *measured), strict=False)),
        notes=tuple(filter(None, (experts.text, files, *notes))),
    )


def _build_row(judged: _JudgedExperiment, measured_row: MeasuredRow, previous_row: MeasuredRow | None) -> TableRow:
    experiment, models = judged.experiment, judged.models
    if isinstance(measured_row.row, str):
        figures, key = (
            find_reference_figures(measured_row.row, experiment, models.tower, models.authors),
            measured_row.row,
        )
        title = REFERENCE_TITLES[measured_row.row]
    else:
        figures = find_figures(measured_row.row, experiment, models.tower, models.authors, judged.choice.exemplars)
        key, title = measured_row.row.key, measured_row.row.title
    figure = figures[0] if figures else None
    values, source = _find_printed_accuracies(experiment, measured_row.row, figure)
    sets = [each for each in list_test_sets(experiment, judged.choice) if each.key in measured_row.scores]
    in_domain_sets = [each for each in sets if each in experiment.tasks]
    out_of_domain_sets = [each for each in sets if each not in in_domain_sets]
    in_domain = _compare_average(
        judged,
        in_domain_sets,
        measured_row,
        figure,
        values,
        _find_printed_average(experiment, measured_row.row, figure, values),
    )
    out_of_domain = (
        _compare_average(
            judged, out_of_domain_sets, measured_row, figure, values, find_printed_outside(figure, out_of_domain_sets)
        )
        if out_of_domain_sets
        else None
    )
    return TableRow(
        key=key,
        title=title,
        in_domain=in_domain,
        out_of_domain=out_of_domain,
        h_score=_compute_h_scores(in_domain, out_of_domain),
        change=_compute_change(measured_row, previous_row, [each.key for each in in_domain_sets]),
        tasks=tuple(
            _build_task_line(each, measured_row.scores[each.key], values, each in in_domain_sets) for each in sets
        ),
        source=source,
        compared=in_domain.verdict.is_judged,
        run=measured_row.run,
    )


def _find_printed_accuracies(
    experiment: Experiment, row: str | RowVariant, compared_figure: ComparedFigure | None
) -> tuple[Mapping[str, float], str]:
    """Printed accuracies by task, in and out of domain, and the source of the row's figures."""
    if experiment.printed and isinstance(row, str):
        printed_models = experiment.printed
        return (printed_models.pretrained if row == PRETRAINED else printed_models.experts), printed_models.source
    if compared_figure is None:
        return {}, ""
    # strict=False: many sources print no accuracies out of domain
    outside = dict(zip(OUT_OF_DOMAIN_TASKS, compared_figure.figure.printed.outside, strict=False))
    columns = {one.key: outside[one.column] for one in experiment.outside if one.column in outside}
    return {**find_printed_tasks(experiment, compared_figure.figure), **columns}, compared_figure.figure.source


def _find_printed_average(
    experiment: Experiment, row: str | RowVariant, compared_figure: ComparedFigure | None, values: Mapping[str, float]
) -> tuple[float | None, bool]:
    """The printed average in domain, and whether it was computed from the printed accuracies of the tasks."""
    if experiment.is_papers_eight or not isinstance(row, str):
        return (compared_figure.figure.printed.in_domain if compared_figure else None), False
    known = [values[one.key] for one in experiment.tasks if one.key in values]
    return (sum(known) / len(known), True) if len(known) == len(experiment.tasks) else (None, False)


def _compare_average(
    judged: _JudgedExperiment,
    sets: Sequence[PublishedSet],
    measured_row: MeasuredRow,
    compared_figure: ComparedFigure | None,
    values: Mapping[str, float],
    printed: tuple[float | None, bool],
) -> ComparedAverage:
    """Our average over these test sets beside a printed one, with the verdict."""
    ours = average_scores([measured_row.scores[each.key] for each in sets])
    has_own_source = judged.experiment.printed is not None and isinstance(measured_row.row, str)
    why_not = "" if compared_figure is None or has_own_source else compared_figure.why_not
    other_split = (
        compared_figure.source.other_split if compared_figure and compared_figure.source and not has_own_source else ()
    )
    verdict = judge_average(
        ours,
        printed[0],
        experts=judged.experts
        if measured_row.row != PRETRAINED or uses_own_folder(judged.experiment, judged.choice)
        else None,
        why_not=why_not or (NOT_CATALOGUED_REASON if judged.latest else "") or _describe_other_wording(judged, sets),
        other_split=[each.title for each in sets if each.key in other_split],
        images=judged.choice.images,
        by_task={
            each.title: (measured_row.scores[each.key].percent, values[each.key]) for each in sets if each.key in values
        },
    )
    return ComparedAverage(ours, printed[0], verdict, printed[1])


def _describe_other_wording(judged: _JudgedExperiment, sets: Sequence[PublishedSet]) -> str:
    """Why accuracies on these test sets are not compared if they use the Hub's class names; empty otherwise."""
    outside = any(each not in judged.experiment.tasks for each in sets)
    return OTHER_WORDING_REASON if outside and judged.choice.wording != CLIP else ""


def find_printed_outside(
    compared_figure: ComparedFigure | None, sets: Sequence[PublishedSet]
) -> tuple[float | None, bool]:
    """The printed average out of domain over exactly these test sets, and whether it was computed from parts."""
    if compared_figure is None:
        return None, False
    figure, columns = compared_figure.figure, [one.column for one in sets]
    if set(columns) == set(OUT_OF_DOMAIN_TASKS):
        return figure.printed.out_of_domain, False
    values = dict(zip(OUT_OF_DOMAIN_TASKS, figure.printed.outside, strict=False))
    if any(column not in values for column in columns):
        return None, False
    return sum(values[str(column)] for column in columns) / len(columns), True


def _compute_h_scores(
    in_domain: ComparedAverage, out_of_domain: ComparedAverage | None
) -> tuple[float, float | None] | None:
    if out_of_domain is None:
        return None
    ours = 100 * h_score(in_domain.ours.mean / 100, out_of_domain.ours.mean / 100)
    if in_domain.printed is None or out_of_domain.printed is None:
        return ours, None
    return ours, 100 * h_score(in_domain.printed / 100, out_of_domain.printed / 100)


def _compute_change(
    measured_row: MeasuredRow, previous_row: MeasuredRow | None, tasks: Sequence[str]
) -> tuple[float, float, float] | None:
    """The difference to the row above over the tasks in domain, in points, with its interval; None if not known."""
    if previous_row is None or measured_row.right is None or previous_row.right is None:
        return None
    shared_tasks = [task for task in tasks if task in measured_row.right and task in previous_row.right]
    if len(shared_tasks) != len(tasks) or any(
        len(measured_row.right[task]) != len(previous_row.right[task]) for task in shared_tasks
    ):
        return None
    new, old = (
        {task: right[task].astype(np.float64) for task in shared_tasks}
        for right in (measured_row.right, previous_row.right)
    )
    table = compare_models(new, old, shared_tasks)
    (difference_row,) = table[(table["over"] == IN_DOMAIN) & (table["group"] == AVERAGE)].to_dict("records")
    return 100 * difference_row["difference"], 100 * difference_row["low"], 100 * difference_row["high"]


def _build_task_line(
    test_set: PublishedSet, score: TaskScore, printed: Mapping[str, float], is_in_domain: bool
) -> TaskLine:
    low, high = score.interval
    chance = (
        100 / len(read_prompts(test_set.prompts).class_names)
        if test_set.prompts in NEAR_CHANCE_SETS and test_set.prompts
        else None
    )
    return TaskLine(
        test_set.key, test_set.title, is_in_domain, score.percent, low, high, score.n, printed.get(test_set.key), chance
    )
