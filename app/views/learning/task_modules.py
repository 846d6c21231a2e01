"""Modules on top of a merged model: the feature shift that they remove, and how routers mix experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, samples
from app.reading import page_data as stored_data
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.learning import image_routing, learning_tables
from app.widgets import chart_view
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

if TYPE_CHECKING:
    import pandas as pd

SHIFT_NOTE = (
    "Features before they are normalized, of {} (n = {} images a task), against those of the task's own expert. "
    "Which module to use is known only where an image's task is."
)
ROUTING_NOTE = "Every image is routed by itself; n = {} images of each data set, of {}."
UNSEEN = " Unseen data sets, which no expert was trained on, stand below the line."
REPORTING_IMAGES, LEARNED_FROM = "images to report on", "the images that were learned from"
NOT_MEASURED = (
    "These are images that were learned from. How the modules treat images to report on, which they have not "
    "seen unless the run says so, has not been measured for"
)
NOT_ROUTED = (
    "Where the router sends images to report on, and whom images of unseen data sets are taken for, has not "
    "been measured for"
)
ORACLE = "What would the true task's own vector give?"
ORACLE_WORDS = (
    "An oracle: every image is given the vector of the task that it is known to be of. It says what keeping the "
    "vectors at a low rank costs, against the experts, and what routing costs, against the router's mixtures. It is no "
    "score, since nothing tells the model an image's task. n = {} images of each task, {}. {}"
)
COLUMNS = {
    "title": "Task", "merged": "Merged model", "routed": "Routed", "oracle": "True task's vector", "expert": "Expert",
}  # fmt: skip


def draw_view(run: Run) -> None:
    """What the run has: the shift of features, and the routing of images; of images that modules did not learn from."""
    measured = measurements.find_measurement(measurements.MODULES, run.id) if run.adapt else None
    having, shown = {learning_tables.SHIFT, learning_tables.ROUTING} & set(run.tables), measured
    if measured is not None and having:
        images = st.segmented_control(
            "Images", [REPORTING_IMAGES, LEARNED_FROM], default=REPORTING_IMAGES, key=f"asked_{run.id}", required=True
        )
        shown = measured if images == REPORTING_IMAGES else None
    elif run.adapt and measured is None:
        why = NOT_MEASURED if learning_tables.SHIFT in having else NOT_ROUTED
        measure_button.draw_missing(measurements.MODULES, [run], why)
    tables = having if shown is None else set(shown.tables)
    if learning_tables.SHIFT in tables:
        _draw_shift(run, shown)
    if learning_tables.ROUTING in tables:
        _draw_routing(run, shown)
    if measured is not None and learning_tables.ORACLE in measured.tables:
        _draw_oracle(run, measured)


def _table(run: Run, measured: StoredMeasurement | None, name: str) -> pd.DataFrame:
    """A table of the measured half, or the run's own."""
    return stored_data.run_table(run.id, name) if measured is None else measurements.measured_table(measured, name)


def _images_in_words(measured: StoredMeasurement | None) -> str:
    return LEARNED_FROM if measured is None else f"the {samples.scored_part()}"


def _origin(measured: StoredMeasurement | None) -> str:
    return "" if measured is None else f" {measure_button.origin_in_words([measured])}"


def _draw_shift(run: Run, measured: StoredMeasurement | None) -> None:
    """Bars of every task's feature shift before and after its module."""
    table = _table(run, measured, learning_tables.SHIFT)
    table = table.assign(title=table["task"].map(expert_names.expert_name))
    images = SHIFT_NOTE.format(_images_in_words(measured), span(table["n"]) if "n" in table else "—")
    chart_view.draw_chart(
        "feature_shift",
        table,
        name=f"feature_shift_{run.id[:8]}",
        of=[run],
        caption=f"{images} {page_text.adapting_in_words(run)}".strip() + _origin(measured),
    )


@guarded_fragment
def _draw_routing(run: Run, measured: StoredMeasurement | None) -> None:
    """The router's confusion, the own expert's weight by block, and the weights of one task's images."""
    table = _table(run, measured, learning_tables.ROUTING)
    titles = expert_names.data_set_titles()
    table = table.assign(title=table["task"].map(lambda key: titles.get(key, key)))
    words = ROUTING_NOTE.format(span(table["n"]) if "n" in table else "—", _images_in_words(measured)) + _origin(
        measured
    )
    if measured is not None or learning_tables.CONFUSION in run.tables:
        _draw_confusion(run, _table(run, measured, learning_tables.CONFUSION), titles, words)
    own = table[table["task"] == table["expert"]]
    chart_view.draw_chart(
        "routing_own", own, name=f"routing_own_{run.id[:8]}", tasks=list(run.experts), of=[run],
        caption=f"{words} Lines are the range of nine of ten images.",
    )  # fmt: skip
    tasks = list(dict.fromkeys(table["task"]))
    chart_view.draw_question("routing_map")
    task = st.selectbox(
        "Images of", tasks, format_func=lambda key: clean_text(titles.get(key, key), 60), key=address.ROUTED_DATA_SET,
        bind=address.BIND, width=260,
    )  # fmt: skip
    chart_view.draw_chart(
        "routing_map", table[table["task"] == task], name=f"routing_{run.id[:8]}_{task}", headed=True, of=[run],
        task=titles.get(task, task), caption=words,
    )  # fmt: skip
    image_routing.draw_view(run)


def _draw_confusion(run: Run, table: pd.DataFrame, titles: dict[str, str], words: str) -> None:
    table = table.assign(
        title=table["task"].map(lambda key: titles.get(key, key)), in_domain=table["task"].isin(run.experts)
    )
    rest = "" if table["in_domain"].all() else UNSEEN
    chart_view.draw_chart("router_confusion", table, name=f"router_{run.id[:8]}", of=[run], caption=words + rest)


def _draw_oracle(run: Run, measured: StoredMeasurement) -> None:
    """A table of what the true task's vector gives, which is no score."""
    import pandas as pd

    table = measurements.measured_table(measured, learning_tables.ORACLE)
    rows = table.assign(title=table["task"].map(expert_names.expert_name))[[*COLUMNS]]
    numbers = [name for name in COLUMNS if name != "title"]
    mean = pd.DataFrame([{"title": "Mean", **rows[numbers].mean()}])
    wide = pd.concat([mean, rows], ignore_index=True)
    wide[numbers] = 100 * wide[numbers]
    st.header(ORACLE, anchor=False)
    st.dataframe(
        wide.rename(columns=COLUMNS), hide_index=True, height="content",
        column_config={COLUMNS[name]: st.column_config.NumberColumn(format="%.1f %%") for name in numbers},
        alt="Accuracy on every task of the merged model, routed, with the true task's vector, and of the expert",
    )  # fmt: skip
    st.caption(ORACLE_WORDS.format(span(table["n"]), samples.scored_part(), measure_button.origin_in_words([measured])))
