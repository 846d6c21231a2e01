"""Finding images on the Image page: by what was predicted of them, and by what was measured depth by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading import data as reading
from app.reading import measurements, pictures, samples
from app.reading.figures import keep_shared
from app.session import address, selection
from app.session.clicks import fragment
from app.views.image import data
from app.widgets import found_images as last_shown
from app.widgets.jobs import measure_button
from merging.study.analysis.stored import Measured
from viz.text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.runs.run import Run

NOTHING = "nothing"
DEPTHS, PREDICTIONS = "depths", "predictions"
BY_ANSWERS = {"only B is right": "only B right", "right nowhere": "right nowhere", "largest margin lost": "margin lost"}
BY_DEPTH = {  # label -> the question, as the library has it, and whether it takes a depth
    "answer settles at depth": ("turns", True),
    "parts from the reference at depth": ("parts", True),
    "largest drift at depth": ("drift", True),
    "fixed by restoring before block": ("mended", True),
    "broken, the latest fix first": ("broken", False),
}
TOKENS = {"class token": "class", "patches": "patches", "all tokens": "all"}
PAGE = 12  # images shown at once
NO_PREDICTIONS = "Predictions have not been noted for"
NO_DEPTHS = "Answers by depth have not been measured for"
TWO = "This compares two runs, A and B: choose two above."
ONE = "Choose a run above."


@fragment
def view(runs: Sequence[Run]) -> None:
    """The picker of a question, and the images that fit it."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        question = st.selectbox(
            "Find images", [NOTHING, *BY_ANSWERS, *BY_DEPTH], key=address.QUESTION, bind=address.BIND, width=280
        )
        depth, tokens = _details(question)
    if question == NOTHING:
        return
    table = _by_answers(question, runs) if question in BY_ANSWERS else _by_depth(question, runs, depth, tokens)
    if table is not None:
        listed(table, _named(question, runs))


def _details(question: str) -> tuple[int, str]:
    """The depth and the kind of tokens that a question takes."""
    depth, tokens = 0, "class"
    if question in BY_DEPTH and BY_DEPTH[question][1]:
        depth = int(st.number_input("Depth", 0, max(data.depths()[0], 1), key="image_seek_depth", width=110))
    if BY_DEPTH.get(question, ("", False))[0] in ("mended", "broken"):
        tokens = TOKENS[st.selectbox("Tokens", TOKENS, key="image_seek_tokens", width=150)]
    return depth, tokens


def _named(question: str, runs: Sequence[Run]) -> str:
    """What is listed, in words; Markdown."""
    names = [text.safe_text(run.name, 40) for run in runs]
    if question in BY_ANSWERS and len(names) > 1:
        return f"A is {names[0]}, B is {names[1]}."
    return f"Of {names[0]}." if names else ""


def _measured(key: str, runs: Sequence[Run], why: str) -> list[tuple[Run, Measured]] | None:
    """The stored measurements of the runs; None, and an offer to measure, if one lacks."""
    found = [(run, measurements.find(key, run.id)) for run in runs]
    if rest := [run for run, measured in found if measured is None]:
        measure_button.missing(key, rest, why, [measured for _, measured in found if measured is not None])
        return None
    return [(run, measured) for run, measured in found if measured is not None]


def _by_answers(question: str, runs: Sequence[Run]) -> pd.DataFrame | None:
    if len(runs) < (1 if BY_ANSWERS[question] == "right nowhere" else 2):
        st.info(ONE if not runs and BY_ANSWERS[question] == "right nowhere" else TWO)
        return None
    stored = _measured(PREDICTIONS, runs, NO_PREDICTIONS)
    if stored is None:
        return None
    from merging.study.measurements.find_images import find_by_answers

    by_run = {run.id: _read(measured, PREDICTIONS) for run, measured in stored}
    return find_by_answers(BY_ANSWERS[question], by_run, reading.benchmark())


def _by_depth(question: str, runs: Sequence[Run], depth: int, tokens: str) -> pd.DataFrame | None:
    if not runs:
        st.info(ONE)
        return None
    stored = _measured(DEPTHS, runs[:1], NO_DEPTHS)
    if stored is None:
        return None
    from merging.study.measurements.find_images import find_by_depth

    by_task = _read(stored[0][1], DEPTHS)
    return find_by_depth(BY_DEPTH[question][0], by_task, reading.benchmark(), depth=depth, tokens=tokens)


@keep_shared(8)
def _read(measured: Measured, key: str) -> Mapping[str, Any]:
    """What is stored of every image, by data set; shared, never changed."""
    if key == PREDICTIONS:
        from merging.study.measurements.predictions import of_data_sets

        return of_data_sets(measured, reading.benchmark())
    from merging.study.measurements.depths import of_data_sets as depths_of_data_sets

    return depths_of_data_sets(measured, reading.benchmark())


def listed(table: pd.DataFrame, words: str) -> None:
    """A page of the images, each with a button that opens it."""
    titles = measurements.titles()
    st.markdown(f"**{plural(len(table), 'image')}** of the {samples.part()}. {words}")
    if table.empty:
        return
    pages = -(-len(table) // PAGE)
    page = st.pagination(pages, key=f"image_found_{len(table)}", width=320) if pages > 1 else 1
    chosen = selection.chosen(selection.IMAGE)
    with st.container(horizontal=True, gap="small", key="image_found"):
        rows = table.iloc[(page - 1) * PAGE : page * PAGE].to_dict("records")
        last_shown.keep("the images that were found", [row["image"] for row in rows])
        for row in rows:
            with st.container(width=124, gap="xsmall", border=row["image"] == chosen):
                _tile(row, titles.get(row["task"], row["task"]))


def _tile(row: Mapping[Any, Any], title: str) -> None:
    pixels = pictures.images(row["task"], reading.SPLIT)[int(row["number"])]
    st.image(pixels, width=72, alt=clean_text(f"An image of {row['class']}, {title}", 120))
    st.caption(f"**{text.safe_text(row['class'], 24)}**  \n:gray[{text.safe_text(title, 24)}]  \n"
               f"says {text.safe_text(row['answer'], 24)}")  # fmt: skip
    if st.button("Open", key=f"image_open_{row['image']}", type="tertiary"):
        selection.choose(selection.IMAGE, row["image"])
        st.rerun()
