"""The view of whole data sets: depths at which answers turn or part, and the tokens that fix broken images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import measurements, samples
from app.reading.measurements import MeasuredRuns
from app.session import address, selection
from app.session.click_errors import guarded_fragment
from app.views.image import data_set_tables
from app.widgets import chart_view, run_picker, thumbnails
from app.widgets.jobs import measure_button
from merging.base.files.tables import csv_bytes
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text, plural, span

if TYPE_CHECKING:
    import pandas as pd

SPLIT = "reporting"
METRICS = {  # label in the picker and in links -> column of the measurement
    "where answers turn": "turns",
    "where they part from the reference": "parts",
    "accuracy when read out": "accuracy",
}
TOKEN_MODELS = {"the reference": "reference", "the pretrained model": "pretrained"}
CELL_METRICS = {  # those that count images (not accuracy)
    **{name: METRICS[name] for name in list(METRICS)[:2]},
    "what restoring fixes": "mended",
}
NOT_MEASURED = "Answers by depth have not been measured for"
DEPTH_NOTE = "Depth 0 is before block 0, depth b after b blocks. Early depths were never trained for this readout."
METRIC_NOTES = {
    "turns": "A curve sums to 100 %: every image turns once, at the depth from which its answer is the final one.",
    "parts": "The depth from which the answer differs from the reference's; images with equal final answers have none.",
    "accuracy": DEPTH_NOTE,
}
BROKEN_NOTE = (
    "Broken images are those that the reference gets right and the run wrong; n is their number. After the last block, "
    "only the last normalization and projection of the merge follow."
)
INTERVALS_NOTE = "95 % intervals: bootstrap of images within data sets, {resamples:,} resamples, seed {seed}."
MODULES_NOTE = (
    "{} {} modules on the merged model, so its answers are not those of one network; this view leaves it out."
)
MAX_THUMBNAILS, MAX_LISTED_RUNS = 12, 4  # images shown at once, and runs whose numbers of images are listed


def draw_view(runs: Sequence[Run]) -> None:
    """Draw the view for the runs that merge the experts of the first run."""
    if runs_with_modules := [run for run in runs if run.adapt]:
        titles = page_text.join_words([f"**{page_text.safe_text(run.name, 60)}**" for run in runs_with_modules])
        st.caption(MODULES_NOTE.format(titles, "has" if len(runs_with_modules) == 1 else "have"))
    merges = [run for run in runs if run.kind == "merge" and not run.adapt]
    if not merges:
        st.info("Choose a merge above to see its answers by depth over whole data sets.")
        return
    groups = run_picker.group_by_models(merges)
    results = [(run, measurements.find_measurement(measurements.ANSWERS_BY_DEPTH, run.id)) for run in groups[0]]
    pairs = [(run, measurement) for run, measurement in results if measurement is not None]
    if unmeasured := [run for run, measurement in results if measurement is None]:
        measure_button.draw_missing(
            measurements.ANSWERS_BY_DEPTH, unmeasured, NOT_MEASURED, [measurement for _, measurement in pairs]
        )
    if pairs:
        draw_depths(pairs)
        draw_data_sets(pairs)
    run_picker.draw_other_groups(groups)


@guarded_fragment
def draw_depths(pairs: MeasuredRuns) -> None:
    """Draw curves over depth for each run, and the images that restoring fixes; the pickers redraw only these."""
    groups = data_set_tables.list_image_groups(pairs)
    names = list(groups)
    with st.container(horizontal=True, gap="medium"):
        name = st.selectbox(
            "Over the images of", names, key=address.IMAGE_GROUP, bind=address.BIND,
            width=240,
        )  # fmt: skip
        metric = METRICS[st.selectbox("Count", METRICS, key=address.DEPTH_METRIC, bind=address.BIND, width=300)]
        donor = TOKEN_MODELS[
            st.selectbox("Restore tokens of", TOKEN_MODELS, key=address.TOKEN_MODEL, bind=address.BIND, width=240)
        ]
    group, run_ids, runs = groups[name], [run.id for run, _ in pairs], [run for run, _ in pairs]
    title = clean_text(name, 60)
    depths = data_set_tables.build_depth_table(pairs, metric, group)
    chart_view.draw_chart(
        "data_set_depths", depths, name=f"by_depth_{metric}_{group}", value=metric, runs=run_ids, over=title,
        sources=runs, caption=f"{METRIC_NOTES[metric]} {numbers_in_words(pairs, depths, title, metric)}",
    )  # fmt: skip
    table = data_set_tables.build_mended_table(pairs, group, donor)
    chart_view.draw_chart(
        "data_set_mended", table, name=f"mended_{donor}_{group}", runs=run_ids, over=title,
        sources=runs, caption=f"{BROKEN_NOTE} {numbers_in_words(pairs, table, title, 'mended')}",
    )  # fmt: skip


def numbers_in_words(pairs: MeasuredRuns, table: pd.DataFrame, title: str, metric: str) -> str:
    """Sentences on the number of images, their part of the test set, the intervals and the measurement's origin."""
    notes = pairs[0][1].notes
    counts = table.drop_duplicates("run").set_index("label")["n"].astype(int)
    counts_in_words = [f"{n:,} for {page_text.safe_text(label, 40)}" for label, n in counts.items()]
    n = (
        page_text.join_words(counts_in_words)
        if counts.nunique() > 1 and len(counts_in_words) <= MAX_LISTED_RUNS
        else span(counts)
    )
    kind, intervals = (
        "broken images" if metric == "mended" else "images",
        INTERVALS_NOTE.format(resamples=notes["resamples"], seed=notes["resample_seed"]),
    )
    return (
        f"{page_text.safe_text(title[:1].upper() + title[1:])}: n = {n} {kind} of the {samples.scored_part()}. "
        f"{intervals} "
        f"{measure_button.origin_in_words([measurement for _, measurement in pairs])}"
    )


