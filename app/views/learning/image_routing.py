"""One image of any data set, seen or unseen, beside the weights that the router assigns to the experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import benchmark_images, page_data, samples
from app.widgets import chart_view, image_link
from merging.base.errors import MergingError
from merging.study.runs.run import Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

SPLIT = page_data.SCORED_SPLIT
ONLY_TABLES = "Only the tables of this run are stored. Run its recipe again on this machine to route single images."


def draw_view(run: Run) -> None:
    """Draw pickers of a data set and one of its images, the image, and its weights."""
    chart_view.draw_question("routing_image")
    if not run.has_model:
        st.info(ONLY_TABLES)
        return
    tasks = {task.key: page_text.correct_titles(task.title) for task in page_data.benchmark().tasks}
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        task = st.selectbox(
            "Data set", list(tasks), format_func=lambda key: clean_text(tasks[key], 60), key="routed_set", width=260
        )
        digest = page_data.benchmark().digest
        images, labels = benchmark_images.split_images(task, SPLIT), benchmark_images.split_labels(task, SPLIT)
        number = int(st.number_input("Image", 0, len(labels) - 1, 0, key=f"routed_image_{task}", width=160))
    truth = page_data.benchmark().find_task(task).class_names[int(labels[number])]
    picture, weights = st.columns([1, 4], vertical_alignment="top")
    with picture:
        st.image(images[number], width=120, alt=f"An image of {clean_text(truth, 60)}")
        unseen_note = "" if task in run.experts else "; no expert was trained on its data set"
        st.caption(f"**{page_text.safe_text(truth, 40)}**, {page_text.safe_text(tasks[task], 40)}{unseen_note}.")
        image_link.draw_image_link(f"{task}:{SPLIT}:{number}", [run])
    with weights:
        try:
            table = _route_image(run.id, digest, task, number)
        except MergingError as error:
            st.info(page_text.safe_text(error, 400))
            return
        chart_view.draw_chart(
            "routing_image", table, name=f"routing_{run.id[:8]}_{task}_{number}", question_drawn=True, sources=[run],
            image=f"image {number} of {tasks[task]}",
            description=f"Image {number} of {page_text.safe_text(tasks[task], 40)}, {samples.scored_part()}, "
            "computed just now.",
        )  # fmt: skip


@st.cache_data(max_entries=64, show_spinner="Routing the image …")
def _route_image(run_id: str, digest: str, task: str, number: int) -> pd.DataFrame:
    """The weight of every expert in every block; block is -1 if one router serves the whole network."""
    import pandas as pd

    modules = page_data.store().get_run(run_id).open_modules()
    assert modules is not None  # called for runs with modules
    routing = modules.routing(
        page_data.benchmark().preprocess(benchmark_images.split_images(task, SPLIT)[number : number + 1])
    )
    assert routing is not None  # called for modules that route
    has_block_routers = routing.ndim == 3  # (images, blocks, experts), else (images, experts); one image here
    blocks = routing[0] if has_block_routers else routing
    rows = [
        (block if has_block_routers else -1, expert, float(weight))
        for block, weights in enumerate(blocks)
        for expert, weight in zip(modules.tasks, weights, strict=True)
    ]
    return pd.DataFrame(rows, columns=["block", "expert", "weight"])
