"""The table of an experiment: our accuracies with their intervals, the printed ones, and a verdict for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merging.images.benchmarks.metrics import h_score
from merging.images.prompt_sets import CLIP, prompts
from merging.recipes.papers.published_figures import OUTSIDE
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
from merging.study.previews.bootstrap import AVERAGE, IN_DOMAIN, paired_differences

Right = Mapping[str, NDArray[np.bool_]]  # {task: (images,) bool, whether the answer is right}
REFERENCE_TITLES = {PRETRAINED: "Pretrained", INDIVIDUAL: "Each expert on its own task"}
NEAR_CHANCE = ("kmnist", "pcam", "rendered_sst2")  # test sets on which models are near chance
NOT_CATALOGUED = "not the catalogue's files"
OTHER_WORDING = "other wording: class names as the Hub writes them"


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The measurements of a row: its accuracies by task, and, if known, which answers were right.

    ``row`` is PRETRAINED, INDIVIDUAL, or a variant of a row. ``run`` is the stored run.
    """

    row: str | RowVariant
    scores: Mapping[str, TaskScore]
    right: Right | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class ComparedAverage:
    """One average beside the printed one, in percent; ``computed`` says that the latter was computed from parts."""

    ours: Average
    printed: float | None
    verdict: RowVerdict
    computed: bool = False


@dataclass(frozen=True, slots=True)
class TaskLine:
    """One task of a row, in percent: our accuracy with its interval, the printed one, chance if models are near it."""

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
    """A row. ``change`` is the difference to the row above with its interval, in points, from a paired bootstrap.

    ``compared`` is False if the printed values belong to another experiment; they are shown in gray.
    """

    key: str
    title: str
    inside: ComparedAverage
    outside: ComparedAverage | None
    h_score: tuple[float, float | None] | None
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
        both = [(row.inside, row.outside) for row in self.rows]
        return tuple(one.verdict for pair in both for one in pair if one is not None)


@dataclass(frozen=True, slots=True)
class _JudgedExperiment:
    """The inputs of all verdicts of a table."""

    experiment: Experiment
    choice: Choice
    used: PublishedModels
    experts: ExpertGate
    latest: tuple[str, ...]


