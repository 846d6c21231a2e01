"""The search for images on the Image page: by the runs' predictions, and by measurements at each depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import benchmark_images, measurements, samples
from app.reading import page_data as reading
from app.reading.figures import cache_shared
from app.session import address, selection
from app.session.click_errors import guarded_fragment
from app.views.image import study_tables
from app.widgets import found_images as last_shown
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.runs.run import Run

NO_QUESTION = "nothing"
DEPTHS = "depths"
ANSWER_QUESTIONS = {
    "only B is right": "only B right",
    "right nowhere": "right nowhere",
    "largest margin lost": "margin lost",
}
DEPTH_QUESTIONS = {  # label in the picker and in links -> key of ``find_by_depth``, and whether it takes a depth
    "answer settles at depth": ("turns", True),
    "parts from the reference at depth": ("parts", True),
    "largest drift at depth": ("drift", True),
    "fixed by restoring before block": ("mended", True),
    "broken, the latest fix first": ("broken", False),
}
TOKEN_KINDS = {"class token": "class", "patches": "patches", "all tokens": "all"}
IMAGES_PER_PAGE = 12  # images shown at once
NO_ANSWERS = "The answers to each image are not stored for {}: its scores come from elsewhere, or it was not evaluated."
NO_DEPTHS = "Answers by depth have not been measured for"
NEEDS_TWO_RUNS = "This compares two runs, A and B: choose two above."
NEEDS_A_RUN = "Choose a run above."


@guarded_fragment
def draw_view(runs: Sequence[Run]) -> None:
    """Draw the picker of a question, and the images that match it."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        question = st.selectbox(
            "Find images",
            [NO_QUESTION, *ANSWER_QUESTIONS, *DEPTH_QUESTIONS],
            key=address.QUESTION,
            bind=address.BIND,
            width=280,
        )
        depth, tokens = _pick_details(question)
    if question == NO_QUESTION:
        return
    table = (
        _find_by_answers(question, runs)
        if question in ANSWER_QUESTIONS
        else _find_by_depth(question, runs, depth, tokens)
    )
    if table is not None:
        draw_images(table, _question_in_words(question, runs))


def _pick_details(question: str) -> tuple[int, str]:
    """Draw the pickers of the depth and the kind of tokens that a question takes; returns their values or defaults."""
    depth, tokens = 0, "class"
    library_question, takes_depth = DEPTH_QUESTIONS.get(question, ("", False))
    if takes_depth:
        block_count, _ = study_tables.read_block_and_head_counts()
        depth = int(st.number_input("Depth", 0, max(block_count, 1), key="image_seek_depth", width=110))
    if library_question in ("mended", "broken"):
        tokens = TOKEN_KINDS[st.selectbox("Tokens", TOKEN_KINDS, key="image_seek_tokens", width=150)]
    return depth, tokens


def _question_in_words(question: str, runs: Sequence[Run]) -> str:
    """The runs of the question, in words; Markdown."""
    names = [page_text.safe_text(run.name, 40) for run in runs]
    if question in ANSWER_QUESTIONS and len(names) > 1:
        return f"A is {names[0]}, B is {names[1]}."
    return f"Run: {names[0]}." if names else ""


def _find_measurements(key: str, runs: Sequence[Run], problem: str) -> list[tuple[Run, StoredMeasurement]] | None:
    """The stored measurements of the runs; None, and a button that measures, if one is missing."""
    results = [(run, measurements.find_measurement(key, run.id)) for run in runs]
    if unmeasured := [run for run, measurement in results if measurement is None]:
        measure_button.draw_missing(
            key, unmeasured, problem, [measurement for _, measurement in results if measurement is not None]
        )
        return None
    return [(run, measurement) for run, measurement in results if measurement is not None]


def _find_by_answers(question: str, runs: Sequence[Run]) -> pd.DataFrame | None:
    if len(runs) < (1 if ANSWER_QUESTIONS[question] == "right nowhere" else 2):
        st.info(NEEDS_A_RUN if not runs and ANSWER_QUESTIONS[question] == "right nowhere" else NEEDS_TWO_RUNS)
        return None
    by_run = {run.id: answers for run in runs if (answers := reading.answers(run)) is not None}
    if unknown := [page_text.safe_text(run.name, 60) for run in runs if run.id not in by_run]:
        st.info(NO_ANSWERS.format(" and ".join(unknown)))
        return None
    from merging.study.measurements.find_images import find_by_answers

    return find_by_answers(ANSWER_QUESTIONS[question], by_run, reading.benchmark())


def _find_by_depth(question: str, runs: Sequence[Run], depth: int, tokens: str) -> pd.DataFrame | None:
    if not runs:
        st.info(NEEDS_A_RUN)
        return None
    stored_measurements = _find_measurements(DEPTHS, runs[:1], NO_DEPTHS)
    if stored_measurements is None:
        return None
    from merging.study.measurements.find_images import find_by_depth

    ((_, measurement),) = stored_measurements
    library_question, _ = DEPTH_QUESTIONS[question]
    facts = _read_depths(measurement)
    return find_by_depth(library_question, facts, reading.benchmark(), depth=depth, tokens=tokens)


@cache_shared(8)
def _read_depths(measurement: StoredMeasurement) -> Mapping[str, Any]:
    """The stored depths of every image by data set; shared between sessions, so never changed."""
    from merging.study.measurements.depths import read_depths as depths_of_data_sets

    return depths_of_data_sets(measurement, reading.benchmark())


def draw_images(table: pd.DataFrame, runs_in_words: str) -> None:
    """Draw a page of the images, each with a button that opens it."""
    titles = measurements.titles_by_task()
    st.markdown(f"**{plural(len(table), 'image')}** of the {samples.scored_part()}. {runs_in_words}")
    if table.empty:
        return
    page_count = -(-len(table) // IMAGES_PER_PAGE)
    page_number = st.pagination(page_count, key=f"image_found_{len(table)}", width=320) if page_count > 1 else 1
    chosen_image = selection.chosen_value(selection.IMAGE)
    with st.container(horizontal=True, gap="small", key="image_found"):
        rows = table.iloc[(page_number - 1) * IMAGES_PER_PAGE : page_number * IMAGES_PER_PAGE].to_dict("records")
        last_shown.remember_images("the images that were found", [row["image"] for row in rows])
        for row in rows:
            with st.container(width=124, gap="xsmall", border=row["image"] == chosen_image):
                _draw_tile(row, titles.get(row["task"], row["task"]))


def _draw_tile(row: Mapping[Any, Any], title: str) -> None:
    pixels = benchmark_images.split_images(row["task"], reading.SCORED_SPLIT)[int(row["number"])]
    st.image(pixels, width=72, alt=clean_text(f"An image of {row['class']}, {title}", 120))
    st.caption(f"**{page_text.safe_text(row['class'], 24)}**  \n:gray[{page_text.safe_text(title, 24)}]  \n"
               f"answer: {page_text.safe_text(row['answer'], 24)}")  # fmt: skip
    if st.button("Open", key=f"image_open_{row['image']}", type="tertiary"):
        selection.choose_value(selection.IMAGE, row["image"])
        st.rerun()
