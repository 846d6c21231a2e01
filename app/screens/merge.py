"""Merge: choose experts, build a chain of edits, a merge and an adapt, see its cost, run it, see the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from app import text
from app.reading import data
from app.reading import recipes as recipes_reading
from app.session import state
from app.session.draft import Draft, command
from app.views.merge import builder, result
from app.views.models import model_sets
from app.widgets import fit_report, page, preview
from app.widgets.controls import filled_formula
from app.widgets.jobs import own_machine, tray
from merging.base.errors import MergingError, StoreError
from merging.base.free_memory import free_memory
from merging.base.text import duration_text, estimated_from, size_text
from merging.methods import registry
from merging.recipes import chain_rules
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run

page.heading(
    "Merge",
    "Choose experts, chain edits, one merge and perhaps an adapt, and see what the result does in and out of domain.",
)


def formulas(recipe: Recipe) -> None:
    """The formulas of the chain, with the chosen values."""
    for method, step in recipe.stages:
        formula, rest = filled_formula(method.formula, step.params.bounds(), step.params.values())
        st.markdown(f"**{method.title}**: {method.summary}")
        st.latex(formula)
        if rest:
            st.caption("Not in the formula: " + ", ".join(text.safe_text(words) for words in rest) + ".")


def ready(recipe: Recipe) -> bool:
    """The fit report, and what the chain lacks; returns whether the merge can run."""
    if not fit_report.show(
        recipe.pretrained, dict(recipe.experts), "merge", recipe.activation, recipe.family, recipe.vocabulary
    ):
        return False
    if lacks := fit_report.lacking(recipe):
        st.error(text.safe_text(lacks, 600), icon=":material/block:")
    return not lacks


def costs(recipe: Recipe, stored: Sequence[Run]) -> None:
    """Time, memory and data that the merge needs."""
    needs = sorted(str(need) for need in recipe.needs)
    data_needed = f"It needs {text.listed(needs)}." if needs else "It needs no data."
    estimate = recipes_reading.estimate(recipe, stored)
    scored = "" if data.not_evaluated(recipe.pretrained) else " with evaluation"
    source = estimated_from(estimate.learned, "run")
    st.markdown(
        f":material/timer: About **{duration_text(estimate.seconds)}** of computing{scored} ({source}), after a few "
        f"seconds to start; up to **{size_text(estimate.anonymous_bytes)}** of memory, "
        f"{size_text(estimate.reads_bytes)} to read. {data_needed}"
    )
    if too_large := estimate.too_large(free_memory(), recipe):
        st.error(text.safe_text(too_large, 900), icon=":material/memory:")


def recipe_files(recipe: Recipe) -> None:
    """The recipe as a file and as a command line."""
    with st.expander("Recipe as YAML and as a command line", icon=":material/receipt_long:"):
        st.code(recipe.to_yaml(), language="yaml")
        st.download_button("Download recipe.yaml", recipe.to_yaml, "recipe.yaml", "text/yaml", on_click="ignore")
        st.code(command(recipe), language="bash", wrap_lines=True)


def outcome(run_id: str, stored: Sequence[Run]) -> None:
    """The progress or result of the run started last."""
    try:
        job = data.runner().get(run_id)
        if job.words and job.state == "done":  # only the files were read so far; now comes the merge
            job = data.runner().submit(Recipe.from_yaml(job.recipe_yaml))
            state.watch(job.subject)
    except StoreError:  # it was dismissed
        return
    if job.state == "done":
        result.view(data.store().run(run_id), stored)
    elif job.live:
        st.markdown("Running. You can go on working: the tray on the left shows the progress on every page.")
    else:
        tray.show(job, "merge")


def started_from(recipe: Recipe) -> Run | None:
    """The run that was started last, unless it is this recipe's own."""
    run = data.store().find(state.watched() or "")
    return run if run is not None and run.recipe is not None and run.recipe.steps != recipe.steps else None


def act(draft: Draft, references: Mapping[str, str], stored: Sequence[Run]) -> None:
    """The right-hand side: cost and result first, visible without scrolling, then the formulas."""
    recipe = draft.recipe(references)
    recipe = replace(recipe, title=recipe.title or text.chain_title(recipe))
    mergeable = ready(recipe)
    if mergeable:
        for sentence in chain_rules.doubts([(method, step.params) for method, step in recipe.stages]):
            st.caption(f":material/warning: {text.safe_text(sentence, 300)}")
        costs(recipe, stored)
        model_sets.evaluation(recipe.pretrained, dict(recipe.experts))
    if not own_machine.recipe_instead(recipe, "merge") and st.button(
        "Run", type="primary", icon=":material/play_arrow:", disabled=not mergeable, key="run_button"
    ):
        state.watch(fit_report.submit(recipe).id)
        st.rerun()  # so that the tray, which is drawn last, follows the job from now on
    if mergeable and not data.not_evaluated(recipe.pretrained):
        preview.show(recipe, started_from(recipe), "merge")
    if watched := state.watched():
        outcome(watched, stored)
    formulas(recipe)
    recipe_files(recipe)


registry.methods()  # loads torch, with the heading on the page already
models = builder.choose_models()
experts = dict(models.experts)
stored = data.stored()
draft = builder.draft(models)
builder.presets(draft, experts)
with st.grid(2, min_column_width=400, gap="large"):
    with st.container():
        valid = builder.all_controls(draft, experts, data.own_accuracy(models, stored))
    with st.container(border=True):
        try:
            if valid:
                act(draft, experts, stored)
            else:
                st.info("Fix the value marked in red; then the recipe can run.")
        except MergingError as error:
            st.error(text.safe_text(error, 1000), icon=":material/error:")
state.link_chain(draft.chain(), [] if len(draft.experts) == len(experts) else draft.experts)
page.link()
