"""The share of opposed signs among the entries that both experts of a pair change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def share_opposed(counts: pd.DataFrame, by: str | list[str]) -> pd.Series[float]:
    """The share of opposed signs by the columns ``by``; NaN where no entry is changed by both experts.

    ``counts`` has the columns both_1 and opposed_1 of the measurement "pairs". They are summed before the division, so
    that every entry counts alike.
    """
    sums = counts.groupby(by, sort=False)[["opposed_1", "both_1"]].sum()
    return (sums["opposed_1"] / sums["both_1"].where(sums["both_1"] > 0)).rename("opposed")