def choose_cell() -> None:
    """Callback of a click: set the pickers to the cell's data set and depth."""
    if cell := chart_view.read_clicked_mark("data_set_tasks"):
        st.session_state[address.LISTED_DATA_SET] = measurements.titles_by_task()[cell["task"]]
        st.session_state[address.DEPTH] = int(cell["depth"])


@guarded_fragment
def draw_data_sets(pairs: MeasuredRuns) -> None:
    """Draw one run, data set by data set, and the images that the chosen cell counts."""
    chart_view.draw_question("data_set_tasks")
    with st.container(horizontal=True, gap="medium"):
        run = run_picker.pick_one([run for run, _ in pairs], "Run")
        value = CELL_METRICS[
            st.selectbox("Cells show", CELL_METRICS, key=address.CELL_METRIC, bind=address.BIND, width=300)
        ]
    measured = next(measurement for measured_run, measurement in pairs if measured_run.id == run.id)
    table = data_set_tables.build_task_table(run, measured, value)
    labeled = table.assign(run=table["task"], label=table["title"])
    chart_view.draw_chart(
        "data_set_tasks", table, name=f"tasks_{value}_{run.id[:8]}", question_drawn=True, value=value,
        on_click=choose_cell, sources=[run],
        caption=f"{DEPTH_NOTE} {numbers_in_words([(run, measured)], labeled, 'Each data set', value)}",
    )  # fmt: skip
    titles = dict(zip(table["title"], table["task"], strict=True))
    with st.container(horizontal=True, gap="medium"):
        title = st.selectbox(
            "Images of", titles, None, key=address.LISTED_DATA_SET, bind=address.BIND,
            placeholder=selection.PICK_HINT.format("a cell"), width=240,
        )  # fmt: skip
        depths = sorted(set(table["depth"].astype(int)))
        depth = st.selectbox("Depth", depths, key=address.DEPTH, bind=address.BIND, width=120)
    if title is not None:
        draw_cell_images(run, measured, value, titles[title], int(depth))


def draw_cell_images(run: Run, measurement: StoredMeasurement, value: str, task: str, depth: int) -> None:
    """Draw the images of a cell as thumbnails, each of which opens on this page."""
    images = data_set_tables.find_cell_images(measurement, value, task, depth)
    title = f"{measurements.titles_by_task()[task]}, {cell_in_words(value, depth)}, {run.name}"
    if images.empty:
        st.caption(f"No image: {page_text.safe_text(title, 120)}.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plural(len(images), 'image')}**: {page_text.safe_text(title, 120)}.")
        st.download_button(
            "Images (CSV)", lambda: csv_bytes(images), f"images_{value}_{task}_{depth}.csv", "text/csv",
            on_click="ignore", type="tertiary", icon=":material/table:",
        )  # fmt: skip
    shown_rows = images.head(MAX_THUMBNAILS).to_dict("records")
    tiles = [
        thumbnails.Thumbnail(f"{task}:{row['number']}", str(row["class"]), (("answer", str(row["answer"])),))
        for row in shown_rows
    ]
    thumbnails.draw_strip(tiles, SPLIT, [run], title)
    if len(images) > MAX_THUMBNAILS:
        st.caption(f"Showing the first {MAX_THUMBNAILS}; the CSV file lists all.")


def cell_in_words(value: str, depth: int) -> str:
    """The condition that a cell counts, in words."""
    if value == "mended":
        return f"fixed by the class token before block {depth}"
    return (
        f"the answer stays from depth {depth} on" if value == "turns" else f"parts from the reference at depth {depth}"
    )
