"""The panel that turns painted factors into a run: the rules in words and as YAML, the preview, a link to Merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from app import page_text
from app.reading import recipes
from app.session import pages, painting_state
from app.session.draft import Draft, DraftStep, parse_chain
from app.session.painting import Painting
from app.views.masks import paint_link
from app.views.masks.paint_sheet import PaintSheet
from app.widgets import page_parts
from app.widgets.panels import preview_panel
from merging.base.errors import MergingError
from merging.methods import registry
from merging.methods.factor_rules import FactorRule
from merging.methods.params import TABLE
from merging.recipes.recipe import Recipe
from viz.figure_text import plural

MANUAL_EDIT = "manual"  # the edit that applies factors


def make_painted_recipe(sheet: PaintSheet, rules: Sequence[FactorRule], chain: str = "") -> Recipe:
    """The run's recipe with these rules instead of its edits, or the ``chain`` with the rules in it.

    ``chain`` is the text of the chain on Merge from which painting was opened, empty if it was opened on Masks. The
    rules replace its first manual edit, or come first.

    Raises:
        MergingError: there are too many rules, or the chain is invalid.
    """
    run_recipe = sheet.run.recipe
    assert run_recipe is not None  # only merges have a canvas
    bounds = registry.find_edit(MANUAL_EDIT).params.bounds()
    (name,) = (name for name, bound in bounds.items() if bound.kind == TABLE)  # the parameter that holds rules
    step = DraftStep(MANUAL_EDIT, {name: rules})
    if not chain:
        draft = replace(Draft.from_recipe(run_recipe), edits=[step], title="")
        return draft.recipe(dict(run_recipe.experts))
    draft = parse_chain(chain, run_recipe.pretrained, list(dict(run_recipe.experts)))
    positions = [
        index for index, edit in enumerate(draft.edits) if edit.key == MANUAL_EDIT and not edit.is_after_merge()
    ]
    draft.edits[slice(positions[0], positions[0] + 1) if positions else slice(0, 0)] = [step]
    return draft.recipe(dict(run_recipe.experts))


def draw_run_panel(sheet: PaintSheet, painting: Painting) -> None:
    """Draw the preview, the link that merges the painting, the rules and the recipe."""
    rules = paint_link.fit_rules(painting.factors, sheet.experts, sheet.parameters)
    recipe, problem = None, ""
    try:
        recipe = make_painted_recipe(sheet, rules, painting_state.painted_chain())
    except MergingError as error:
        problem = str(error)
    if rules and recipe:
        preview_panel.draw_preview(recipe, sheet.run, "paint")
        _draw_merge_link(sheet, recipe)
    _draw_rules(rules, painting, recipe)
    if problem:
        st.warning(f"These factors cannot be run: {page_text.safe_text(problem, 300)}", icon=":material/block:")
    elif not rules:
        st.caption("Every factor is 1, so there is nothing to run yet.")


def _draw_rules(rules: Sequence[FactorRule], painting: Painting, recipe: Recipe | None) -> None:
    """Draw the rules in words, simplified or stroke by stroke, and the recipe as YAML."""
    with st.expander(f"{plural(len(rules), 'rule')} that yield these factors", icon=":material/format_list_numbered:"):
        is_simplified = st.toggle(
            "Simplify", True, key="paint_simplify", help="Show a short list of rules instead of every stroke."
        )
        lines = [rule.describe() for rule in rules] if is_simplified else [stroke.words for stroke in painting.strokes]
        empty_note = "Every factor is 1." if is_simplified else "No stroke yet."
        st.markdown(
            "\n".join(f"{i}. {page_text.safe_text(line, 300)}" for i, line in enumerate(lines, 1)) or empty_note
        )
        if rules and recipe:
            st.caption("Later rules paint over earlier ones. The recipe, to copy:")
            st.code(recipe.to_yaml(), language="yaml", wrap_lines=True, height=260)


def _draw_merge_link(sheet: PaintSheet, recipe: Recipe) -> None:
    if (query := recipes.merge_query(recipe)) is None:
        st.caption("The models of this run are not among those that Merge offers; use the recipe above.")
        return
    page_parts.draw_page_link(pages.MERGE, "Make it a run", "play_arrow", **query)
    if painting_state.painted_chain():
        st.caption(
            f"Opens Merge with the chain that you started from: "
            f"{page_text.safe_text(page_text.chain_words(recipe), 300)}."
        )
        return
    replaced = [page_text.method_title(step.key) for step in sheet.run.recipe.edits]
    position = f" in place of {page_text.join_words(replaced)}" if replaced else " in front"
    st.caption(
        f"Opens Merge with this run's merge, {page_text.method_title(recipe.merge.key)}, and these factors{position}."
    )
