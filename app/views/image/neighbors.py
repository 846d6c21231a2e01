"""Neighbors on the Image page: the nearest images in each model, side by side, and the share common to two models."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data as reading
from app.reading.benchmark_images import split_images
from app.session import selection
from app.views.image import study_tables
from app.views.image.study_tables import ImageStudy, StudyTables
from app.widgets import chart_view
from merging.study.previews.preview_process import TableName
from viz.figure_text import count, percent

if TYPE_CHECKING:
    import pandas as pd

MAX_NEIGHBORS = 8
CAPTION = (
    "The {} images of the choosing half of the same domain whose unit features have the largest cosine; the image "
    "itself is left out. A thin blue frame marks images also among the {} nearest in another model. "
    f"{selection.MARK_HINT.format('a class')}"
)


def list_needed_tables(study: ImageStudy) -> list[TableName]:
    """The tables that this view needs."""
    return [*study.model_tables("neighbors"), *study.pair_tables("overlap")]


def draw_neighbors(study: ImageStudy, tables: StudyTables) -> None:
    """Draw the pictures of the neighbors, and the share that a run has in common with its reference."""
    table = tables.join_tables(study.model_tables("neighbors"))
    if table is None:
        return
    table = table[table["rank"] <= MAX_NEIGHBORS].reset_index(drop=True)
    models_by_image = Counter(table["image"])
    table = table.assign(shared=[models_by_image[name] > 1 for name in table["image"]])
    shared_note = " ".join(_shared_in_words(study, tables))
    chart_view.draw_chart(
        "image_neighbors", table, name=f"neighbors_{study_tables.make_file_stem(study)}", sources=study.runs,
        pictures=_make_pictures(table),
        sentence=tables.sentences_in_words, caption=CAPTION.format(MAX_NEIGHBORS, MAX_NEIGHBORS),
        description=f"{study_tables.study_in_words(study, tables)} {shared_note}".strip(),
    )  # fmt: skip
    if shared_note:
        st.markdown(shared_note)


def _shared_in_words(study: ImageStudy, tables: StudyTables) -> list[str]:
    """The share of the 20 nearest that each run has in common with its reference, beside the mean; Markdown."""
    sentences = []
    for name in study.pair_tables("overlap"):
        overlap = tables.find(name)
        if overlap is None or overlap.empty:
            continue
        row = overlap.iloc[0]
        titles = [page_text.safe_text(study.title(key), 60) for key in (name.model, name.other)]
        mean = f"; the mean over {count(row['n'])} images of the choosing half is {percent(row['mean'], 0)}"
        sentences.append(
            f"{titles[0]} shares {percent(row['overlap'], 0)} of the 20 nearest with {titles[1]}"
            f"{mean if row['n'] else ''}."
        )
    return sentences


def _make_pictures(table: pd.DataFrame) -> dict[str, str]:
    """{image: data URI} of the neighbors."""
    task_keys = {task.key for task in reading.benchmark().tasks}
    pictures = {}
    for name in dict.fromkeys(table["image"]):
        task, split, number = str(name).split(":")
        if task in task_keys:
            pictures[str(name)] = study_tables.make_data_uri(split_images(task, split)[int(number)])
    return pictures
