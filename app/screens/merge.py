"""Merge: choose experts, build a chain of edits, a merge and an adapt, see its cost, run it, see the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from app import page_text
from app.reading import page_data, previews
from app.reading import recipes as recipes_reading
from app.session import view_state
from app.session.draft import Draft, command_lines
from app.views.merge import expected_loss, recipe_builder, started_run
from app.views.models import model_sets
from app.widgets import fit_report, page_parts
from app.widgets.jobs import measure_button, refused_action
from app.widgets.panels import preview_panel
from app.widgets.parameter_controls import fill_formula
from merging.base.errors import MergingError
from merging.base.free_memory import free_memory
from merging.base.text import duration_text, estimate_basis, size_text
from merging.methods import registry
from merging.recipes import chain_rules
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run

page_parts.draw_heading(
    "Merge",
    "Choose experts, chain edits, one merge and perhaps an adapt, and see what the result does in and out of domain.",
)


def draw_formulas(recipe: Recipe) -> None:
    """The formulas of the chain, with the chosen values."""
    for method, step in recipe.stages:
        formula, without_symbol = fill_formula(method.formula, step.params.bounds(), step.params.values())
        st.markdown(f"**{page_text.title_with_owner(method)}**: {page_text.safe_text(method.summary, 600)}")
        st.latex(formula)
        if without_symbol:
            st.caption("Not in the formula: " + ", ".join(page_text.safe_text(words) for words in without_symbol) + ".")


def draw_fit(recipe: Recipe) -> bool:
    """The fit report, and missing inputs of the chain; returns whether the merge can run."""
    if not fit_report.draw_report(
        recipe.pretrained, dict(recipe.experts), "merge", recipe.activation, recipe.family, recipe.vocabulary
    ):
        return False
    if missing_inputs := fit_report.find_missing_needs(recipe):
        st.error(page_text.safe_text(missing_inputs, 600), icon=":material/block:")
    return not missing_inputs


def draw_costs(recipe: Recipe, stored: Sequence[Run]) -> None:
    """Time, memory and data that the merge needs."""
    needs = sorted(str(need) for need in recipe.needs)
    data_needed = f"It needs {page_text.join_words(needs)}." if needs else "It needs no data."
    estimate = recipes_reading.estimate_recipe(recipe, stored)
    evaluated = "" if page_data.why_not_evaluated(recipe.pretrained) else " with evaluation"
    source = estimate_basis(estimate.is_from_own_runs, "run")
    st.markdown(
        f":material/timer: About **{duration_text(estimate.seconds)}** of computing{evaluated} ({source}), after a few "
        f"seconds to start; up to **{size_text(estimate.anonymous_bytes)}** of memory, "
        f"{size_text(estimate.reads_bytes)} to read. {data_needed}"
    )
    if memory_problem := estimate.explain_too_large(free_memory(), recipe):
        st.error(page_text.safe_text(memory_problem, 900), icon=":material/memory:")


def draw_run_button(recipe: Recipe, mergeable: bool, stored: Sequence[Run]) -> None:
    """The button that starts the merge, and beside it whether the measurements that pages show follow it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        started = st.button(
            "Run", type="primary", icon=":material/play_arrow:", disabled=not mergeable, key="run_button"
        )
        keys = measure_button.draw_measure_switch(recipe, stored) if mergeable else []
    if started:
        job = fit_report.submit_recipe(recipe)
        measure_button.order_after(job, keys)
        view_state.watch_run(job.id)
        st.rerun()  # so that the tray, which is drawn last, follows the job


def draw_recipe_files(recipe: Recipe) -> None:
    """The recipe as a file and as a command line."""
    with st.expander("Recipe as YAML and as a command line", icon=":material/receipt_long:"):
        st.code(recipe.to_yaml(), language="yaml")
        st.download_button("Download recipe.yaml", recipe.to_yaml, "recipe.yaml", "text/yaml", on_click="ignore")
        st.code(command_lines(recipe), language="bash", wrap_lines=True)


def draw_expected_loss(recipe: Recipe, references: Mapping[str, str]) -> None:
    """The expected loss, or why a model of the team stops it; the merge of the chosen experts can still run."""
    try:
        expected_loss.draw_expected_loss(recipe, references)
    except MergingError as error:
        st.caption(f":material/error: No expected loss. {page_text.safe_text(error, 600)}")


def find_started_run(recipe: Recipe, started: Sequence[str]) -> Run | None:
    """The last started run, unless it is the run of this recipe."""
    run = page_data.store().find(next(iter(started), ""))
    return run if run is not None and run.recipe is not None and run.recipe.steps != recipe.steps else None


def draw_right_side(draft: Draft, references: Mapping[str, str], stored: Sequence[Run]) -> None:
    """The right-hand side: cost and result first, visible without scrolling, then the formulas."""
    recipe = draft.recipe(references)
    recipe = replace(recipe, title=recipe.title or page_text.chain_title(recipe))
    mergeable = draw_fit(recipe)
    if mergeable:
        for sentence in chain_rules.list_doubts([(method, step.params) for method, step in recipe.stages]):
            st.caption(f":material/warning: {page_text.safe_text(sentence, 300)}")
        draw_costs(recipe, stored)
        model_sets.draw_evaluation(recipe.pretrained, dict(recipe.experts))
        if not page_data.why_not_evaluated(recipe.pretrained):
            draw_expected_loss(recipe, references)
    if not refused_action.draw_recipe_refusal(recipe, "merge"):
        draw_run_button(recipe, mergeable, stored)
    if started := view_state.resolve_started():
        started_run.draw_outcome(started, stored)
    if mergeable and not page_data.why_not_evaluated(recipe.pretrained):
        seconds = previews.first_answer_seconds(recipes_reading.estimate_recipe(recipe, stored))
        preview_panel.draw_preview(recipe, find_started_run(recipe, started), "merge", seconds)
    draw_formulas(recipe)
    draw_recipe_files(recipe)


registry.reload_methods()  # loads torch, after the heading is on the page
models = recipe_builder.choose_models()
experts = dict(models.experts)
stored = page_data.stored_runs()
draft = recipe_builder.find_current_draft(models)
recipe_builder.draw_presets(draft, experts)
with st.grid(2, min_column_width=320, gap="large"):
    with st.container():
        valid = recipe_builder.draw_builder(draft, experts, page_data.expert_accuracies(models, stored))
    with st.container(border=True):
        try:
            if valid:
                draw_right_side(draft, experts, stored)
            else:
                st.info("Fix the value marked in red; then the recipe can run.")
        except MergingError as error:
            st.error(page_text.safe_text(error, 1000), icon=":material/error:")
view_state.link_chain(draft.chain(), experts=[] if len(draft.experts) == len(experts) else draft.experts)
page_parts.draw_link()
