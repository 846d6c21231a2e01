"""Thumbnails and predictions of the images that are circled on a map of the Features page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.session import selection
from app.views.features.feature_tables import Model
from app.widgets import chart_view, image_link
from app.widgets.thumbnails import Thumbnail, draw_strip, full_name
from merging.base.files import tables
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

SESSION_KEY, MAX_THUMBNAILS = "_circled", 30
STRIP_TITLE = "the images that were circled on the map"


def store_circled(key: str = "feature_map") -> None:
    """Callback of the lasso on the chart ``key``: store the circled images, and the run of their panel."""
    if marks := chart_view.read_circled_marks(key):
        run_id = marks[0]["run"].partition(":")[0]  # a panel is called "run id" or "run id:subtitle"
        st.session_state[SESSION_KEY] = (run_id, [mark["image"] for mark in marks])


def find_circled() -> tuple[str, list[str]]:
    """The id of the run in whose panel images are circled, and the names of these images."""
    run_id, images = st.session_state.get(SESSION_KEY, ("", []))
    return str(run_id), list(images)


def clear_circled() -> None:
    """Callback: clear the circled images."""
    st.session_state.pop(SESSION_KEY, None)
    selection.choose_value(selection.IMAGE, None)


def draw_thumbnails(models: Sequence[Model], table: pd.DataFrame, run_id: str, circled: Sequence[str]) -> None:
    """Draw the circled images with the right class and the predictions before (pretrained) and after."""
    from merging.study.measurements.features import SPLIT

    if not circled:
        st.caption(":material/gesture: Draw around some marks to see their images.")
        return
    after_model = next((model for model in models if model.run.id == run_id and not model.pretrained), models[-1])
    rows = table[table["run"].str.partition(":")[0] == after_model.run.id].drop_duplicates("image").set_index("image")
    rows = rows.loc[[image for image in circled if image in rows.index]]
    rows = rows.loc[(rows["before"] == rows["predicted"]).sort_values(kind="stable").index]
    shown_runs = [after_model.run, *(model.run for model in models if model is not after_model)]
    with st.container(horizontal=True, vertical_alignment="center", key="circled"):
        st.markdown(
            f"**{plural(len(rows), 'image')}** chosen. After: **{page_text.safe_text(after_model.label, 60)}**. "
            f"Right before: {int((rows['before'] == rows['truth']).sum())}, after: {int(rows['correct'].sum())}."
        )
        st.button("Clear", on_click=clear_circled, type="tertiary", icon=":material/close:")
        st.download_button(
            "Selection (CSV)", lambda: tables.csv_bytes(rows.reset_index()), "features_selected.csv", "text/csv",
            on_click="ignore", type="tertiary", icon=":material/table:",
        )  # fmt: skip
        if len(rows):
            image_link.draw_image_link(full_name(str(rows.index[0]), SPLIT), shown_runs, "See them in Image")
    tiles = [
        Thumbnail(str(image), row["truth"], (("before", row["before"]), ("after", row["predicted"])))
        for image, row in list(rows.iterrows())[:MAX_THUMBNAILS]
    ]
    draw_strip(tiles, SPLIT, shown_runs, STRIP_TITLE)
    if len(rows) > MAX_THUMBNAILS:
        st.caption(f"Showing {MAX_THUMBNAILS}, starting with those whose prediction changes; the CSV file lists all.")
