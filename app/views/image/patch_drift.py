"""Drift by patch on the Image page: by token and depth, and over the image, relative to the data set's scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from app import page_text
from app.reading import expert_names, samples
from app.session import view_state
from app.views.image import study_tables
from app.views.image.study_tables import ImageStudy, StudyTables
from app.widgets import chart_view
from merging.study.previews.preview_process import TableName

if TYPE_CHECKING:
    import pandas as pd

MAX_GRIDS = 7  # depths that are shown over the image
NO_SUBJECT = "No chosen model has another model as its reference, so there is no drift. Choose a run above."
CAPTION = (
    "1 − cosine of each token to the same token in the run's reference. Depth 0 is before block 0, depth b after b "
    "blocks."
)
SCALE_NOTE = " A cross marks more drift than in 90% of the images of the {} of {}, at the same depth."


def list_needed_tables(study: ImageStudy) -> list[TableName]:
    """The tables that this view needs."""
    return [*study.pair_tables("drift"), *study.pair_tables("drift_scaled"), *study.pair_tables("first_unusual_depths")]


def draw_drift(study: ImageStudy, tables: StudyTables) -> None:
    """Draw both charts, and the first depth at which drift is unusually large for the data set."""
    if not study.subjects:
        st.info(NO_SUBJECT)
        return
    scaled = tables.join_tables(study.pair_tables("drift_scaled"))
    table = tables.join_tables(study.pair_tables("drift")) if scaled is None else scaled
    if table is None:
        return
    past_scale = past_scale_in_words(study, tables)
    data_set = page_text.safe_text(expert_names.expert_name(study.image.head), 40)
    scale_note = SCALE_NOTE.format(samples.scored_part(), data_set) if scaled is not None else ""
    chart_view.draw_chart(
        "image_drift", table, name=f"drift_{study_tables.make_file_stem(study)}", sources=study.runs,
        sentence=tables.sentences_in_words,
        caption=CAPTION + scale_note, description=f"{study_tables.study_in_words(study, tables)} {past_scale}".strip(),
    )  # fmt: skip
    if past_scale:
        st.markdown(past_scale)
    chart_view.draw_chart(
        "image_drift_grid", _sample_depths(table), name=f"drift_grid_{study_tables.make_file_stem(study)}",
        sources=study.runs, picture=study.image.gray, wide=view_state.is_single_chart(),
        sentence=tables.sentences_in_words, description=study_tables.study_in_words(study, tables),
        caption="The same numbers over the image, one cell per patch; the class token’s number is above each grid.",
    )  # fmt: skip


def _sample_depths(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of at most ``MAX_GRIDS`` depths, from the first to the last."""
    depths = np.sort(table["depth"].unique())
    shown_depths = depths[np.unique(np.linspace(0, len(depths) - 1, min(MAX_GRIDS, len(depths))).round().astype(int))]
    return table[table["depth"].isin(shown_depths)]


def past_scale_in_words(study: ImageStudy, tables: StudyTables) -> str:
    """The depth from which each run drifts more than 90% of the data set; Markdown."""
    sentences = []
    for name in study.pair_tables("first_unusual_depths"):
        table = tables.find(name)
        if table is None or table.empty:
            continue
        depths = table.iloc[0]
        parts = [f"{tokens} {_depth_in_words(int(depths[kind]))}"
                 for kind,
                 tokens in (("class", "the class token"), ("patches", "the mean of its patches"))]  # fmt: skip
        title = page_text.safe_text(study.title(name.model), 60)
        sentences.append(f"{title}: more drift than 90% of the data set for {' and '.join(parts)}.")
    return " ".join(sentences)


def _depth_in_words(depth: int) -> str:
    """The first depth with unusual drift, in words; -1 stands for none."""
    return "nowhere" if depth < 0 else f"from depth {depth}"
