"""The causes of an answer, on the Image page: tokens copied from the reference, and occluded patches."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import expert_names
from app.views.image import study_tables
from app.views.image.study_tables import ImageStudy, StudyTables
from app.widgets import chart_view
from merging.study.previews.preview_process import TableName

SINGLE_TOKENS_KEY = "image_single_tokens"
NO_SUBJECT = "No chosen model has another model as its reference, so no tokens can be restored. Choose a run above."
CAPTION = (
    "The run gets the tokens of its reference before one block and continues with them. The numbers are the "
    "probability of the right class, or of the reference’s answer if the right class is unknown; a dot marks where "
    "that class is the answer. “Output” is after the last block, so no later block of the run is used."
)
SINGLE_CAPTION = "The same with one restored token; numbers are changes in percentage points."
OCCLUDED_NOTE = (
    "Each patch in turn is replaced by the mean patch of the choosing half of {}. The margin is the cosine of the "
    "right class minus the largest other one; a loss means that the answer needs the patch."
)


def list_needed_tables(study: ImageStudy) -> list[TableName]:
    """The tables that this view needs."""
    single_token_tables = study.pair_tables("restore_tokens") if st.session_state.get(SINGLE_TOKENS_KEY) else []
    return [*study.pair_tables("restore"), *single_token_tables]


def draw_restored(study: ImageStudy, tables: StudyTables) -> None:
    """Draw the effect of restoring tokens; on request, token by token."""
    if not study.subjects:
        st.info(NO_SUBJECT)
        return
    description = study_tables.study_in_words(study, tables)
    if (table := tables.join_tables(study.pair_tables("restore"))) is not None:
        chart_view.draw_chart(
            "image_restore", table, name=f"restore_{study_tables.make_file_stem(study)}", sources=study.runs,
            sentence=tables.sentences_in_words,
            caption=CAPTION, description=description,
        )  # fmt: skip
    st.toggle("Token by token", key=SINGLE_TOKENS_KEY, help="Restore every single token before every block.")
    single_token_table = tables.join_tables(study.pair_tables("restore_tokens"))
    if not st.session_state.get(SINGLE_TOKENS_KEY) or single_token_table is None:
        return
    model_keys = list(dict.fromkeys(single_token_table["model"]))
    model_key = model_keys[0]
    if len(model_keys) > 1:
        model_key = st.selectbox(
            "Of", model_keys, format_func=lambda model: study.title(model)[:60], key="image_single", width=300
        )
    chart_view.draw_chart(
        "image_restore_tokens", single_token_table, name=f"restore_tokens_{study_tables.make_file_stem(study)}",
        sources=study.runs, model=model_key,
        sentence=tables.sentences_in_words, caption=SINGLE_CAPTION, description=description,
    )  # fmt: skip


def list_occluded_tables(study: ImageStudy) -> list[TableName]:
    """The tables of the view of occluded patches."""
    return [TableName("occlude", model.key, model.reference) for model in study.models]


def draw_occluded(study: ImageStudy, tables: StudyTables) -> None:
    """Draw the effect of occluding patches, in every model."""
    table = tables.join_tables(list_occluded_tables(study))
    if table is not None:
        chart_view.draw_chart(
            "image_occlude", table.drop(columns="against"), name=f"occlude_{study_tables.make_file_stem(study)}",
            sources=study.runs,
            picture=study.image.gray, sentence=tables.sentences_in_words,
            description=study_tables.study_in_words(study, tables),
            caption=OCCLUDED_NOTE.format(page_text.safe_text(expert_names.expert_name(study.image.head), 40)),
        )  # fmt: skip
