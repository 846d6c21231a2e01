"""The plug-in matrix on Scores: every merge without and with one edit in front (LwPTV, Fig. 1 and Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import samples
from app.reading.papers import published_tables as published_rows
from app.session import address, view_state
from app.views.scores import plugin_data
from app.widgets import chart_view, page_parts, paper_line
from app.widgets.jobs import compute_button
from merging.base.files import tables
from merging.study.runs.edit_pairs import EditPairRow, LeadingEdit
from merging.study.runs.run import Run
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

PICKER_KEY = "plugin_front"
NO_PAIR = "No two stored runs differ by exactly the edit “{}” in front. The page shows {} instead."
CHANGE_HELP = "In percentage points, with the edit minus without it."
PAPER_CHANGE_HELP = "The paper prints the two averages; the app computes their difference."


def draw_view(runs: Sequence[Run], stored_runs: Sequence[Run]) -> None:
    """Draw the chart, its numbers, and the merges that are not computed yet."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        group = plugin_data.pick_group(runs)
        edit = _pick_edit(group)
    pairs = plugin_data.find_edit_pairs(group, edit)
    if complete_pairs := [pair for pair in pairs if pair.plain and pair.plugged]:
        _draw_matrix(complete_pairs, edit, stored_runs)
    else:
        st.info("No merge has been run both with and without this edit. Compute some below.")
    _draw_refused(pairs)
    compute_button.draw_missing([recipe for pair in pairs for recipe in pair.missing], "plugin", stored_runs)


def _pick_edit(runs: Sequence[Run]) -> LeadingEdit:
    """Draw the picker of the edit in front; returns the edit. A link may name an edit without a pair of runs."""
    choices = plugin_data.find_leading_edits(runs)
    chosen_text, missing_text = view_state.resolve_available(address.EDIT, list(choices), next(iter(choices)))
    st.session_state[PICKER_KEY] = chosen_text
    st.selectbox(
        "Edit in front of the merge", list(choices), key=PICKER_KEY, width=420,
        format_func=lambda text: plugin_data.edit_in_words(choices[text]),
        on_change=view_state.pick_available_from, args=(address.EDIT, PICKER_KEY),
        help="All edits by which two stored runs differ.",
    )  # fmt: skip
    if missing_text:
        sentence = NO_PAIR.format(
            page_text.safe_text(missing_text, 80), page_text.safe_text(plugin_data.edit_in_words(choices[chosen_text]))
        )
        st.warning(sentence, icon=":material/link_off:")
    return choices[chosen_text]


def _draw_matrix(pairs: Sequence[EditPairRow], edit: LeadingEdit, stored_runs: Sequence[Run]) -> None:
    points = plugin_data.build_pair_points(pairs, stored_runs)
    table = plugin_data.build_matrix_table(points, pairs)
    name = clean_text(plugin_data.make_edit_name(edit), 60)
    summary = _changes_in_words(table, name)
    st.markdown(summary)
    runs = [run for pair in pairs for run in (pair.plain, pair.plugged) if run]
    for sentence in page_text.marks_in_words(runs):
        page_parts.draw_caution(sentence, st.caption)
    caption = (
        "Each arrow starts at a merge alone (open mark) and ends at the same merge of the same experts with the edit "
        "in front (filled mark). Gray bars are 95% intervals; both ends are evaluated on the same images, so a change "
        "is more certain than the intervals suggest. The merges keep their own parameters; none is tuned for the edit."
    )
    chart_view.draw_chart(
        "plugin_arrows", points, name="scores_plugin", edit=name, caption=caption, description=summary, sources=runs,
        claims=paper_line.claims_in_words("scores/plugin_matrix"),
    )  # fmt: skip
    _draw_table(table, name)


def _changes_in_words(table: pd.DataFrame, name: str) -> str:
    """How often the edit helps, and the median changes; a mean would depend on single outliers."""
    changes = {title: table[title, "Change"] for title in plugin_data.AVERAGE_TITLES.values()}
    unharmed = int((changes["H-score"] >= 0).sum())
    medians = ", ".join(f"{title.lower()} {change.median():+.1f}" for title, change in changes.items())
    return (
        f"With **{page_text.safe_text(name)}** in front, the H-score of {unharmed} of {plural(len(table), 'merge')} "
        f"does not drop. Median change in points: {page_text.safe_text(medians.replace('h-score', 'H-score'), 120)}."
    )


def _draw_table(table: pd.DataFrame, name: str) -> None:
    st.header("Every merge, without and with it", anchor=False)
    printed_columns = [
        column for column in table.columns if column[0] == published_rows.TOWER_HEADS[published_rows.main_tower()]
    ]
    alt = f"Averages of every merge without and with {name} in front"
    columns = {index + 1: _make_column(*column) for index, column in enumerate(table.columns)}
    paper_line.draw_printed_table(table, printed_columns, alt, columns)
    flat_table = table.set_axis([", ".join(filter(None, column)) for column in table.columns], axis=1)
    st.download_button(
        "Table (CSV)", lambda: tables.csv_bytes(flat_table), "scores_plugin_table.csv", "text/csv", on_click="ignore",
        type="tertiary", icon=":material/table:",
    )  # fmt: skip
    note = (
        f" {published_rows.PUBLISHED}: differences of the averages that the paper prints, for other experts on other "
        "images; compare only their signs and order."
        if printed_columns
        else ""
    )
    st.caption(
        f"Means over data sets on the {samples.scored_part()}, in percent; changes in points. Click a column head to "
        f"sort. Images are counted over all data sets.{note}"
    )


def _make_column(group: str, name: str) -> Any:
    if not group:
        return st.column_config.TextColumn(pinned=True, width=210)
    if name == "Images":
        return st.column_config.NumberColumn(format="localized")
    if group in plugin_data.AVERAGE_TITLES.values():
        change = name == "Change"
        return st.column_config.NumberColumn(
            format="%+.1f" if change else "%.1f%%", help=CHANGE_HELP if change else None
        )
    if group == published_rows.TOWER_HEADS[published_rows.main_tower()]:
        return st.column_config.NumberColumn(format="%+.1f", help=f"{CHANGE_HELP} {PAPER_CHANGE_HELP}")
    return st.column_config.TextColumn(alignment="right")


def _draw_refused(pairs: Sequence[EditPairRow]) -> None:
    """Draw the merges that the edit cannot be combined with, and why."""
    for pair in pairs:
        if pair.refused:
            st.markdown(
                f":material/block: **{page_text.safe_text(pair.title)}**: {page_text.safe_text(pair.refused, 300)}"
            )
