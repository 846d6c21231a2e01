"""The learned scaling coefficient of every tensor for every expert."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, in_order
from viz.parts import depth
from viz.text import clean_text, plural, role_name, safe_text, short_name


@chart(
    title="Learned coefficients",
    question="Which layers does learning turn up, and which off?",
    columns=("tensor", "order", "section", "role", "part", "expert", "coefficient"),
    optional=("pruned",),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This merge learned no coefficient for each tensor.",
)
def coefficient_map(
    table: pd.DataFrame,
    *,
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    step: int | None = None,
    present: bool = False,
) -> Any:
    """A heat map, experts by tensors in forward order; tensors that an edit pruned are gray.

    tensor, order (model order), section ("embeddings", "block 0" …, "output"), role, part (kind of layer), expert,
    coefficient (λ, by which the expert's task vector is multiplied), pruned (bool: the tensor is not merged, so it has
    no coefficient). ``selected`` outlines an (expert, tensor); ``limits`` fixes the color range, so that all steps
    compare; ``step`` is the step of learning that the table is of, if not the last.
    """
    values = table["coefficient"].to_numpy(np.float64)
    gone = table["pruned"].to_numpy(bool) if "pruned" in table else np.zeros(len(table), bool)
    table = table.assign(coefficient=np.where(gone, np.nan, values))
    finite = values[~gone & np.isfinite(values)]
    if not len(finite):
        return theme.notice("coefficient_map", "Nothing to draw: every tensor was pruned.", present)
    span = limits or (min(0.0, float(finite.min())), float(finite.max()))
    experts = in_order(table["expert"])
    fig, columns = depth.heat_map(
        table, "expert", "coefficient", depth.Scale("coefficient", log=False, limits=span), _hover, selected
    )
    if gone.any():
        fig.update_layout(plot_bgcolor=theme.PRUNED)
        fig.add_annotation(
            text="gray: pruned before the merge, no coefficient", x=0, y=1, xref="paper", yref="paper", xanchor="left",
            yanchor="bottom", yshift=4, font={"size": theme.SMALL, "color": theme.FADED}, showarrow=False,
        )  # fmt: skip
    alt = _alt(table, len(experts), len(columns.names), step)
    return theme.finish(fig, "coefficient_map", alt, depth.height(len(experts)), present, str(len(columns.names)))


def _hover(row: dict[Any, Any]) -> str:
    value = row["coefficient"]
    number = f"coefficient {value:.3f}".replace("-", "−") if np.isfinite(value) else "pruned, no coefficient"
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['expert'])}: {number}<br>"
        f"{safe_text(row['section'])}, {safe_text(row['part'])} ({safe_text(role_name(row['role']))})"
    )


def _alt(table: pd.DataFrame, experts: int, tensors: int, step: int | None) -> str:
    kept = table[np.isfinite(table["coefficient"].to_numpy(np.float64))]
    most, least = (kept.loc[kept["coefficient"].agg(end)] for end in ("idxmax", "idxmin"))
    at = f" at step {step:,}" if step is not None else ""
    words = f"Learned coefficients of {plural(tensors, 'tensor')} for {plural(experts, 'expert')}{at}."
    ends = [
        f"{word} for {clean_text(row['expert'], 40)} in {clean_text(row['tensor'])}, {row['coefficient']:.2f}"
        for word, row in (("Largest", most), ("smallest", least))
    ]
    return f"{words} {'; '.join(ends)}. Their mean is {kept['coefficient'].mean():.2f}."
