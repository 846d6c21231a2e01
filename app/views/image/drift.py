"""Drift by patch on the Image page: token by depth, and over the image, against the data set's own scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from app import text
from app.reading import names, samples
from app.session import state
from app.views.image import data
from app.views.image.data import Study, Tables
from app.widgets import chart
from merging.study.previews.bench import TableName

if TYPE_CHECKING:
    import pandas as pd

GRIDS = 7  # depths that are drawn over the image
NONE = "No model here has another one as its reference, so nothing drifts. Choose a run above."
CAPTION = (
    "1 − cosine of each token to the same token in the run's reference. Depth 0 is before block 0, b after b blocks."
)
SCALE = " A cross marks what drifts more than in 90% of the images of the {} of {}, at the same depth."


def wanted(study: Study) -> list[TableName]:
    """The tables of this view."""
    return [*study.pairs("drift"), *study.pairs("drift_scaled"), *study.pairs("first_past")]


def draw(study: Study, tables: Tables) -> None:
    """Both charts, and the first depth past the data set's scale."""
    if not study.subjects:
        st.info(NONE)
        return
    scaled = tables.joined(study.pairs("drift_scaled"))
    table = tables.joined(study.pairs("drift")) if scaled is None else scaled
    if table is None:
        return
    words = past(study, tables)
    over = text.safe_text(names.expert(study.image.head), 40)
    scale = SCALE.format(samples.part(), over) if scaled is not None else ""
    chart.chart(
        "image_drift", table, name=f"drift_{data.file_name(study)}", of=study.runs, sentence=tables.words,
        caption=CAPTION + scale, description=f"{data.about(study, tables)} {words}".strip(),
    )  # fmt: skip
    if words:
        st.markdown(words)
    chart.chart(
        "image_drift_grid", _few_depths(table), name=f"drift_grid_{data.file_name(study)}", of=study.runs,
        picture=study.image.gray, wide=state.alone(), sentence=tables.words, description=data.about(study, tables),
        caption="The same numbers over the image, in hard cells; the class token’s stands over each grid.",
    )  # fmt: skip


def _few_depths(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of at most ``GRIDS`` depths, from the first to the last."""
    depths = np.sort(table["depth"].unique())
    kept = depths[np.unique(np.linspace(0, len(depths) - 1, min(GRIDS, len(depths))).round().astype(int))]
    return table[table["depth"].isin(kept)]


def past(study: Study, tables: Tables) -> str:
    """From which depth each run drifts more than usual; Markdown."""
    sentences = []
    for name in study.pairs("first_past"):
        found = tables.find(name)
        if found is None or found.empty:
            continue
        first = found.iloc[0]
        parts = [f"{words} {_depth(int(first[kind]))}"
                 for kind, words in (("class", "the class token"), ("patches", "the mean of its patches"))]  # fmt: skip
        title = text.safe_text(study.title(name.model), 60)
        sentences.append(f"{title}: past 90% of the data set go {' and '.join(parts)}.")
    return " ".join(sentences)


def _depth(depth: int) -> str:
    return "nowhere" if depth < 0 else f"from depth {depth}"
