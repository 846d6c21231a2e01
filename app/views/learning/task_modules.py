"""Modules on top of a merged model: the feature shift that they remove, and the routing of images to experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, samples
from app.reading import page_data as stored_data
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.learning import image_routing, learning_tables
from app.widgets import chart_view, page_parts
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

if TYPE_CHECKING:
    import pandas as pd

SHIFT_NOTE = (
    "Features before normalization, of {} (n = {} images per task), against those of the task's own expert. The module "
    "to use is known only if the task of an image is known."
)
ROUTING_NOTE = "Every image is routed separately; n = {} images of each data set, of {}."
UNSEEN_NOTE = " Unseen data sets, which no expert was trained on, are below the line."
REPORTING_IMAGES, LEARNING_IMAGES = "images to report on", "the images that the run learned from"
NOT_MEASURED = (
    "These are the images that the run learned from. The effect of the modules on the images to report on has not "
    "been measured for"
)
NOT_ROUTED = "The routing of the images to report on, and of images of unseen data sets, has not been measured for"
ORACLE_QUESTION = "How accurate is the true task's own vector?"
ORACLE_NOTE = (
    "An oracle: every image gets the vector of its true task. The gap to the experts is the cost of low-rank vectors; "
    "the gap to the routed model is the cost of routing. It is not a score, since the model cannot know an image's "
    "task. n = {} images of each task, {}. {}"
)
ORACLE_COLUMNS = {
    "title": "Task", "merged": "Merged model", "routed": "Routed", "oracle": "True task's vector", "expert": "Expert",
}  # fmt: skip


def draw_view(run: Run) -> None:
    """Draw a run's feature shift and routing, on images that the modules did not learn from if that is measured."""
    measurement = measurements.find_measurement(measurements.MODULES_ON_TEST_IMAGES, run.id) if run.adapt else None
    # The run's own tables are about the images that it learned from, the measurement is about the images to report on.
    own_tables, shown_measurement = {learning_tables.SHIFT, learning_tables.ROUTING} & set(run.tables), measurement
    if measurement is not None and own_tables:
        choices, key = (REPORTING_IMAGES, LEARNING_IMAGES), f"asked_{run.id}"
        images = st.segmented_control("Images", choices, default=REPORTING_IMAGES, key=key, required=True)
        shown_measurement = measurement if images == REPORTING_IMAGES else None
    elif run.adapt and measurement is None:
        note = NOT_MEASURED if learning_tables.SHIFT in own_tables else NOT_ROUTED
        measure_button.draw_missing(measurements.MODULES_ON_TEST_IMAGES, [run], note)
    tables = own_tables if shown_measurement is None else set(shown_measurement.tables)
    if learning_tables.SHIFT in tables:
        _draw_shift(run, shown_measurement)
    if learning_tables.ROUTING in tables:
        _draw_routing(run, shown_measurement)
    if measurement is not None and learning_tables.ORACLE in measurement.tables:
        _draw_oracle(run, measurement)


def _read_table(run: Run, measurement: StoredMeasurement | None, name: str) -> pd.DataFrame:
    """A table of the measurement, or of the run if ``measurement`` is None."""
    return (
        stored_data.run_table(run.id, name) if measurement is None else measurements.measured_table(measurement, name)
    )


def _images_in_words(measurement: StoredMeasurement | None) -> str:
    return LEARNING_IMAGES if measurement is None else f"the {samples.scored_part()}"


def _origin_in_words(measurement: StoredMeasurement | None) -> str:
    return "" if measurement is None else f" {measure_button.origin_in_words([measurement])}"


def _draw_shift(run: Run, measurement: StoredMeasurement | None) -> None:
    """Draw bars of every task's feature shift before and after its module."""
    table = _read_table(run, measurement, learning_tables.SHIFT)
    table = table.assign(title=table["task"].map(expert_names.expert_name))
    images = SHIFT_NOTE.format(_images_in_words(measurement), span(table["n"]) if "n" in table else "—")
    chart_view.draw_chart(
        "feature_shift",
        table,
        name=f"feature_shift_{run.id[:8]}",
        sources=[run],
        caption=f"{images} {page_text.adapting_in_words(run)}".strip() + _origin_in_words(measurement),
    )


@guarded_fragment
def _draw_routing(run: Run, measurement: StoredMeasurement | None) -> None:
    """Draw the router's confusion, the own expert's weight by block, and the weights of one task's images."""
    table = _read_table(run, measurement, learning_tables.ROUTING)
    titles = expert_names.data_set_titles()
    table = table.assign(title=table["task"].map(lambda key: titles.get(key, key)))
    caption = ROUTING_NOTE.format(
        span(table["n"]) if "n" in table else "—", _images_in_words(measurement)
    ) + _origin_in_words(measurement)
    if measurement is not None or learning_tables.CONFUSION in run.tables:
        _draw_confusion(run, _read_table(run, measurement, learning_tables.CONFUSION), titles, caption)
    own_weights = table[table["task"] == table["expert"]]
    chart_view.draw_chart(
        "routing_own", own_weights, name=f"routing_own_{run.id[:8]}", tasks=list(run.experts), sources=[run],
        caption=f"{caption} Lines span the middle nine of ten images.",
    )  # fmt: skip
    tasks = list(dict.fromkeys(table["task"]))
    chart_view.draw_question("routing_map")
    task = st.selectbox(
        "Images of", tasks, format_func=lambda key: clean_text(titles.get(key, key), 60), key=address.ROUTED_DATA_SET,
        bind=address.BIND, width=260,
    )  # fmt: skip
    chart_view.draw_chart(
        "routing_map", table[table["task"] == task], name=f"routing_{run.id[:8]}_{task}", question_drawn=True,
        sources=[run], task=titles.get(task, task), caption=caption,
    )  # fmt: skip
    image_routing.draw_view(run)


def _draw_confusion(run: Run, table: pd.DataFrame, titles: dict[str, str], caption: str) -> None:
    table = table.assign(
        title=table["task"].map(lambda key: titles.get(key, key)), in_domain=table["task"].isin(run.experts)
    )
    note = "" if table["in_domain"].all() else UNSEEN_NOTE
    chart_view.draw_chart("router_confusion", table, name=f"router_{run.id[:8]}", sources=[run], caption=caption + note)


def _draw_oracle(run: Run, measurement: StoredMeasurement) -> None:
    """Draw a table of accuracies with the true task's vector, which are not scores."""
    import pandas as pd

    table = measurements.measured_table(measurement, learning_tables.ORACLE)
    rows = table.assign(title=table["task"].map(expert_names.expert_name))[[*ORACLE_COLUMNS]]
    number_columns = [name for name in ORACLE_COLUMNS if name != "title"]
    mean = pd.DataFrame([{"title": "Mean", **rows[number_columns].mean()}])
    percentages = pd.concat([mean, rows], ignore_index=True)
    percentages[number_columns] = 100 * percentages[number_columns]
    st.header(ORACLE_QUESTION, anchor=False)
    page_parts.draw_table(
        percentages.rename(columns=ORACLE_COLUMNS),
        "Accuracy on every task of the merged model, routed, with the true task's vector, and of the expert",
        {ORACLE_COLUMNS[name]: st.column_config.NumberColumn(format="%.1f %%") for name in number_columns},
    )
    st.caption(
        ORACLE_NOTE.format(span(table["n"]), samples.scored_part(), measure_button.origin_in_words([measurement]))
    )
