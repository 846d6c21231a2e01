"""Learned coefficients over the steps of learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.parts import steps
from viz.text import clean_text, plural, safe_text, short_name


@chart(
    title="Coefficients over steps",
    question="How do the coefficients move while the merge learns?",
    columns=("step", "expert", "coefficient"),
    optional=("low", "high"),
    rows=("step", "expert"),
    empty="No step of this merge was recorded.",
)
def coefficient_steps(
    table: pd.DataFrame,
    *,
    tensor: str = "",
    at: int | None = None,
    band: str | None = None,
    experts: list[str] | None = None,
    present: bool = False,
) -> go.Figure:
    """A line for each expert; one has a band from its smallest to its largest coefficient.

    step (updates so far), expert, coefficient (λ of the whole model, of one tensor, or the mean over all tensors), low
    and high (the smallest and the largest over all tensors). ``tensor`` is the one that the table is of, if it is of
    one; ``at`` is the marked step; ``band`` the expert with the band; ``experts`` the full ordered list that fixes the
    colors.
    """
    words = f"Coefficient of<br>{short_name(tensor, 34)}" if tensor else "Coefficient"
    title = f"{words},<br>mean over all tensors" if "low" in table else words
    fig, height = steps.draw(table, "coefficient", title, _hover, at, experts, band)
    return theme.finish(fig, "coefficient_steps", _alt(table, tensor), height, present, tensor)


def _hover(row: dict[Any, Any]) -> str:
    text = f"<b>{safe_text(row['expert'])}</b>, step {row['step']:,.0f}<br>coefficient {_number(row['coefficient'])}"
    if np.isfinite(row.get("low", np.nan)) and np.isfinite(row.get("high", np.nan)):
        text += f"<br>tensors from {_number(row['low'])} to {_number(row['high'])}"
    return text


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _alt(table: pd.DataFrame, tensor: str) -> str:
    where = f" of {clean_text(tensor)}" if tensor else ""
    ordered = table[np.isfinite(table["coefficient"].to_numpy(np.float64))].sort_values("step", kind="stable")
    words = (
        f"Coefficients{where} of {plural(table['expert'].nunique(), 'expert')} over {table['step'].max():,.0f} steps."
    )
    if ordered.empty:
        return words
    last = ordered.groupby("expert", sort=False)["coefficient"].last()
    ends = f"{clean_text(last.idxmax(), 40)} ends highest, at {last.max():.2f}"
    ends += f", {clean_text(last.idxmin(), 40)} lowest, at {last.min():.2f}" if len(last) > 1 else ""
    return f"{words} {ends}."
