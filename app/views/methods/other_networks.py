"""The papers' figures of a method on networks other than CLIP: a table for each model, with tasks and measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading.papers.published_tables import PUBLISHED, printed_color
from app.session import address, view_state
from merging.methods.method import Method
from merging.recipes.papers.other_networks import ACCURACY, MEASURES, MODELS, OTHER_NETWORK_FIGURES, BeyondFigure
from merging.recipes.papers.published_figures import MERGE, SOURCES
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

HELP = "Also show the papers' figures for DeBERTa, T5, Llama and BLIP."
TUNED = "Tuned: parameters chosen on validation data."
CHAIN, SOURCE, NOTE = ("", "Chain"), ("", "Source"), ("", "Note")


def is_shown(network: str, stored: Sequence[Run]) -> bool:
    """Whether these figures are shown; draws a toggle if such a model is open, or such a run or link exists."""
    requested = view_state.value_from_link(address.OTHER_NETWORKS) or st.session_state.get(address.OTHER_NETWORKS)
    if not (network or requested or any(run.network for run in stored)):
        return False
    return st.toggle("Beyond CLIP", bool(network), key=address.OTHER_NETWORKS, bind=address.BIND, help=HELP)


def draw_tables(method: Method, network: str) -> None:
    """Draw a table for each model that has figures of the method, models of the open network first."""
    models = sorted(MODELS, key=lambda name: MODELS[name].network != network)
    found = {name: rows for name in models if (rows := model_figures(method, name))}
    if not found:
        return
    st.subheader("The papers’ numbers beyond CLIP", anchor=False)
    for name, rows in found.items():
        model, frame = MODELS[name], figures_table(rows)
        values = [column for column in frame.columns if column[0]]
        tasks = _tasks(model.tasks, "Tasks") + _tasks(model.outside, " Out of domain")
        st.markdown(f"**{name}**. {tasks} {model.about}")
        st.dataframe(
            frame.style.set_properties(subset=values, color=printed_color()), hide_index=True, height="content",
            alt=f"Published figures of {method.title} on {name}",
        )  # fmt: skip
    papers = [key for key in SOURCES if any(row.source.startswith(key) for rows in found.values() for row in rows)]
    named = " ".join(f"{key}: {SOURCES[key]}." for key in papers)
    st.caption(f"{PUBLISHED}: as printed; each table's accuracies are of its own models and tasks. {TUNED} "
               + page_text.safe_text(named, 600))  # fmt: skip


def _tasks(names: Sequence[str], title: str) -> str:
    return f"{title}: {', '.join(names)}." if names else ""


def model_figures(method: Method, model: str) -> list[BeyondFigure]:
    """The figures of a model whose chains contain the method, then its reference models; empty without such a chain."""
    rows = [figure for figure in OTHER_NETWORK_FIGURES if figure.model == model]
    own = [row for row in rows if row.has_method(method.role, method.key)]
    return own + [row for row in rows if row.kind != MERGE] if own else []


def figures_table(rows: Sequence[BeyondFigure]) -> pd.DataFrame:
    """One row for each figure: chain, measures grouped by metric, source, and note if there is one."""
    import pandas as pd

    used = [name for name in MEASURES if any(name in row.values for row in rows)]
    heads = {name: (MEASURES[name].metric, MEASURES[name].title) for name in used}
    several = len({metric for metric, _ in heads.values()}) > 1
    lines = [
        {CHAIN: row.name}
        | {heads[name]: _format_figure(name, row.values[name], several) for name in used if name in row.values}
        | {SOURCE: row.source, NOTE: row.note or ("values not stated" if row.unstated else "")}
        for row in rows
    ]
    frame = pd.DataFrame(lines).fillna("")
    shown = [CHAIN, *heads.values(), SOURCE, *([NOTE] if frame[[NOTE]].any(axis=None) else [])]
    frame = frame[shown]
    frame.columns = pd.MultiIndex.from_tuples(shown)
    return frame


def _format_figure(name: str, value: float, several: bool) -> str:
    """A figure with the decimals of its table: BLIP's has two."""
    if MEASURES[name].metric != ACCURACY:
        return f"{value:.2f}"
    return f"{value:.2f}%" if several else f"{value:.1f}%"
