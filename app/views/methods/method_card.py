"""The card of one method: idea, parameters, choices of our implementation, and scores."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import samples
from app.reading.papers import published_tables
from app.session import address, benchmark_choice, pages, view_state
from app.views.methods import method_facts, paper_lines
from app.widgets import page_parts, paper_line, parameter_controls
from merging.base.text import plural
from merging.images.benchmarks.metrics import PER_TASK
from merging.methods.method import Merge, Method
from merging.recipes.papers.published_figures import SOURCES, Figure, list_figures_with_method
from merging.recipes.presets import PLUGIN
from merging.study.runs.run import Run

OTHER_MODELS_TEXT = "for other models on other images"
NORMALIZED_RULE = "Only normalized accuracies (Norm.) can be compared."
SAME_TOWER_TEXT = "for models of the same tower, {}"
CHAINS_KEY = "chains_table"  # of the box with the chains of the method and other steps
EXPERIMENT_RULE = "The table of the published experiment states whether experts and images are the same."


def draw_card(method: Method, shown_methods: Sequence[Method], runs: Sequence[Run], stored_runs: Sequence[Run]) -> None:
    """Draw everything about one method; ``shown_methods`` are those that Previous and Next step through."""
    with st.container(border=True, key="card"):
        _draw_head(method, shown_methods)
        with st.grid(2, min_column_width=380, gap="large"):
            with st.container():
                _draw_idea(method)
            with st.container():
                _draw_parameters(method)
        _draw_merge_links(method)
        _draw_figures(method, runs, stored_runs)


def _draw_head(method: Method, shown_methods: Sequence[Method]) -> None:
    keys = [shown_method.key for shown_method in shown_methods]
    index = keys.index(method.key) if method.key in keys else 0
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.header(method.title, anchor=False, width="stretch")
        for label, icon, offset, shortcut in (("Previous", "arrow_back", -1, "P"), ("Next", "arrow_forward", 1, "N")):
            st.button(
                label, icon=f":material/{icon}:", key=label, type="tertiary", shortcut=shortcut,
                disabled=len(keys) < 2, on_click=view_state.pick_available,
                args=(address.METHOD, keys[(index + offset) % len(keys)]),
            )  # fmt: skip
    is_elementwise = method.is_elementwise(method.params())
    badges = [f":blue-badge[{method.role}]", f":gray-badge[needs {page_text.needs_words(method)}]"]
    badges += [f":gray-badge[works {'in pieces' if is_elementwise else 'on whole tensors'}]"]
    badges += [f":violet-badge[{page_text.OWN_METHOD}]"] if method.origin else []
    badges += [":orange-badge[one model per task]"] if isinstance(method, Merge) and method.per_task else []
    if method.max_experts is not None:
        badges += [f":orange-badge[at most {plural(method.max_experts, 'expert')}]"]
    st.markdown(" ".join(badges))


def _draw_idea(method: Method) -> None:
    bounds = method.params.bounds()
    st.markdown(page_text.safe_text(method.summary, 600))
    with_values = bool(bounds) and st.session_state.get("filled", False)
    st.latex(
        parameter_controls.fill_formula(method.formula, bounds, method.params().values() if with_values else {})[0]
    )
    if bounds:
        st.toggle("With the default values", key="filled", persist_state="session")
    if method.origin:
        st.caption(f"An {page_text.OWN_METHOD}, not one of Mergescope: {page_text.safe_text(method.origin, 300)}")
    if method.variant:
        heading = "Choices of this implementation." if method.origin else "Choices of our implementation."
        st.markdown(f"**{heading}** {page_text.safe_text(method.variant, 1000)}")
    st.caption(f":material/menu_book: {page_text.safe_text(method.cite.text(), 400)}")


def _draw_parameters(method: Method) -> None:
    if method.params.bounds():
        table = method_facts.build_parameter_table(method)
        st.table(table, border="horizontal", hide_index=True, alt=f"Parameters of {method.title}")
    else:
        st.markdown("It has no parameters.")
    file, code = method_facts.read_code(method)
    title = f"Code, {page_text.safe_text(file, 300)}" if method.origin else f"Our code, in `{file}`"
    with st.expander(title, icon=":material/code:"):
        st.code(code, language="python")


def _draw_merge_links(method: Method) -> None:
    """Draw links to the Merge page with this method in the chain."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if chain := method_facts.make_default_chain(method):
            page_parts.draw_page_link(pages.MERGE, "Open in Merge", "merge", chain=chain)
        if method.key == PLUGIN[0]:  # the edit of the plug-in matrix
            page_parts.draw_page_link(
                pages.SCORES, "In front of every merge", "arrow_outward", **{address.SCORES_VIEW: "plug-in matrix"}
            )
        if presets := method_facts.find_presets(method):
            with st.popover(f"Combinations in the papers ({len(presets)})", icon=":material/playlist_play:"):
                for preset, chain in presets:
                    page_parts.draw_page_link(
                        pages.MERGE, page_text.safe_text(preset.name_in_lists()), "merge", chain=chain
                    )


