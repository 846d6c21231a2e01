"""Numbers of painted factors: kept tensors, scalars, bytes and norms, and the overlap with LwPTV's mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from app.reading import expert_names
from app.session import address
from app.session.painting import Factors
from app.views.masks.paint_sheet import PaintSheet
from app.widgets import page_parts
from merging.base.text import size_text
from merging.study.analysis.storage_accounting import PAPER_BYTES
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd


def draw_budget_field(tensor_count: int) -> int | None:
    """Draw the field of the largest number of kept tensors; None without a bound."""
    return st.number_input(
        "Budget, in tensors", 0, tensor_count, None, key=address.TENSOR_BUDGET, bind=address.BIND, placeholder="none",
        width=150, help="The largest number of tensors to keep; a count above it is marked.",
    )  # fmt: skip


def kept_in_words(sheet: PaintSheet, factors: Factors, budget: int | None) -> str:
    """A sentence on the kept tensors and scalars of ``factors`` (experts, tensors); Markdown."""
    kept = (factors != 0).any(axis=0)
    kept_count, kept_scalars, all_scalars = int(kept.sum()), int(sheet.numels[kept].sum()), int(sheet.numels.sum())
    count_in_words = f"**{kept_count} of {plural(len(kept), 'tensor')}**"
    if budget is not None and kept_count > budget:
        count_in_words = (
            f":red[:material/warning: {count_in_words}, {kept_count - budget} over the budget of {budget},]"
        )
    elif budget is not None:
        count_in_words += f" (within the budget of {budget})"
    return (
        f"Kept for at least one expert: {count_in_words}, **{kept_scalars:,} of {all_scalars:,} scalars "
        f"({percent(kept_scalars / max(all_scalars, 1))})**; at {PAPER_BYTES} bytes each they take "
        f"**{size_text(PAPER_BYTES * kept_scalars)}**. {_overlap_in_words(sheet, factors)}"
    )


def _overlap_in_words(sheet: PaintSheet, factors: Factors) -> str:
    painted_cells, mask = factors != 0, sheet.column_matrix("final").astype(bool)
    common_count, union_count = int((painted_cells & mask).sum()), int((painted_cells | mask).sum())
    if not union_count:
        return f"Neither this painting nor LwPTV's mask at prune ratio {sheet.ratio:g} keeps anything."
    return (
        f"In common with LwPTV's mask at prune ratio {sheet.ratio:g}: **{percent(common_count / union_count)}**, "
        f"{common_count:,} of the {union_count:,} cells that at least one of them keeps."
    )


def draw_expert_table(sheet: PaintSheet, factors: Factors) -> None:
    """Draw each expert's kept tensors, kept scalars and remaining norm for ``factors`` (experts, tensors)."""
    table = build_expert_table(sheet, factors).dropna(axis="columns", how="all")  # norms that are not measured
    table = table.assign(**{name: 100 * table[name] for name in ("scalars", "norm") if name in table})
    shares = {name: st.column_config.NumberColumn(label, format="%.1f%%") for name, label in (
        ("scalars", "Scalars kept"), ("norm", "Remaining norm of the task vector"))}  # fmt: skip
    st.dataframe(
        table, hide_index=True, height=page_parts.table_height(len(table), 320),
        column_config={"expert": "Expert", "tensors": "Tensors kept", **shares},
        alt="Tensors, scalars and norm that are kept for every expert",
    )  # fmt: skip


def build_expert_table(sheet: PaintSheet, factors: Factors) -> pd.DataFrame:
    """One row for each expert: kept tensors, share of scalars, and share of the norm (NaN if unknown)."""
    import pandas as pd

    kept, numels = factors != 0, sheet.numels
    norm = np.full(len(factors), np.nan)
    if sheet.squares is not None:
        remaining_squares, total_squares = (factors**2 * sheet.squares).sum(axis=1), sheet.squares.sum(axis=1)
        norm = np.sqrt(np.divide(remaining_squares, total_squares, out=norm, where=total_squares > 0))
    return pd.DataFrame(
        {
            "expert": [expert_names.expert_name(key) for key in sheet.experts],
            "tensors": kept.sum(axis=1),
            "scalars": kept @ numels / max(numels.sum(), 1),
            "norm": norm,
        }
    )
