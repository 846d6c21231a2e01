"""Image by image on the Compare page: which run is right on which images, a test of that difference, and the images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import measurements, samples
from app.session import address, selection
from app.session.click_errors import guarded_fragment
from app.views.compare import run_pair, score_changes
from app.views.compare.run_pair import BOTH_IN, BOTH_OUT, RunPair
from app.views.compare.score_changes import make_file_suffix
from app.widgets import chart_view
from app.widgets import thumbnails as tiles
from app.widgets.jobs import measure_button
from merging.base.files import tables
from viz.figure_text import plural, power

if TYPE_CHECKING:
    import pandas as pd

ALL_DATA_SETS = "all data sets"
IMAGES_PER_PAGE = 24  # images shown at once
OUTCOMES = {  # label in the picker and in links -> column of the table, and whether A and B are right
    "only A right": ("only_a", "right", "wrong"),
    "only B right": ("only_b", "wrong", "right"),
    "both right": ("both", "right", "right"),
    "both wrong": ("neither", "wrong", "wrong"),
}
SEVERAL_MODELS_NOTE = (
    "A run with several models has several predictions for an image. Every model counts equally, so the numbers of "
    "images are means over its models, and there is no test."
)


def draw_view(pair: RunPair) -> None:
    """Draw the table of agreement and the images behind the chosen cell."""
    if pair.runs_without_predictions:
        score_changes.draw_missing(pair)
        return
    draw_pictures(pair)


def choose_cell() -> None:
    """Callback of a click: set the picker to the cell."""
    if cell := chart_view.read_clicked_mark("compare_agreement"):
        pair = (cell["a"], cell["b"])
        st.session_state[address.RIGHT_RUNS] = next(
            name for name, (_, *sides) in OUTCOMES.items() if tuple(sides) == pair
        )


@guarded_fragment
def draw_pictures(pair: RunPair) -> None:
    """Draw the table and the images in one fragment, so that a click redraws only them."""
    images = pick_image_group(pair, run_pair.build_image_rows(pair))
    if images.empty:
        st.info("The two runs have no image of these data sets in common.")
        return
    chart_slot = st.container()  # above the picker, but drawn after it, because the chart needs the picked cell
    outcome = st.segmented_control(
        "Images", OUTCOMES, default="only A right", key=address.RIGHT_RUNS, bind=address.BIND, required=True
    )
    column, *sides = OUTCOMES[outcome]
    with chart_slot:
        caption = (
            f"n = {len(images):,} images of the {samples.scored_part()}. "
            f"{measure_button.origin_in_words(pair.predictions)}"
        )
        chart_view.draw_chart(
            "compare_agreement", count_agreement(images), name=f"agreement_{make_file_suffix(pair)}",
            on_click=choose_cell,
            **pair.sides, selected=tuple(sides), description=mcnemar_in_words(images), sources=pair.runs,
            caption=f"{caption}{score_changes.differing_in_words(pair.predictions)}{samples.sampling_sentence()}",
        )  # fmt: skip
        st.markdown(mcnemar_in_words(images))
    draw_chosen_image(pair, images)
    draw_thumbnails(pair, sort_by_margin(images, column), column, outcome)


def draw_chosen_image(pair: RunPair, images: pd.DataFrame) -> None:
    """Draw the image that is chosen for all pages, with both predictions and its cell."""
    from merging.study.measurements.predictions import SPLIT

    if image := tiles.chosen_image(images["image"], SPLIT):
        row = images[images["image"] == image].iloc[0]
        cell = next(name for name, (column, *_) in OUTCOMES.items() if row[column] > 0)
        st.markdown(f"**Your image**, {cell}.")
        tiles.draw_tile(make_thumbnail(row), SPLIT, pair.runs)
        st.button("Choose no image", on_click=selection.choose_value, args=(selection.IMAGE, None), type="tertiary")


def make_thumbnail(row: Mapping[str, Any]) -> tiles.Thumbnail:
    """An image with its class and both predictions."""
    answers = (("A", row["predicted_a"]), ("B", row["predicted_b"]))
    return tiles.Thumbnail(row["image"], row["truth"], answers, measurements.titles_by_task()[row["task"]])


def pick_image_group(pair: RunPair, images: pd.DataFrame) -> pd.DataFrame:
    """Draw the picker of data sets; returns the images of the chosen ones."""
    titles = measurements.titles_by_task()
    tasks = list(dict.fromkeys(images["task"]))
    groups = {side.lower(): [task for task in tasks if pair.domain_group(task) == side] for side in (BOTH_IN, BOTH_OUT)}
    if not pair.has_same_domain:
        groups = {f"{name} of both": group_tasks for name, group_tasks in groups.items()}
    choices = {ALL_DATA_SETS: tasks} | {name: group_tasks for name, group_tasks in groups.items() if group_tasks}
    choices |= {titles[task]: [task] for task in tasks}
    name = st.selectbox("Data sets", choices, key=address.COMPARED_DATA_SETS, bind=address.BIND, width=260)
    return images[images["task"].isin(choices[name])]


def count_agreement(images: pd.DataFrame) -> pd.DataFrame:
    """The number of images in each of the four cells."""
    import pandas as pd

    rows = [(a, b, float(images[column].sum())) for column, a, b in OUTCOMES.values()]
    table = pd.DataFrame(rows, columns=["a", "b", "count"])
    return table.assign(share=table["count"] / len(images))


def mcnemar_in_words(images: pd.DataFrame) -> str:
    """McNemar's test of the images on which only one run is right, in words; Markdown."""
    from merging.images.benchmarks.paired_scores import mcnemar

    if not images["single"].all():
        return SEVERAL_MODELS_NOTE
    only_a, only_b = int(images["only_a"].sum()), int(images["only_b"].sum())
    if not only_a + only_b:
        return "On every image both are right or both wrong, so there is nothing to test."
    p = mcnemar(only_a, only_b)
    return (
        f"The runs differ on **{only_a + only_b:,}** images: only A is right on {only_a:,}, only B on {only_b:,}. "
        f"McNemar's exact test: **p = {format_p_value(p)}**. If both were equally good, a split at least this uneven "
        f"would occur {frequency_in_words(p)}."
    )