def _draw_figures(method: Method, runs: Sequence[Run], stored_runs: Sequence[Run]) -> None:
    """Draw the papers' numbers for chains with the method, and our runs of the same chains."""
    st.subheader("The papers’ numbers and ours", anchor=False)
    is_merge = method.role == "merge"  # chains with edits before a merge have their own table
    figures, runs_of_method = list_figures_with_method(method.role, method.key), method_facts.find_runs(method, runs)
    rows_alone = published_tables.match_rows(
        [figure for figure in figures if not is_merge or (len(figure.chain) == 1 and not figure.adapt)],
        [run for run in runs_of_method if not is_merge or (len(run.chain) == 1 and not run.adapt)],
    )
    if rows_alone:
        _draw_table(
            rows_alone, f"Published accuracies of {method.title} beside ours; those marked * are computed", stored_runs
        )
    else:
        st.markdown(
            "No paper prints a figure that we know, and no run is stored. Open the method in Merge and press Run."
        )
    chains = [figure for figure in figures if is_merge and (len(figure.chain) > 1 or figure.adapt)]
    rows_in_chains = published_tables.match_rows(
        chains, [run for run in runs_of_method if is_merge and (len(run.chain) > 1 or run.adapt)]
    )
    if rows_in_chains:
        label = f"With other steps before it or on top ({len(rows_in_chains)})"
        with st.expander(label, icon=":material/account_tree:", key=CHAINS_KEY, on_change="rerun") as opened:
            if opened.open:
                alt = f"Published accuracies of chains of {method.title} and other steps beside ours"
                _draw_table(rows_in_chains, alt, stored_runs)
    if rows_alone or rows_in_chains:
        _draw_explanation(method, figures)
        paper_lines.draw_paper_lines([*rows_alone, *rows_in_chains], runs)


def _draw_table(rows: Sequence[published_tables.PaperRow], alt: str, stored_runs: Sequence[Run]) -> None:
    table = published_tables.paper_table(rows, stored_runs)
    printed_columns = [column for column in table.columns if column[0] in published_tables.TOWER_HEADS.values()]
    paper_line.draw_printed_table(table, printed_columns, alt, published_tables.column_settings(table))
    if ids := list(dict.fromkeys(row.run.id for row in rows if row.run and row.run.has_scores)):
        page_parts.draw_page_link(pages.SCORES, "Compare our runs in Scores", "monitoring", runs=",".join(ids))


def _draw_explanation(method: Method, figures: Sequence[Figure]) -> None:
    """Draw a caption on the two groups of columns and why they are separate."""
    sources = [f"{key}: {source}." for key, source in SOURCES.items() if any(f.source.startswith(key) for f in figures)]
    computed_note = page_text.safe_text(published_tables.COMPUTED_NOTE, 300)
    benchmark = page_text.safe_text(benchmark_choice.benchmark_in_words())
    tower = published_tables.benchmark_tower()
    models, rule = (SAME_TOWER_TEXT.format(tower), EXPERIMENT_RULE) if tower else (OTHER_MODELS_TEXT, NORMALIZED_RULE)
    st.caption(
        f"{published_tables.PUBLISHED}: as printed, {models}, eight data sets in domain and thirteen out of it. "
        f"{computed_note} "
        f"{published_tables.OURS}: {benchmark} on the {samples.scored_part()} of its data sets, with 95% intervals. "
        f"{rule} " + page_text.safe_text(" ".join(sources), 1000)
    )
    if isinstance(method, Merge) and method.per_task:
        st.caption(PER_TASK)
