"""The papers' figures of a method on networks other than CLIP: a table for each model, with tasks and measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading.papers.published_tables import PUBLISHED
from app.session import address, view_state
from app.widgets import paper_line
from merging.methods.method import Method
from merging.recipes.papers.other_networks import ACCURACY, MEASURES, MODELS, OTHER_NETWORK_FIGURES, BeyondFigure
from merging.recipes.papers.published_figures import MERGE, SOURCES
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

TOGGLE_HELP = "Also show the papers' figures for DeBERTa, T5, Llama and BLIP."
TUNED_NOTE = "Tuned: parameters chosen on validation data."
CHAIN_COLUMN, SOURCE_COLUMN, NOTE_COLUMN = ("", "Chain"), ("", "Source"), ("", "Note")


def is_shown(network: str, stored_runs: Sequence[Run]) -> bool:
    """Whether these figures are shown.

    Draws a toggle if a model or a stored run is of a network other than CLIP (``network``), or if a link asks for them.
    """
    requested = view_state.value_from_link(address.OTHER_NETWORKS) or st.session_state.get(address.OTHER_NETWORKS)
    if not (network or requested or any(run.network for run in stored_runs)):
        return False
    return st.toggle("Beyond CLIP", bool(network), key=address.OTHER_NETWORKS, bind=address.BIND, help=TOGGLE_HELP)


def draw_tables(method: Method, network: str) -> None:
    """Draw a table for each model that has figures of the method, models of the open network first."""
    models = sorted(MODELS, key=lambda name: MODELS[name].network != network)
    figures_by_model = {name: rows for name in models if (rows := find_figures(method, name))}
    if not figures_by_model:
        return
    st.subheader("The papers’ numbers beyond CLIP", anchor=False)
    for name, rows in figures_by_model.items():
        model, frame = MODELS[name], build_figures_table(rows)
        values = [column for column in frame.columns if column[0]]
        tasks = _tasks_in_words(model.tasks, "Tasks") + _tasks_in_words(model.outside, " Out of domain")
        st.markdown(f"**{name}**. {tasks} {model.about}")
        paper_line.draw_printed_table(frame, values, f"Published figures of {method.title} on {name}")
    papers = [
        key for key in SOURCES if any(row.source.startswith(key) for rows in figures_by_model.values() for row in rows)
    ]
    sources = " ".join(f"{key}: {SOURCES[key]}." for key in papers)
    st.caption(f"{PUBLISHED}: as printed; each table's accuracies are of its own models and tasks. {TUNED_NOTE} "
               + page_text.safe_text(sources, 600))  # fmt: skip


def _tasks_in_words(names: Sequence[str], title: str) -> str:
    return f"{title}: {', '.join(names)}." if names else ""


def find_figures(method: Method, model: str) -> list[BeyondFigure]:
    """The figures of a model whose chains contain the method, then its reference models; empty without such a chain."""
    rows = [figure for figure in OTHER_NETWORK_FIGURES if figure.model == model]
    figures_with_method = [row for row in rows if row.has_method(method.role, method.key)]
    return figures_with_method + [row for row in rows if row.kind != MERGE] if figures_with_method else []


def build_figures_table(rows: Sequence[BeyondFigure]) -> pd.DataFrame:
    """One row for each figure: chain, measures grouped by metric, source, and note if there is one."""
    import pandas as pd

    measures = [name for name in MEASURES if any(name in row.values for row in rows)]
    columns_by_measure = {name: (MEASURES[name].metric, MEASURES[name].title) for name in measures}
    has_several_metrics = len({metric for metric, _ in columns_by_measure.values()}) > 1
    lines = [
        {CHAIN_COLUMN: row.name}
        | {
            columns_by_measure[name]: _format_figure(name, row.values[name], has_several_metrics)
            for name in measures
            if name in row.values
        }
        | {SOURCE_COLUMN: row.source, NOTE_COLUMN: row.note or ("values not stated" if row.unstated else "")}
        for row in rows
    ]
    frame = pd.DataFrame(lines).fillna("")
    shown_columns = [CHAIN_COLUMN, *columns_by_measure.values(), SOURCE_COLUMN]
    shown_columns += [NOTE_COLUMN] if frame[[NOTE_COLUMN]].any(axis=None) else []
    frame = frame[shown_columns]
    frame.columns = pd.MultiIndex.from_tuples(shown_columns)
    return frame


def _format_figure(name: str, value: float, has_several_metrics: bool) -> str:
    """A figure with the decimals of its table: BLIP's has two."""
    if MEASURES[name].metric != ACCURACY:
        return f"{value:.2f}"
    return f"{value:.2f}%" if has_several_metrics else f"{value:.1f}%"
