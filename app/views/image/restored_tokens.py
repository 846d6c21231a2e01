"""What decides the answer, on the Image page: tokens put in from the reference, and patches that are occluded."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import expert_names
from app.views.image import study_tables
from app.views.image.study_tables import ImageStudy, StudyTables
from app.widgets import chart_view
from merging.study.previews.preview_process import TableName

SINGLE = "image_single_tokens"
NONE = "No model here has another one as its reference, so there is nothing to put in. Choose a run above."
CAPTION = (
    "The run goes on with the tokens of its reference, put in before one block. The numbers are "
    "the probability of the right class (or of the reference’s answer, where nothing says what is right); a dot marks "
    "where it is the answer. “Output” is after the last block, where no block of the run is used any more."
)
SINGLE_CAPTION = "As above, with a single token; numbers are changes in percentage points."
OCCLUDED_NOTE = (
    "Each patch in turn is replaced by the mean patch of the choosing half of {}. The margin is the cosine of the "
    "right class minus the largest other one; a loss says that the answer needs the patch."
)


def needed_tables(study: ImageStudy) -> list[TableName]:
    """The tables of this view."""
    single = study.pair_tables("restore_tokens") if st.session_state.get(SINGLE) else []
    return [*study.pair_tables("restore"), *single]


def draw_restored(study: ImageStudy, tables: StudyTables) -> None:
    """What restoring gives, and on request token by token."""
    if not study.subjects:
        st.info(NONE)
        return
    about = study_tables.study_in_words(study, tables)
    if (table := tables.join_tables(study.pair_tables("restore"))) is not None:
        chart_view.draw_chart(
            "image_restore", table, name=f"restore_{study_tables.file_stem(study)}", of=study.runs,
            sentence=tables.sentences_in_words,
            caption=CAPTION, description=about,
        )  # fmt: skip
    st.toggle("Token by token", key=SINGLE, help="Every token alone before every block, in one batch.")
    single = tables.join_tables(study.pair_tables("restore_tokens"))
    if not st.session_state.get(SINGLE) or single is None:
        return
    keys = list(dict.fromkeys(single["model"]))
    key = keys[0]
    if len(keys) > 1:
        key = st.selectbox("Of", keys, format_func=lambda one: study.title(one)[:60], key="image_single", width=300)
    chart_view.draw_chart(
        "image_restore_tokens", single, name=f"restore_tokens_{study_tables.file_stem(study)}", of=study.runs,
        model=key,
        sentence=tables.sentences_in_words, caption=SINGLE_CAPTION, description=about,
    )  # fmt: skip


def needed_occluded_tables(study: ImageStudy) -> list[TableName]:
    """The tables of the view of occluded patches."""
    return [TableName("occlude", model.key, model.reference) for model in study.models]


def draw_occluded(study: ImageStudy, tables: StudyTables) -> None:
    """What occluding gives, in every model."""
    table = tables.join_tables(needed_occluded_tables(study))
    if table is not None:
        chart_view.draw_chart(
            "image_occlude", table.drop(columns="against"), name=f"occlude_{study_tables.file_stem(study)}",
            of=study.runs,
            picture=study.image.gray, sentence=tables.sentences_in_words,
            description=study_tables.study_in_words(study, tables),
            caption=OCCLUDED_NOTE.format(page_text.safe_text(expert_names.expert_name(study.image.head), 40)),
        )  # fmt: skip
