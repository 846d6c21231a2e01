"""The runs on Models & runs: a table to choose from, and actions on the chosen runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.runs import run_names
from app.session import run_choice
from app.views.runs import run_actions, run_exports, run_filters, run_lineage, run_rows, run_scores
from app.widgets import page_parts, run_picker
from merging.base.files.short_digest import short_digest
from merging.study.runs.run import THIS_MACHINE, Run
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

PICKER_KEY, TABLE_VERSION_KEY = "chosen_runs", "runs_table_number"


def draw_runs(stored_runs: Sequence[Run]) -> None:
    """Draw the table of runs, then the actions, scores, exports and lineage of the chosen runs."""
    runs = page_data.list_merges(stored_runs)
    if not runs:
        page_parts.draw_no_runs()
        page_parts.draw_link()
        return
    by_id = {run.id: run for run in runs}
    chosen_ids, missing_ids = run_choice.resolve_selected_runs(list(by_id))
    if missing_ids:
        run_picker.draw_missing_runs(missing_ids)
        return
    run_actions.draw_notices()
    shown_runs = run_filters.draw_filters(runs, "listed")
    if shown_runs:
        _draw_table(shown_runs, chosen_ids, run_rows.build_rows(shown_runs, stored_runs, runs))
    _draw_other_count()
    labels = run_names.label_runs(runs)
    st.session_state[PICKER_KEY] = chosen_ids  # the callbacks stored the user's choice
    st.multiselect(
        "Chosen runs", list(by_id), format_func=labels.__getitem__, key=PICKER_KEY,
        on_change=_select_from_picker, placeholder="Choose rows of the table, or runs here",
    )  # fmt: skip
    selected = [by_id[run_id] for run_id in chosen_ids]
    if not selected:
        st.caption("Choose one run to see its lineage and to export it; choose two to compare them.")
        page_parts.draw_link()
        return
    for run in selected:
        run_picker.draw_cautions(run, page_text.safe_text(labels[run.id], 120))
    run_actions.draw_actions(selected)
    if len(selected) == 1:
        run_scores.draw_scores(selected[0])
    run_exports.draw_exports(selected)
    run_lineage.draw_lineage(selected[0], stored_runs)


def _draw_other_count() -> None:
    """Draw the number of runs that are not in the table because they were scored on another benchmark."""
    if count := sum(
        not page_data.belongs_to_benchmark(run)
        for run in page_data.store().list_runs()
        if run.provenance == THIS_MACHINE
    ):
        verb = "is" if count == 1 else "are"
        st.caption(
            f":material/dataset: {plural(count, 'more run')} on this machine {verb} scored on other benchmarks. "
            "Choose another benchmark in the view “data”."
        )


def _draw_table(runs: Sequence[Run], chosen_ids: Sequence[str], rows: pd.DataFrame) -> None:
    """Draw the table with one row for each run, in which rows can be selected."""
    ids = [run.id for run in runs]
    chosen_rows = [ids.index(run_id) for run_id in chosen_ids if run_id in ids]
    hidden_ids = [run_id for run_id in chosen_ids if run_id not in ids]  # a filter hides them; they stay chosen
    # The key changes with the list of runs: Streamlit stores a selection by row number.
    key = f"runs_{short_digest(' '.join(ids))}_{st.session_state.get(TABLE_VERSION_KEY, 0)}"
    run_rows.draw_table(
        rows, "listed", key=key, on_select=partial(_select_from_table, key, ids, hidden_ids),
        selection_mode="multi-row",
        selection_default={"selection": {"rows": chosen_rows, "columns": [], "cells": []}},
    )  # fmt: skip


def _select_from_table(key: str, ids: Sequence[str], hidden_ids: Sequence[str]) -> None:
    """Callback: choose the selected rows, beside the chosen runs that a filter hides."""
    rows = st.session_state[key].selection.rows
    run_choice.select_runs([*hidden_ids, *(ids[row] for row in rows if row < len(ids))])


def _select_from_picker() -> None:
    """Callback: choose the runs in the picker, and redraw the table with the rows of these runs selected."""
    run_choice.select_runs(st.session_state[PICKER_KEY])
    st.session_state[TABLE_VERSION_KEY] = st.session_state.get(TABLE_VERSION_KEY, 0) + 1