def format_p_value(p: float) -> str:
    """A p value as text: '0.031', '3.2·10⁻⁷'."""
    return f"{p:.2g}" if p >= 1e-3 else power(p) if p > 1e-300 else "0 to 300 digits"


def frequency_in_words(p: float) -> str:
    """The frequency of an event of probability ``p``, in words."""
    if p >= 0.5:
        return "more often than not"
    return f"once in {1 / p:,.0f} times" if p > 1e-6 else "less than once in a million times"


def sort_by_margin(images: pd.DataFrame, column: str) -> pd.DataFrame:
    """The images of a cell, those with the largest difference in margin first."""
    rows = images[images[column] > 0]
    difference = (rows["margin_a"] - rows["margin_b"]).abs()
    return rows.assign(margin_difference=difference).sort_values(
        [column, "margin_difference"], ascending=False, kind="stable"
    )


def draw_thumbnails(pair: RunPair, images: pd.DataFrame, column: str, outcome: str) -> None:
    """Draw a page of the images, each with its class and both predictions."""
    from merging.study.measurements.predictions import SPLIT

    if images.empty:
        st.caption(f"No image is in the cell “{outcome}”.")
        return
    with st.container(horizontal=True, vertical_alignment="center", key="chosen_images"):
        condition = "" if images["single"].all() else " for at least one of the models"
        st.markdown(f"**{plural(len(images), 'image')}**, {outcome}{condition}.")
        st.download_button(
            "Images (CSV)", lambda: tables.csv_bytes(images), f"images_{column}.csv", "text/csv", on_click="ignore",
            type="tertiary", icon=":material/table:", help="Data set, position, class, both predictions and margins.",
        )  # fmt: skip
    page_count = -(-len(images) // IMAGES_PER_PAGE)
    page_number = 1
    if page_count > 1:
        page_number = st.pagination(
            page_count, key=f"images_{column}_{len(images)}_{images['task'].iloc[0]}", width=320
        )
    rows = images.iloc[(page_number - 1) * IMAGES_PER_PAGE : page_number * IMAGES_PER_PAGE].to_dict("records")
    tiles.draw_strip([make_thumbnail(row) for row in rows], SPLIT, pair.runs, f"{outcome}, {' and '.join(pair.labels)}")
    st.caption(
        "Above the two predictions is the image's class. Images with the largest difference in margin come first, "
        "where margin is the cosine of the right class minus the largest other one."
        + ("" if images["single"].all() else " In parentheses: how many of a run's models predict it.")
    )
