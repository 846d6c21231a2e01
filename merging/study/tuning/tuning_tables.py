"""Tables of a tuning: its history, the best of each search on the other half, fronts, importances; and its cost."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from merging.base.errors import StoreError
from merging.images.benchmarks.paired_scores import (
    H_SCORE,
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    average_groups,
    find_interval,
    group_tasks,
    resample_accuracies,
)
from merging.study.sweeps.points import PointSample, SampledBenchmark
from merging.study.sweeps.sweep_tables import STARTUP_SECONDS, SweepCost, estimate_point
from merging.study.tuning.searches import SEARCHES, accumulate_best, harmonic_mean, import_optuna, is_dominated
from merging.study.tuning.tuning_session import Trial, TuningSession, TuningTrace, find_best

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from merging.images.benchmarks.benchmark import Benchmark

GROUPS = {"h": H_SCORE, "in": IN_DOMAIN, "out": OUT_OF_DOMAIN}
BEST_COLUMNS = (
    "search", "trials", "trial", "point", "objective", "chosen", "value", "low", "high", "gap", "gap_low", "gap_high",
)  # fmt: skip


def trial_table(trace: TuningTrace) -> pd.DataFrame:
    """A row for each computed trial: search, trial (its number), point, run, value, best (so far), on_front.

    value is the objective, of several their harmonic mean. Each objective is a column, and values has the trial's.
    on_front is whether no other trial of any search is at least as good by every objective and better by one.
    """
    import pandas as pd

    objectives, rows = trace.tuning.objectives, []
    computed = [(trial, scores) for trial in trace.trials if (scores := trial.scores(objectives)) is not None]
    distinct = list({scores: None for _, scores in computed})
    fronts = {scores for scores in distinct if not is_dominated(scores, distinct)}
    for search in SEARCHES:
        own = [(trial, scores) for trial, scores in computed if trial.search == search]
        values = [harmonic_mean(scores) if len(scores) > 1 else scores[0] for _, scores in own]
        for (trial, scores), value, best in zip(own, values, accumulate_best(values), strict=True):
            assert trial.planned is not None
            rows.append({
                "search": search, "trial": trial.number, "point": trial.planned.name, "run": trial.planned.run_id,
                "value": value, "best": best, "on_front": scores in fronts,
                **dict(zip(objectives, scores, strict=True)), "values": trial.values,
            })  # fmt: skip
    names = ("search", "trial", "point", "run", "value", "best", "on_front", *objectives, "values")
    return pd.DataFrame(rows, columns=list(names))


def best_table(trace: TuningTrace, benchmark: Benchmark) -> pd.DataFrame:
    """A row for each search and objective: the best trial by the choosing half, and its score on the reporting half.

    chosen is the score on the choosing half, value with low and high that on the reporting half; gap is chosen − value,
    how much too optimistic the choice is, with the interval for two independent samples of images. All are fractions,
    NaN as long as they are unknown. trials counts those of the search.
    """
    import pandas as pd

    tuning, rows = trace.tuning, []
    for search, trial in find_best(trace.trials, tuning.objectives).items():
        reported = trace.reported.get(search)
        own, other = _resample(trial, benchmark, tuning.sample), _resample(reported, benchmark, tuning.report_sample)
        count = sum(one.search == search for one in trace.trials)
        for objective in tuning.objectives:
            chosen, value = trial.score(objective), reported.score(objective) if reported else math.nan
            interval = gaps = (math.nan, math.nan)
            if objective in own and objective in other:
                draws = other[objective]
                interval = tuple(map(float, find_interval(draws)))  # type: ignore[assignment]
                gaps = tuple(map(float, find_interval(own[objective] - np.roll(draws, 1))))  # type: ignore[assignment]
            name = trial.planned.name if trial.planned else ""
            rows.append((search, count, trial.number, name, objective, chosen, value, *interval, chosen - value, *gaps))
    return pd.DataFrame(rows, columns=list(BEST_COLUMNS))


def _resample(trial: Trial | None, benchmark: Benchmark, sample: PointSample) -> dict[str, NDArray[np.float64]]:
    """{objective: (draws,)} on resamples of the images; empty if the answers are not stored or are damaged."""
    if trial is None or trial.point is None or trial.planned is None:
        return {}
    correctness = None
    with contextlib.suppress(StoreError):
        sampled = SampledBenchmark.from_benchmark(benchmark, sample.normalize_on(benchmark))
        correctness = trial.point.read_correctness(sampled)
    if not correctness:
        return {}
    by_task = resample_accuracies({"": correctness})[""]
    groups = group_tasks(by_task, {name for name, _ in trial.planned.point.recipe.experts})
    means = average_groups(by_task, groups)
    draws = {objective: means[name] for objective, name in GROUPS.items() if name in means}
    return draws | {"worst": np.min(list(by_task.values()), axis=0)}


def importance_table(trace: TuningTrace) -> pd.DataFrame:
    """A row for each objective and each dimension: its importance; those of an objective add up to 1.

    By PED-ANOVA (Watanabe, Bansal and Hutter, IJCAI 2023) from the trials of all searches: how much the values of the
    best tenth differ from those of all.
    """
    import pandas as pd

    optuna, space, rows = import_optuna(), trace.tuning.checked_space, []
    distributions: dict[str, Any] = {
        one.name: optuna.distributions.CategoricalDistribution(one.choices) if one.choices
        else optuna.distributions.IntDistribution(int(one.low), int(one.high)) if one.is_whole
        else optuna.distributions.FloatDistribution(one.low, one.high)
        for one in space.dimensions
    }  # fmt: skip
    labels = {one.name: one.label for one in space.dimensions}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    for objective in trace.tuning.objectives:
        study = optuna.create_study(direction="minimize")  # the evaluator looks at low values
        for trial in trace.trials:
            if not math.isnan(score := trial.score(objective)):
                own = {name: distributions[name] for name in trial.values}
                study.add_trial(optuna.trial.create_trial(params=dict(trial.values), distributions=own, value=-score))
        if len({trial.value for trial in study.trials}) < 2:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # too few trials with some choice of edits
            found: Mapping[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
        rows += [(objective, name, labels[name], value) for name, value in found.items()]
    return pd.DataFrame(rows, columns=["objective", "name", "label", "importance"])


def dimension_table(trace: TuningTrace) -> pd.DataFrame:
    """A row for each trial and dimension: ``trial_table`` with name, label, text (the value), and x in [0, 1].

    x is the position of the value in its range, or among its choices.
    """
    import pandas as pd

    table, rows = trial_table(trace).drop(columns="on_front"), []
    dimensions = {one.name: one for one in trace.tuning.checked_space.dimensions}
    for row in table.to_dict("records"):
        for name, value in row.pop("values").items():
            one = dimensions[name]
            if one.choices:
                x, number = one.choices.index(value) / max(len(one.choices) - 1, 1), float(one.choices.index(value))
            else:
                x, number = (value - one.low) / (one.high - one.low), float(value)
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            rows.append({**row, "name": name, "label": one.label, "number": number, "text": text, "x": x})
    columns = [name for name in table.columns if name != "values"]
    return pd.DataFrame(rows, columns=[*columns, "name", "label", "number", "text", "x"])


def estimate_tuning(session: TuningSession) -> SweepCost:
    """The cost of a tuning with a budget of points; of one with a budget of minutes, ``seconds`` are these."""
    tuning, trace = session.tuning, session.read()
    each, known = estimate_point(session.session, tuning.recipe, session.store)
    total = trace.total or 0
    missing = total - trace.computed
    seconds = STARTUP_SECONDS + each * missing if tuning.points else 60 * tuning.minutes
    return SweepCost(total, trace.computed, seconds if missing or not total else 0.0, each, known)
