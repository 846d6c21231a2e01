"""Ablations on Scores: a method, its variants and alternatives to it (LwPTV, Tables 3 and 8 to 14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import samples, score_tables
from app.reading.papers import published_tables
from app.session import address, benchmark_choice, pages
from app.views.scores import ablation_data, plugin_data
from app.views.scores.ablation_data import AblationMember
from app.widgets import chart_view, page_parts, paper_line
from app.widgets.jobs import compute_button
from merging.recipes.papers.ablations import LWPTV_FAMILY as FAMILY
from merging.recipes.papers.published_figures import IN_DOMAIN_TASKS, OUT_OF_DOMAIN_TASKS, SOURCES
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

SALIENCY_VIEW = "saliency by layer kind"  # the view of Features (LwPTV, Fig. 9), as in links


def draw_view(runs: Sequence[Run], stored_runs: Sequence[Run]) -> None:
    """Draw our means beside the paper's, the chart of both domains, and every data set."""
    members = ablation_data.find_members(plugin_data.pick_group(runs), FAMILY)
    with_runs = [member for member in members if member.run]
    st.header(f"{FAMILY.title}: what does each part contribute, and how do alternatives compare?", anchor=False)
    if with_runs:
        _draw_means(members, stored_runs)
        _draw_plane(with_runs, stored_runs)
        _draw_data_sets(with_runs, stored_runs)
    compute_button.draw_missing([member.recipe for member in members if not member.run], "ablations", stored_runs)
    _draw_printed_figures(members)
    _draw_kinds_link(with_runs)


def _draw_means(members: Sequence[AblationMember], stored_runs: Sequence[Run]) -> None:
    table = ablation_data.build_means_table(members, FAMILY, stored_runs)
    printed_columns = [column for column in table.columns if column[0] in published_tables.TOWER_HEADS.values()]
    alt = f"Averages of {FAMILY.title} and of its variants, published (computed if marked *) and measured"
    paper_line.draw_printed_table(table, printed_columns, alt, published_tables.column_settings(table))
    computed_note = page_text.safe_text(published_tables.COMPUTED_NOTE, 300)
    benchmark = page_text.safe_text(benchmark_choice.benchmark_in_words())
    st.caption(
        f"{published_tables.PUBLISHED}: as printed, on eight data sets in domain and thirteen out of it "
        f"({SOURCES['LwPTV']}). "
        f"{computed_note} {published_tables.OURS}: {benchmark} on the {samples.scored_part()} of its data sets, with "
        "95% intervals; changes "
        "are against the first row, in points. All rows are evaluated on the same images, so a change is more certain "
        "than the intervals suggest. Of the paper's numbers and ours, compare only the order."
    )
    st.caption(FAMILY.note)


def _draw_plane(members: Sequence[AblationMember], stored_runs: Sequence[Run]) -> None:
    """Draw the chart of both domains, with an arrow from the merge alone to the whole method."""
    runs, ends = [member.run for member in members if member.run], ablation_data.find_arrow_ends(members, FAMILY)
    table = ablation_data.name_rows(score_tables.averages_table(runs, stored_runs), members)
    caption = (
        "The arrow points from the merge alone to the merge with the whole method. Bars are 95% intervals. "
        f"{score_tables.describe_averages(table)}"
    )
    claims = paper_line.claims_in_words("scores/ablations")
    chart_view.draw_chart(
        "id_ood_scatter", table, name="scores_ablations", arrows=ends, caption=caption, claims=claims, sources=runs
    )


def _draw_data_sets(members: Sequence[AblationMember], stored_runs: Sequence[Run]) -> None:
    """Draw every data set: a chart of three members, and tables of all."""
    chart_view.draw_question("task_accuracy")
    variants = {member.title: member for member in members if member.key not in (FAMILY.base, FAMILY.whole)}
    chosen_runs = [member.run for member in members if member.key in (FAMILY.base, FAMILY.whole) and member.run]
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        if variants:
            title = st.selectbox("Compare with", list(variants), key=address.VARIANT, bind=address.BIND, width=420)
            chosen_runs += [run for run in (variants[title].run,) if run]
        relative = st.toggle("Relative to each task's own expert", key=address.RELATIVE_ACCURACY, bind=address.BIND)
    table = ablation_data.name_rows(score_tables.accuracies_table(chosen_runs, stored_runs), members)
    colors = [run.id for run in chosen_runs]
    chart_view.draw_chart(
        "task_accuracy", table, name="scores_ablations_tasks", question_drawn=True, normalized=relative, runs=colors,
        caption=score_tables.describe_accuracies(table),
    )  # fmt: skip
    intervals = st.toggle("Numbers with 95% intervals", key=address.INTERVALS, bind=address.BIND)
    for is_in_domain, domain in ((True, "in domain"), (False, "out of domain")):
        _draw_numbers(
            ablation_data.build_data_set_table(members, stored_runs, is_in_domain, intervals), domain, intervals
        )
    st.caption(
        f"Accuracy in percent on the {samples.scored_part()}, n = {ablation_data.images_in_words(members)} images of "
        "each data set; the mean is over data sets, each with the same weight."
    )


def _draw_numbers(table: pd.DataFrame, domain: str, intervals: bool) -> None:
    st.markdown(f"**Every data set {domain}**")
    label, *data_sets = table.columns
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    cell = text(alignment="right") if intervals else number(format="%.1f%%")
    columns = {label: text(width=200, pinned=True), **dict.fromkeys(data_sets, cell)}
    page_parts.draw_table(table, f"Accuracy of every variant on every data set {domain}", columns)


def _draw_printed_figures(members: Sequence[AblationMember]) -> None:
    """Draw the paper's printed figures on its own data sets."""
    with st.expander(
        f"The paper's own data sets, as printed ({published_tables.main_tower()})", icon=":material/menu_book:"
    ):
        for title, names, field in (
            ("In domain", IN_DOMAIN_TASKS, "tasks"),
            ("Out of domain", OUT_OF_DOMAIN_TASKS, "outside"),
        ):
            st.markdown(f"**{title}**")
            table = ablation_data.build_printed_table(members, names, field)
            columns = dict.fromkeys(table.columns[2:], st.column_config.NumberColumn(format="%.1f%%"))
            columns[table.columns[0]] = st.column_config.TextColumn(width=200, pinned=True)
            alt = f"Published accuracy of every variant, {title.lower()}"
            paper_line.draw_printed_table(table, table.columns[2:], alt, columns)
        st.caption(f"{published_tables.PUBLISHED}. {SOURCES['LwPTV']}. Averages are as printed.")


def _draw_kinds_link(members: Sequence[AblationMember]) -> None:
    """Draw a link to the analysis of saliency by kind of layer (LwPTV, Fig. 9)."""
    run_of_method = next((member.run for member in members if member.key == FAMILY.whole and member.run), None)
    st.header("Does pruning prefer a kind of layer?", anchor=False)
    st.markdown(
        "The Features page shows the saliency of one task's tensors by kind (attention, MLP and all others), with the "
        "number that the mask keeps of each."
    )
    query = {address.FEATURES_VIEW: SALIENCY_VIEW} | ({address.RUNS: run_of_method.id} if run_of_method else {})
    page_parts.draw_page_link(pages.FEATURES, "Saliency by kind of layer", "bar_chart", **query)
