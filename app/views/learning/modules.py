"""Modules on top of a merged model: the feature shift that they remove, and how routers mix experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data as stored_data
from app.reading import measurements, names, samples
from app.session import address
from app.session.clicks import fragment
from app.views.learning import data, one_image
from app.widgets import chart
from app.widgets.jobs import measure_button
from merging.study.analysis.stored import Measured
from merging.study.runs.run import Run
from viz.text import clean_text, span

if TYPE_CHECKING:
    import pandas as pd

SHIFTED = (
    "Features before they are normalized, of {} (n = {} images a task), against those of the task's own expert. "
    "Which module to use is known only where an image's task is."
)
ROUTED = "Every image is routed by itself; n = {} images of each data set, of {}."
UNSEEN = " Unseen data sets, which no expert was trained on, stand below the line."
REPORTED, LEARNED_FROM = "images to report on", "the images that were learned from"
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


def view(run: Run) -> None:
    """What the run has: the shift of features, and the routing of images; of images that modules did not learn from."""
    measured = measurements.find(measurements.MODULES, run.id) if run.adapt else None
    having, shown = {data.SHIFT, data.ROUTING} & set(run.tables), measured
    if measured is not None and having:
        images = st.segmented_control(
            "Images", [REPORTED, LEARNED_FROM], default=REPORTED, key=f"asked_{run.id}", required=True
        )
        shown = measured if images == REPORTED else None
    elif run.adapt and measured is None:
        why = NOT_MEASURED if data.SHIFT in having else NOT_ROUTED
        measure_button.missing(measurements.MODULES, [run], why)
    tables = having if shown is None else set(shown.tables)
    if data.SHIFT in tables:
        _shift(run, shown)
    if data.ROUTING in tables:
        _routing(run, shown)
    if measured is not None and data.ORACLE in measured.tables:
        _oracle(run, measured)


def _table(run: Run, measured: Measured | None, name: str) -> pd.DataFrame:
    """A table of the measured half, or the run's own."""
    return stored_data.table(run.id, name) if measured is None else measurements.table(measured, name)


def _of(measured: Measured | None) -> str:
    return LEARNED_FROM if measured is None else f"the {samples.part()}"


def _origin(measured: Measured | None) -> str:
    return "" if measured is None else f" {measure_button.origin([measured])}"


def _shift(run: Run, measured: Measured | None) -> None:
    """Bars of every task's feature shift before and after its module."""
    table = _table(run, measured, data.SHIFT)
    table = table.assign(title=table["task"].map(names.expert))
    images = SHIFTED.format(_of(measured), span(table["n"]) if "n" in table else "—")
    chart.chart(
        "feature_shift",
        table,
        name=f"feature_shift_{run.id[:8]}",
        of=[run],
        caption=f"{images} {text.adapted(run)}".strip() + _origin(measured),
    )


@fragment
def _routing(run: Run, measured: Measured | None) -> None:
    """The router's confusion, the own expert's weight by block, and the weights of one task's images."""
    table = _table(run, measured, data.ROUTING)
    titles = names.titles()
    table = table.assign(title=table["task"].map(lambda key: titles.get(key, key)))
    words = ROUTED.format(span(table["n"]) if "n" in table else "—", _of(measured)) + _origin(measured)
    if measured is not None or data.CONFUSION in run.tables:
        _confusion(run, _table(run, measured, data.CONFUSION), titles, words)
    own = table[table["task"] == table["expert"]]
    chart.chart(
        "routing_own", own, name=f"routing_own_{run.id[:8]}", tasks=list(run.experts), of=[run],
        caption=f"{words} Lines are the range of nine of ten images.",
    )  # fmt: skip
    tasks = list(dict.fromkeys(table["task"]))
    chart.ask("routing_map")
    task = st.selectbox(
        "Images of", tasks, format_func=lambda key: clean_text(titles.get(key, key), 60), key=address.ROUTED_DATA_SET,
        bind=address.BIND, width=260,
    )  # fmt: skip
    chart.chart(
        "routing_map", table[table["task"] == task], name=f"routing_{run.id[:8]}_{task}", headed=True, of=[run],
        task=titles.get(task, task), caption=words,
    )  # fmt: skip
    one_image.view(run)


def _confusion(run: Run, table: pd.DataFrame, titles: dict[str, str], words: str) -> None:
    table = table.assign(
        title=table["task"].map(lambda key: titles.get(key, key)), in_domain=table["task"].isin(run.experts)
    )
    rest = "" if table["in_domain"].all() else UNSEEN
    chart.chart("router_confusion", table, name=f"router_{run.id[:8]}", of=[run], caption=words + rest)


def _oracle(run: Run, measured: Measured) -> None:
    """A table of what the true task's vector gives, which is no score."""
    import pandas as pd

    table = measurements.table(measured, data.ORACLE)
    rows = table.assign(title=table["task"].map(names.expert))[[*COLUMNS]]
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
    st.caption(ORACLE_WORDS.format(span(table["n"]), samples.part(), measure_button.origin([measured])))
