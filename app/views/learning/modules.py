"""Modules on top of a merged model: the feature shift that they remove, and how routers mix experts."""

from __future__ import annotations

import streamlit as st

from app import text
from app.reading import data as stored_data
from app.reading import names
from app.session import address
from app.session.clicks import fragment
from app.views.learning import data, one_image
from app.widgets import chart
from merging.runs.run import Run
from viz.text import clean_text, span

SHIFTED = (
    "Features before they are normalized, of the images that the modules learned from (n = {} a task), against those "
    "of the task's own expert. Which module to use is known only where an image's task is."
)
ROUTED = "Every image is routed by itself; n = {} images of each task, of those that the router learned from."
UNSEEN = " Unseen data sets, which no expert was trained on, stand below the line."


def view(run: Run) -> None:
    """What the run has: the shift of features, and the routing of images."""
    if data.SHIFT in run.tables:
        _shift(run)
    if data.ROUTING in run.tables:
        _routing(run)


def _shift(run: Run) -> None:
    """Bars of every task's feature shift before and after its module."""
    table = stored_data.table(run.id, data.SHIFT)
    table = table.assign(title=table["task"].map(names.expert))
    images = SHIFTED.format(span(table["n"])) if "n" in table else SHIFTED.format("—")
    chart.chart(
        "feature_shift",
        table,
        name=f"feature_shift_{run.id[:8]}",
        of=[run],
        caption=f"{images} {text.adapted(run)}".strip(),
    )


@fragment
def _routing(run: Run) -> None:
    """The router's confusion, the own expert's weight by block, and the weights of one task's images."""
    table = stored_data.table(run.id, data.ROUTING)
    titles = names.titles()
    table = table.assign(title=table["task"].map(lambda key: titles.get(key, key)))
    words = ROUTED.format(span(table["n"]) if "n" in table else "—")
    _confusion(run, titles, words)
    own = table[table["task"] == table["expert"]]
    chart.chart(
        "routing_own", own, name=f"routing_own_{run.id[:8]}", tasks=list(run.experts), of=[run],
        caption=f"{words} Lines are the range of nine of ten images.",
    )  # fmt: skip
    tasks = list(dict.fromkeys(table["task"]))
    chart.ask("routing_map")
    task = st.selectbox(
        "Images of", tasks, format_func=lambda key: clean_text(titles.get(key, key), 60), key=address.IMAGES,
        bind=address.BIND, width=260,
    )  # fmt: skip
    chart.chart(
        "routing_map", table[table["task"] == task], name=f"routing_{run.id[:8]}_{task}", headed=True, of=[run],
        task=titles.get(task, task), caption=words,
    )  # fmt: skip
    one_image.view(run)


def _confusion(run: Run, titles: dict[str, str], words: str) -> None:
    if data.CONFUSION not in run.tables:
        return
    table = stored_data.table(run.id, data.CONFUSION)
    table = table.assign(
        title=table["task"].map(lambda key: titles.get(key, key)), in_domain=table["task"].isin(run.experts)
    )
    rest = "" if table["in_domain"].all() else UNSEEN
    chart.chart("router_confusion", table, name=f"router_{run.id[:8]}", of=[run], caption=words + rest)