def build_table(
    experiment: Experiment,
    choice: Choice,
    used: PublishedModels,
    measured: Sequence[MeasuredRow],
    *,
    device: str,
    latest: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> PublishedTable:
    """The table of measured rows, in their order. ``latest`` are repositories that are not at the catalogue's commit.

    The row INDIVIDUAL determines the gate; without it, nothing is judged reproduced.
    """
    tasks = {one.key for one in experiment.tasks}
    scores = next((one.scores for one in measured if one.row == INDIVIDUAL), {})
    own = {task: score for task, score in scores.items() if task in tasks}
    experts = judge_experts(own, find_printed_experts(experiment, used.tower, used.by), whole=choice.images is None)
    judged = _JudgedExperiment(experiment, choice, used, experts, tuple(latest))
    files = f"{NOT_CATALOGUED}: {', '.join(latest)}" if latest else ""
    return PublishedTable(
        experiment=experiment.key,
        title=experiment.title,
        models=f"{used.title} ({f'beside those of {used.by}' if uses_own_folder(experiment, choice) else used.by})",
        tower=used.tower,
        images=choice.images_text,
        seed=choice.seed,
        device=device,
        gate=experts,
        rows=tuple(_row(judged, one, above) for one, above in zip(measured, (None, *measured), strict=False)),
        notes=tuple(filter(None, (experts.text, files, *notes))),
    )


def _row(judged: _JudgedExperiment, one: MeasuredRow, above: MeasuredRow | None) -> TableRow:
    experiment, used = judged.experiment, judged.used
    if isinstance(one.row, str):
        figures, key = find_reference_figures(one.row, experiment, used.tower, used.by), one.row
        title = REFERENCE_TITLES[one.row]
    else:
        figures = find_figures(one.row, experiment, used.tower, used.by, judged.choice.exemplars)
        key, title = one.row.key, one.row.title
    best = figures[0] if figures else None
    values, source = _find_printed_accuracies(experiment, one.row, best)
    sets = [each for each in list_test_sets(experiment, judged.choice) if each.key in one.scores]
    inside = [each for each in sets if each in experiment.tasks]
    outside = [each for each in sets if each not in inside]
    compared = _compare_average(
        judged, inside, one, best, values, _find_printed_average(experiment, one.row, best, values)
    )
    beyond = (
        _compare_average(judged, outside, one, best, values, find_printed_outside(best, outside)) if outside else None
    )
    return TableRow(
        key=key,
        title=title,
        inside=compared,
        outside=beyond,
        h_score=_h_score(compared, beyond),
        change=_change(one, above, [each.key for each in inside]),
        tasks=tuple(_task_line(each, one.scores[each.key], values, each in inside) for each in sets),
        source=source,
        compared=compared.verdict.is_judged,
        run=one.run,
    )


def _find_printed_accuracies(
    experiment: Experiment, row: str | RowVariant, best: ComparedFigure | None
) -> tuple[Mapping[str, float], str]:
    """Printed accuracies by task, in and out of domain, and the source of the row's figures."""
    if experiment.printed and isinstance(row, str):
        alone = experiment.printed
        return (alone.pretrained if row == PRETRAINED else alone.experts), alone.source
    if best is None:
        return {}, ""
    outside = dict(zip(OUTSIDE, best.figure.printed.outside, strict=False))
    columns = {one.key: outside[one.column] for one in experiment.outside if one.column in outside}
    return {**find_printed_tasks(experiment, best.figure), **columns}, best.figure.source


def _find_printed_average(
    experiment: Experiment, row: str | RowVariant, best: ComparedFigure | None, values: Mapping[str, float]
) -> tuple[float | None, bool]:
    """The printed average in domain, and whether it was computed from the printed accuracies of the tasks."""
    if experiment.is_papers_eight or not isinstance(row, str):
        return (best.figure.printed.in_domain if best else None), False
    known = [values[one.key] for one in experiment.tasks if one.key in values]
    return (sum(known) / len(known), True) if len(known) == len(experiment.tasks) else (None, False)


def _compare_average(
    judged: _JudgedExperiment,
    sets: Sequence[PublishedSet],
    one: MeasuredRow,
    best: ComparedFigure | None,
    values: Mapping[str, float],
    printed: tuple[float | None, bool],
) -> ComparedAverage:
    """Our average over these test sets beside a printed one, with the verdict."""
    ours = average_scores([one.scores[each.key] for each in sets])
    is_alone = judged.experiment.printed is not None and isinstance(one.row, str)
    why_not = "" if best is None or is_alone else best.why_not
    others = best.source.other_split if best and best.source and not is_alone else ()
    decided = judge_average(
        ours,
        printed[0],
        experts=judged.experts if one.row != PRETRAINED or uses_own_folder(judged.experiment, judged.choice) else None,
        why_not=why_not or (NOT_CATALOGUED if judged.latest else "") or _describe_other_wording(judged, sets),
        other_split=[each.title for each in sets if each.key in others],
        images=judged.choice.images,
        by_task={each.title: (one.scores[each.key].percent, values[each.key]) for each in sets if each.key in values},
    )
    return ComparedAverage(ours, printed[0], decided, printed[1])


def _describe_other_wording(judged: _JudgedExperiment, sets: Sequence[PublishedSet]) -> str:
    """Why test sets with the Hub's class names are not compared; empty if none of these has them."""
    outside = any(each not in judged.experiment.tasks for each in sets)
    return OTHER_WORDING if outside and judged.choice.wording != CLIP else ""


def find_printed_outside(best: ComparedFigure | None, sets: Sequence[PublishedSet]) -> tuple[float | None, bool]:
    """The printed average out of domain over exactly these test sets, and whether it had to be computed from parts."""
    if best is None:
        return None, False
    figure, columns = best.figure, [one.column for one in sets]
    if set(columns) == set(OUTSIDE):
        return figure.printed.out_of_domain, False
    values = dict(zip(OUTSIDE, figure.printed.outside, strict=False))
    if any(column not in values for column in columns):
        return None, False
    return sum(values[str(column)] for column in columns) / len(columns), True


def _h_score(inside: ComparedAverage, outside: ComparedAverage | None) -> tuple[float, float | None] | None:
    if outside is None:
        return None
    ours = 100 * h_score(inside.ours.mean / 100, outside.ours.mean / 100)
    if inside.printed is None or outside.printed is None:
        return ours, None
    return ours, 100 * h_score(inside.printed / 100, outside.printed / 100)


def _change(one: MeasuredRow, above: MeasuredRow | None, inside: Sequence[str]) -> tuple[float, float, float] | None:
    """The difference to the row above over the tasks in domain, in points, with its interval; None if not known."""
    if above is None or one.right is None or above.right is None:
        return None
    both = [task for task in inside if task in one.right and task in above.right]
    if len(both) != len(inside) or any(len(one.right[task]) != len(above.right[task]) for task in both):
        return None
    new, old = ({task: right[task].astype(np.float64) for task in both} for right in (one.right, above.right))
    table = paired_differences(new, old, both)
    (line,) = table[(table["over"] == IN_DOMAIN) & (table["group"] == AVERAGE)].to_dict("records")
    return 100 * line["difference"], 100 * line["low"], 100 * line["high"]


def _task_line(one: PublishedSet, score: TaskScore, printed: Mapping[str, float], inside: bool) -> TaskLine:
    low, high = score.interval
    chance = 100 / len(prompts(one.prompts).class_names) if one.prompts in NEAR_CHANCE and one.prompts else None
    return TaskLine(one.key, one.title, inside, score.percent, low, high, score.n, printed.get(one.key), chance)
