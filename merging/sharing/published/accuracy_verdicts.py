"""Comparison of our accuracies with published ones, in percent: the gate of the experts, and a verdict for every row.

An interval covers only the sampling of images: how much the average would change with other images.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from merging.images.benchmarks.metrics import summary_of, wilson

REPRODUCED, AGREES, WITHIN_SPLIT = "reproduced", "agrees", "within the split"
DIFFERS, NOT_COMPARABLE = "differs", "not comparable"
# REPRODUCED: the printed value is in our interval. AGREES: the same on a sample of the images. WITHIN_SPLIT: the source
# used other images or ours are a sample, and the difference can come from that.
ROUNDING_POINTS = 0.3  # an interval is widened by this, for rounded printed values and other decoders of images
SPLIT_POINTS = 1.5  # the accuracy on another split may differ by this
# Experts are those of the source if their accuracies are within NEAR_POINTS of the printed ones on NEAR_SHARE of the
# tasks.
NEAR_POINTS = 1.0
NEAR_SHARE = 7 / 8
MAX_NAMED_TASKS = 3  # in the verdict on a row that differs


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The accuracy on ``n`` images of a task, from 0 to 1."""

    task: str
    accuracy: float
    n: int

    @property
    def percent(self) -> float:
        """The accuracy in percent."""
        return 100 * self.accuracy

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval in percent."""
        low, high = wilson(round(self.accuracy * self.n), self.n)
        return 100 * low, 100 * high


@dataclass(frozen=True, slots=True)
class Average:
    """A mean over tasks with its 95 % interval, in percent, and the number of images behind it."""

    mean: float
    low: float
    high: float
    n: int


def average_scores(scores: Collection[TaskScore]) -> Average:
    """The unweighted mean of accuracies; their variances add, since the images of tasks are independent."""
    summary = summary_of([(one.task, one.accuracy, one.n) for one in scores], [one.task for one in scores], {})
    return Average(100 * summary.in_domain, 100 * summary.in_low, 100 * summary.in_high, summary.n_in)


@dataclass(frozen=True, slots=True)
class ExpertGate:
    """Whether these are the experts of the source, judged by the accuracy of each on its task.

    ``far`` lists the tasks whose accuracies are not near the printed ones. ``known`` is False if no source prints any.
    ``whole`` is False if the accuracies come from samples of the test sets.
    """

    passed: bool
    known: bool
    near: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    whole: bool = True

    @property
    def text(self) -> str:
        """The gate in a sentence."""
        if not self.known:
            return "No source prints these experts' own accuracies, so nothing is judged reproduced."
        nearness = "are within" if self.whole else "have an interval that reaches to within"
        count = f"{len(self.near)} of {len(self.near) + len(self.far)} experts {nearness} {NEAR_POINTS:g} point"
        if self.passed:
            return f"The source's experts: {count} of their printed accuracy."
        return f"Other experts: only {count} of their printed accuracy (not {', '.join(self.far)})."


def judge_experts(scores: Mapping[str, TaskScore], printed: Mapping[str, float], *, whole: bool) -> ExpertGate:
    """Compare the accuracy of each expert on its task with the printed one, by task.

    On a sample of the images, an accuracy is near the printed one if its interval reaches to within
    ``NEAR_POINTS``.
    """
    if not printed or not scores:
        return ExpertGate(False, False)
    near = [task for task, score in scores.items() if task in printed and _is_near(score, printed[task], whole=whole)]
    far = [task for task in scores if task not in near]
    return ExpertGate(len(near) >= math.ceil(NEAR_SHARE * len(scores)), True, tuple(near), tuple(far), whole)


def _is_near(score: TaskScore, printed: float, *, whole: bool) -> bool:
    low, high = (score.percent, score.percent) if whole else score.interval
    return low - NEAR_POINTS <= printed + 1e-9 and printed - 1e-9 <= high + NEAR_POINTS


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """One of the five verdicts above, its reason, ours − printed in points, and the tasks that differ most."""

    word: str
    reason: str = ""
    difference: float | None = None
    tasks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The verdict with its reason."""
        tasks_text = f"most on {', '.join(self.tasks)}" if self.tasks else ""
        reasons = "; ".join(filter(None, (self.reason, tasks_text)))
        return f"{self.word}: {reasons}" if reasons else self.word

    @property
    def is_judged(self) -> bool:
        """Whether ours and the printed value were compared."""
        return self.word != NOT_COMPARABLE


def judge_average(
    ours: Average,
    printed: float | None,
    *,
    experts: ExpertGate | None,
    why_not: str = "",
    other_split: Sequence[str] = (),
    images: int | None = None,
    by_task: Mapping[str, tuple[float, float]] | None = None,
) -> RowVerdict:
    """The verdict on one average.

    ``experts`` is the gate of the experts, None for the pretrained model. ``why_not`` is the reason why the figure is
    not compared. ``other_split`` lists the tasks for which the source scored other images, ``images`` is the number
    of sampled images of each (None: all). ``by_task`` has our and the printed accuracy of each task.
    """
    if printed is None:
        return RowVerdict(NOT_COMPARABLE, why_not or "no source prints it")
    difference = ours.mean - printed
    if why_not or (experts is not None and not experts.passed):
        reason = why_not or (
            "other experts" if experts and experts.known else "the experts are not known to be the same"
        )
        return RowVerdict(NOT_COMPARABLE, reason, difference)
    sample = "" if images is None else f"on {images:,} of each"
    is_inside = ours.low - ROUNDING_POINTS <= printed <= ours.high + ROUNDING_POINTS
    if is_inside and not other_split:
        return RowVerdict(AGREES if sample else REPRODUCED, sample, difference)
    split_reason = f"the source used other images of {', '.join(other_split)}" if other_split else ""
    if (sample or other_split) and (is_inside or abs(difference) <= SPLIT_POINTS + 1e-9):
        return RowVerdict(WITHIN_SPLIT, "; ".join(filter(None, (split_reason, sample))), difference)
    return RowVerdict(DIFFERS, sample, difference, _largest_differences(by_task or {}))


def _largest_differences(by_task: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """The tasks with the largest differences, each with its difference, as 'cars (+1.2)'."""
    differences = {task: ours - printed for task, (ours, printed) in by_task.items()}
    furthest = sorted(differences, key=lambda task: -abs(differences[task]))[:MAX_NAMED_TASKS]
    return tuple(f"{task} ({differences[task]:+.1f})" for task in furthest)


def is_expectation_met(verdicts: Collection[RowVerdict], expected: str) -> bool:
    """Whether no judged row differs, as ``--expect reproduced`` requires; no other expectation exists."""
    if expected != REPRODUCED:
        raise ValueError(f"the expectation can only be {REPRODUCED}, not {expected}")
    return all(one.word != DIFFERS for one in verdicts)
