"""How much of every tensor each task's mask keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import depth
from viz.text import clean_text, count, percent, plural, role_name, safe_text, short_name


@chart(
    title="Sparsity of the masks",
    question="How little of each tensor carries a task, and where?",
    columns=("tensor", "order", "section", "role", "part", "expert", "kept", "numel"),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This merge has no masks of scalars.",
)
def localization_map(
    table: pd.DataFrame,
    *,
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """A heat map, experts by tensors in forward order, of the share of scalars that each expert's mask keeps.

    tensor, order (model order), section, role, part (kind of layer), expert, kept (scalars in the mask), numel (scalars
    of the tensor). ``selected`` outlines an (expert, tensor); ``limits`` fixes the color range (fractions).
    """
    numel = table["numel"].to_numpy(np.float64)
    share = np.divide(table["kept"].to_numpy(np.float64), numel, out=np.zeros(len(table)), where=numel > 0)
    table, experts = table.assign(_share=share), in_order(table["expert"])
    scale = depth.Scale("kept share", log=False, limits=limits, percent=True)
    fig, columns = depth.heat_map(table, "expert", "_share", scale, _hover, selected)
    height = depth.height(len(experts))
    return theme.finish(fig, "localization_map", _alt(table, experts), height, present, str(len(columns.names)))


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['expert'])} keeps {percent(row['_share'], 2)}: "
        f"{count(row['kept'])} of {count(row['numel'])} scalars<br>"
        f"{safe_text(row['section'])}, {safe_text(row['part'])} ({safe_text(role_name(row['role']))})"
    )


def _alt(table: pd.DataFrame, experts: list[str]) -> str:
    sums = table.groupby(table["expert"].astype(str))[["kept", "numel"]].sum()
    shares = {str(name): row["kept"] / max(row["numel"], 1) for name, row in sums.to_dict("index").items()}
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    words = f"Masks of {plural(len(experts), 'expert')} over {plural(table['tensor'].nunique(), 'tensor')}."
    return (
        f"{words} They keep from {percent(shares[least], 2)} ({clean_text(least, 40)}) to {percent(shares[most], 2)} "
        f"({clean_text(most, 40)}) of the scalars."
    )
