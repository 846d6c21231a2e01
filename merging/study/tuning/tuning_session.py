"""Computes a tuning: its points are points of sweeps, so they are shared, distributed and resumed like those.

Each start asks the searches again from the beginning and answers them with stored points, up to the first missing one.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from merging.base.errors import MergingError, ParameterError, Paused, RecipeError, WorkersGone
from merging.base.progress import Progress
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import Summary, summary_of
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.point_computation import PointComputation, compute_points
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import NamedPoint, SweepPoint
from merging.study.sweeps.sweep_session import SweepOutcome, SweepSession, drop_repeated
from merging.study.tuning.searches import (
    SEARCHES,
    TUNE,
    Scores,
    Values,
    draw_grid,
    harmonic_mean,
    import_optuna,
    start_search,
)
from merging.study.tuning.tuning import OBJECTIVES, Tuning, read_spent, write_spent
from merging.tasks.context import QUIET, Context
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.workers import Workers

TUNE_SHARE = 1 / 3  # of a budget of minutes; random search and grid then have the same number of points
MAX_TRIALS = 2000  # of a tuning whose budget is time
RESOLUTION = 10_000  # steps of the progress
COLUMNS = {"h": "h_score", "in": "in_domain", "out": "out_of_domain"}


@dataclass(frozen=True)
class Trial:
    """A point that a search asked for: its values, its plan, and the point once it is stored.

    ``planned`` is None where the chain is invalid with these values.
    """

    search: str
    number: int  # from 1
    values: Values
    planned: NamedPoint | None
    point: Point | None = None

    @cached_property
    def summary(self) -> Summary | None:
        """The averages of the point."""
        return None if self.point is None or self.planned is None else _summarize(self.point, self.planned.point.recipe)

    def score(self, objective: str) -> float:
        """The score of an objective, a fraction; NaN if there is none."""
        if self.summary is None or self.point is None:
            return math.nan
        if objective == "worst":
            return min(float(accuracy) for accuracy in self.point.table["accuracy"].tolist())
        return float(getattr(self.summary, COLUMNS[objective]))

    def scores(self, objectives: Sequence[str]) -> Scores:
        """The scores of the objectives; None without all of them."""
        scores = tuple(map(self.score, objectives))
        return None if any(map(math.isnan, scores)) else scores


def _summarize(point: Point, recipe: Recipe) -> Summary:
    columns = (point.table[name].tolist() for name in ("task", "accuracy", "n"))
    return summary_of(list(zip(*columns, strict=True)), {name for name, _ in recipe.experts}, {})


@dataclass(frozen=True)
class TuningTrace:
    """The trials of a tuning so far, and the best of each search on the reporting half.

    ``total`` counts all points of the budget, once it is known.
    """

    tuning: Tuning
    trials: tuple[Trial, ...]
    reported: Mapping[str, Trial] = field(default_factory=dict)
    total: int = 0

    @property
    def computed(self) -> int:
        """The number of trials that need no more computation."""
        return sum(trial.planned is None or trial.point is not None for trial in self.trials)

    def count_trials(self) -> dict[str, int]:
        """{search: its number of trials}."""
        return dict(Counter(trial.search for trial in self.trials))

    @property
    def complete(self) -> bool:
        """Whether all trials and the best ones on the reporting half are computed."""
        return 0 < self.total == self.computed and {*self.reported} == {*find_best(self.trials, self.tuning.objectives)}


def find_best(trials: Sequence[Trial], objectives: Sequence[str]) -> dict[str, Trial]:
    """{search: its best trial}, by the harmonic mean of the objectives; of equal ones the first."""
    best: dict[str, tuple[float, Trial]] = {}
    for trial in trials:
        if (scores := trial.scores(objectives)) is not None:
            value = harmonic_mean(scores) if len(scores) > 1 else scores[0]
            if trial.search not in best or value > best[trial.search][0]:
                best[trial.search] = value, trial
    return {search: trial for search, (_, trial) in best.items()}


Answer = Callable[[str, list[NamedPoint], SweepSession], Mapping[str, Point]]


@dataclass
class TuningSession:
    """What the points of a tuning share. Raises MergingError if it does not fit the benchmark, or Optuna is missing."""

    tuning: Tuning
    store: Store
    benchmark: Benchmark
    context: Context = QUIET

    def __post_init__(self) -> None:
        import_optuna()
        self.session = SweepSession(self.benchmark, self.tuning.sample, self.context)
        self.report_session = SweepSession(self.benchmark, self.tuning.report_sample, self.context)
        experts = dict(self.tuning.recipe.experts)
        inside = [task.key in experts for task in self.benchmark.tasks]
        for name, missing in (("out", all(inside)), ("h", all(inside) or not any(inside)), ("in", not any(inside))):
            if name in self.tuning.objectives and missing:
                domains = {"out": "out of domain", "h": "on one side of the domain", "in": "in domain"}
                raise ParameterError(
                    f"The objective {name} ({OBJECTIVES[name]}) needs tasks "
                    f"{'in and out of domain' if name == 'h' else domains[name]}, which this benchmark lacks for these "
                    "experts; take another objective."
                )
        opened = self.session.open_checkpoints(self.tuning.recipe)
        if reason := self.benchmark.describe_misfit(opened.pretrained):
            raise MergingError(f"These models cannot be evaluated on the benchmark: {reason}")
        self._plan(next(iter(draw_grid(self.tuning.checked_space, 1, 0))))  # raises if coefficients match no tensor

    def follow(self, answer: Answer, count: Callable[[int], int]) -> TuningTrace:
        """Ask every search, with its answers. ``answer`` returns the points that are stored now.

        ``count`` returns the number of points of a search, 0 as long as it is unknown, from the number of those asked
        so far by the tuning; it is called before every batch.
        """
        trials: list[Trial] = []
        objectives, asked, limit = self.tuning.objectives, 0, 0
        for name in SEARCHES:
            if not (limit := count(asked)) and name != TUNE:
                break
            search = start_search(name, self.tuning, limit if name != TUNE else self.tuning.points or MAX_TRIALS)
            batch, number = next(search, None), 0
            while batch and (name != TUNE or not (limit := count(asked)) or asked < limit):
                answered = self._answer(name, number, batch, answer)
                trials += answered
                number += len(batch)
                asked += len(batch) if name == TUNE else 0
                if any(trial.planned and trial.point is None for trial in answered):
                    break
                try:
                    batch = search.send([trial.scores(objectives) for trial in answered])
                except StopIteration:
                    break
        others = sum(trial.search != TUNE for trial in trials)  # a small grid has fewer than the budget
        reported = self._report(trials, answer) if trials else {}
        return TuningTrace(self.tuning, tuple(trials), reported, limit and limit + others)

    def _answer(self, name: str, number: int, batch: Sequence[Values], answer: Answer) -> list[Trial]:
        """The trials of a batch; ``number`` is that of those before it."""
        planned = [self._plan(values) for values in batch]
        known = answer(name, drop_repeated([one for one in planned if one]), self.session)
        return [
            Trial(name, number + index, values, one, known.get(one.name) if one else None)
            for index, (values, one) in enumerate(zip(batch, planned, strict=True), 1)
        ]

    def _plan(self, values: Values) -> NamedPoint | None:
        try:
            recipe = self.tuning.checked_space.apply(values)
        except (RecipeError, ParameterError):
            return None
        return self.session.plan_point(SweepPoint(0, (0.0,), recipe))

    def _report(self, trials: Sequence[Trial], answer: Answer) -> dict[str, Trial]:
        best = find_best(trials, self.tuning.objectives)
        planned = {
            name: self.report_session.plan_point(trial.planned.point) for name, trial in best.items() if trial.planned
        }
        known = answer("", drop_repeated(list(planned.values())), self.report_session)
        return {
            name: replace(best[name], planned=one, point=known[one.name])
            for name, one in planned.items() if one.name in known
        }  # fmt: skip

    def read(self) -> TuningTrace:
        """What is stored of the tuning so far; nothing is computed."""
        _, limit = read_spent(self.store, self.tuning.id)
        return self.follow(self._find_stored, lambda asked: self.tuning.points or limit)

    def _find_stored(self, name: str, planned: list[NamedPoint], session: SweepSession) -> Mapping[str, Point]:
        return KnownPoints(planned, self.store, self.benchmark, session.sample).read_points()


def run_tuning(tuning: Tuning, store: Store, benchmark: Benchmark, *, context: Context = QUIET) -> SweepOutcome:
    """Compute the missing points of a tuning, and store each as soon as it is computed; it can pause between two.

    Raises:
        MergingError: a point could not be computed, or Optuna is missing. StoreError: the disk cannot be written to.
        Cancelled: the user cancelled, or all workers are gone (WorkersGone); finished points remain stored.
    """
    points.point_results(store).sweep()  # removes temporary files that crashed writers left
    session, warned = TuningSession(tuning, store, benchmark, context), set[str]()

    def warn_once(sentence: str) -> None:
        if sentence not in warned:
            warned.add(sentence)
            context.warn(sentence)

    context, opened = replace(context, warn=warn_once), session.session.open_checkpoints(tuning.recipe)
    for doubt in opened.doubts:
        warn_once(doubt)
    try:
        # mixable: different hardware may compute points of one tuning, since each point states its device
        with open_workers(context, mixable=True) as workers:
            if workers is not None:
                workers.check_memory(session.session.estimate_memory(opened), "a point")
            run = _Run(session, context, workers)
            trace = session.follow(run.compute, run.count)
    except WorkersGone:
        raise
    except Paused:
        trace = session.read()
        return SweepOutcome(trace.computed, trace.total, True)
    return SweepOutcome(trace.computed, trace.total, False)


class _Run:
    """One start of a tuning: it computes the points that are missing, and counts the time that the search takes."""

    def __init__(self, session: TuningSession, context: Context, workers: Workers | None) -> None:
        self._context, self._workers, self._done, self._timed = context, workers, 0, time.monotonic()
        self._tuning, self._store = session.tuning, session.store
        self._spent, self._limit = read_spent(self._store, self._tuning.id)

    def count(self, asked: int) -> int:
        """The points of each search; of a budget of minutes, those until its share is over."""
        if self._tuning.points:
            return self._tuning.points
        is_over = self._spent >= 60 * self._tuning.minutes * TUNE_SHARE
        if not self._limit and (asked >= MAX_TRIALS or (asked >= 2 and is_over)):
            self._limit = asked
            write_spent(self._store, self._tuning.id, self._spent, asked)
        return self._limit

    def compute(self, name: str, planned: list[NamedPoint], session: SweepSession) -> Mapping[str, Point]:
        """The points, after computing those that are missing."""
        known_points = KnownPoints(planned, self._store, session.benchmark, session.sample)
        stored = known_points.read_points()
        self._done += len(planned) if name else 0
        missing = [one for one in planned if one.name not in stored]
        failures = compute_points(
            missing, len(planned), self._store, PointComputation(session.compute, session.request), self._workers,
            self._report_part(name, len(planned)),
        ) if missing else {}  # fmt: skip
        if failures:
            failed = next(one for one in missing if one.name in failures)
            raise MergingError(
                f"A point could not be computed, so the tuning stops; the others are stored. "
                f"{failed.point.recipe.text()}: {failures[failed.name]}"
            )
        if self._tuning.minutes and name == TUNE and not self._limit:
            before, self._timed = self._timed, time.monotonic()
            self._spent += self._timed - before
            write_spent(self._store, self._tuning.id, self._spent)
        return known_points.read_points() if missing else stored

    def _report_part(self, name: str, count: int) -> Context:
        """The context of a batch of points, whose progress is a part of that of the tuning."""
        total = 3 * (self._tuning.points or self._limit) + 3
        start, end = (total - 3, total) if not name else (self._done - count, self._done)
        title = {TUNE: f"Tuning, from trial {start + 1}", "": "The best on the other half"}.get(name, f"{name} search")
        report = self._context.progress

        def pass_on(inner: Progress) -> None:
            fraction = (start + inner.fraction * (end - start)) / total
            if total == 3 and name:  # minutes; the number of points is unknown
                fraction = TUNE_SHARE * min(1.0, self._spent / (60 * self._tuning.minutes * TUNE_SHARE))
            if report is not None:
                report(
                    Progress(f"{title}: {inner.phase}", round(fraction * RESOLUTION), RESOLUTION, None, inner.detail)
                )

        return replace(self._context, progress=pass_on if report is not None else None)
