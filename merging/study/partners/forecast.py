"""What a merge that has not run is expected to cost each of its tasks, or why nothing can be expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from merging.study.partners.foretell import REGRESSION, TeamRow, build_team_rows, foretell_unseen
from merging.study.partners.predictors import list_predictors

LOW, HIGH = 0.1, 0.9  # quantiles of the residuals of teams that were left out, which a range adds to what is foretold
SIZES = {2: "two", 3: "three"}
TITLES = {  # of predictors; the others' names are words
    "log_norm_ratio": "ratio of norms", "conflict": "sign conflict", "right": "overlap of right singular subspaces",
    "left": "overlap of left singular subspaces", "alignment": "gradient alignment", "first_rank": "effective rank",
    "second_rank": "effective rank of the partners", "pretrained": "accuracy of the pretrained model",
}  # fmt: skip


class Forecast(NamedTuple):
    """The losses of a team, or the ``reason`` for which none is stated, of its ``task`` if it is of a single one.

    ``losses`` has the columns task, foretold, low, high and measured (NaN if this team is not measured), shares of
    accuracy; a negative loss is a gain. ``residuals`` is the number of left-out rows whose quantiles give the range.
    """

    losses: pd.DataFrame
    reason: str = ""
    task: str = ""
    residuals: int = 0


def forecast_losses(
    pairs: pd.DataFrame, losses: Mapping[TeamRow, float], judged: pd.DataFrame, team: frozenset[str]
) -> Forecast:
    """The expected losses of a team, from the ``losses`` of teams that share no more than one partner with each row.

    ``pairs`` is the table of ``predictors.build_pair_table``, ``judged`` that of ``judge_predictors`` of these losses.
    A row is foretold by the regressions of ``foretell_unseen``, which do not see its own value. Nothing is stated for
    other sizes of teams, for predictors outside the range of the other teams', or if they do not beat their control or
    err more than a constant.
    """
    columns, empty = list_predictors(pairs), pd.DataFrame(columns=["task", "foretold", "low", "high", "measured"])
    if reason := _find_reason(losses, judged, team):
        return Forecast(empty, reason)
    rows = [row for row in losses if row.team != team]
    wanted = [TeamRow(team, task) for task in sorted(team)]
    table, values = build_team_rows(pairs, [*rows, *wanted], columns), np.array([losses[row] for row in rows])
    known = np.isfinite(table[: len(rows)]).all(axis=1) & np.isfinite(values)
    for row, predictors in zip(wanted, table[len(rows) :], strict=True):
        seen = table[: len(rows)][known]
        inside = (predictors >= seen.min(axis=0)) & (predictors <= seen.max(axis=0))  # not if NaN
        if not inside.all():
            name = columns[int(np.flatnonzero(~inside)[0])]
            return Forecast(empty, f"its {TITLES.get(name, name)} is outside the range of the other teams.", row.task)
    rows = [rows[index] for index in np.flatnonzero(known).tolist()]
    sizes = np.array([[len(row.team)] for row in [*rows, *wanted]])
    predictors = np.hstack([np.concatenate([table[: len(known)][known], table[len(known) :]]), sizes])
    residuals = values[known] - foretell_unseen(predictors[: len(rows)], values[known], rows)
    residuals = residuals[np.isfinite(residuals)]
    padded = np.concatenate([values[known], np.zeros(len(wanted))])  # no regression of a wanted row sees its own value
    foretold = foretell_unseen(predictors, padded, [*rows, *wanted])[len(rows) :]
    low, high = np.quantile(residuals, (LOW, HIGH))
    found = {"task": [row.task for row in wanted], "foretold": foretold, "low": foretold + low, "high": foretold + high}
    measured = [losses.get(row, np.nan) for row in wanted]
    return Forecast(pd.DataFrame(found).assign(measured=measured), residuals=len(residuals))


def _find_reason(losses: Mapping[TeamRow, float], judged: pd.DataFrame, team: frozenset[str]) -> str:
    """Why nothing is stated of a team, whatever its predictors; empty if there is no reason."""
    sizes = sorted({len(row.team) for row in losses})
    if len(team) not in sizes:
        words = " and ".join(SIZES.get(size, str(size)) for size in sizes) or "no number of"
        return f"The regression is fitted on teams of {words} experts, and this one has {len(team)}."
    verdict = judged.set_index("name").loc[REGRESSION]
    if not np.isfinite(verdict["rho"]):
        return "There are too few experts: of every team, two are left out, and at least four rows must remain."
    if not verdict["beats_control"] or verdict["rho"] <= 0:
        return (
            "For this chain, the predictors do not foretell losses better than those of other experts do "
            f"(Spearman's ρ = {verdict['rho']:.2f}, p = {verdict['p']:.2g}).".replace("-", "−")
        )
    if not verdict["error"] < verdict["constant_error"]:
        own, constant = (f"{100 * verdict[name]:.2f} points" for name in ("error", "constant_error"))
        return (
            "For this chain, the predictors foretell the order of losses better than those of other experts do, but "
            f"not their size: the error is {own}, and {constant} if the mean loss of other teams is foretold "
            "for every team (root mean squares)."
        )
    return ""
