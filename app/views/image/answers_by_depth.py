"""Answers by depth on the Image page: each block's class token, read out as if it were the last block's.

Beside them is the accuracy of the same readout over the data set.
"""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, samples
from app.session import selection
from app.views.image import study_tables
from app.views.image.study_tables import ImageStudy, StudyTables
from app.widgets import chart_view
from app.widgets.panels import network_panel
from merging.study.previews.preview_process import TableName
from viz.figure_text import span

CHART_KEY = "image_lens"
PRETRAINED_READOUT_KEY = "image_by_pretrained"
READOUT_HELP = (
    "Apply the pretrained model's last norm and projection to every model's class token, instead of the model's own."
)
CAPTION = (
    f"{selection.MARK_HINT.format('a class')} After every block, the class token is read out as if that block were the "
    "last one (logit lens). Early depths were never trained for this readout; the dashed line is its accuracy over the "
    "data set."
)


def _table_name() -> str:
    return "lens_by_pretrained" if st.session_state.get(PRETRAINED_READOUT_KEY) else "lens"


def list_needed_tables(study: ImageStudy) -> list[TableName]:
    """The tables that this view needs."""
    if _table_name() != "lens":
        return study.model_tables(_table_name())
    # The table of a pair also has the accuracy of its reference. Models in no pair have a table of their own.
    models_in_pairs = {name.other for name in study.pair_tables("accuracy")}
    unpaired = [TableName("accuracy", model.key, model.key) for model in study.models
            if model.reference == model.key and model.key not in models_in_pairs]  # fmt: skip
    return [*study.model_tables("lens"), *study.pair_tables("accuracy"), *unpaired]


def draw_answers(study: ImageStudy, tables: StudyTables) -> None:
    """Draw the chart, and a switch that reads out by the pretrained model's last norm and projection."""
    depths = None
    if study.runs:
        from viz.figures.network.network_map import find_depth_range

        network_panel.draw_panel(study.runs[0], ("drift", "moved", "kept_share"))
        depths = find_depth_range(page_data.run_table(study.runs[0].id, "tensors"))
    st.toggle("Read out by the pretrained model", key=PRETRAINED_READOUT_KEY, help=READOUT_HELP)
    table = tables.join_tables(study.model_tables(_table_name()))
    if table is None:
        return
    accuracies = _find_accuracies(study, tables)
    note = ""
    if accuracies:
        import pandas as pd

        rows = pd.concat(accuracies, ignore_index=True).drop_duplicates(["model", "depth"])
        table = table.merge(rows[["model", "depth", "accuracy", "low", "high", "n"]], on=["model", "depth"], how="left")
        data_set = page_text.safe_text(expert_names.expert_name(study.image.head), 40)
        note = f" The accuracy is over {span(rows['n'])} images of the {samples.scored_part()} of {data_set}."
    chart_view.draw_chart(
        CHART_KEY, table, name=f"answer_{study_tables.make_file_stem(study)}", sentence=tables.sentences_in_words,
        depths=depths, sources=study.runs, caption=CAPTION + note,
        description=study_tables.study_in_words(study, tables),
    )  # fmt: skip


def _find_accuracies(study: ImageStudy, tables: StudyTables) -> list[object]:
    tables_or_none = (tables.find(name) for name in list_needed_tables(study) if name.table == "accuracy")
    return [table for table in tables_or_none if table is not None and len(table)]
