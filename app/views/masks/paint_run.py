"""From painted factors to a run: the rules in words and as YAML, the recipe on Merge, and its preview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from app import text
from app.reading import recipes
from app.session import pages, painted
from app.session.draft import Draft, DraftStep, parse_chain
from app.session.painting import Painting
from app.views.masks import paint_link
from app.views.masks.paint_sheet import Sheet
from app.widgets import page, preview
from merging.base.errors import MergingError
from merging.methods import registry
from merging.methods.factor_rules import FactorRule
from merging.methods.params import TABLE
from merging.recipes.recipe import Recipe
from viz.text import plural

EDIT = "manual"  # the edit that takes factors


def recipe_of(sheet: Sheet, rules: Sequence[FactorRule], chain: str = "") -> Recipe:
    """The run's recipe with these rules in place of its edits, or a ``chain`` from Merge with them in it.

    Raises:
        MergingError: too many rules, or a chain that is refused.
    """
    merged = sheet.run.recipe
    assert merged is not None  # only merges are painted on
    bounds = registry.edit(EDIT).params.bounds()
    (name,) = (name for name, bound in bounds.items() if bound.kind == TABLE)
    step = DraftStep(EDIT, {name: rules})
    if not chain:
        draft = replace(Draft.of(merged), edits=[step], title="")
        return draft.recipe(dict(merged.experts))
    draft = parse_chain(chain, merged.pretrained, list(dict(merged.experts)))
    places = [place for place, one in enumerate(draft.edits) if one.key == EDIT and not one.after_merge()]
    draft.edits[slice(places[0], places[0] + 1) if places else slice(0, 0)] = [step]
    return draft.recipe(dict(merged.experts))


def show(sheet: Sheet, painting: Painting) -> None:
    """Draw the rules, the recipe and the way to a run."""
    rules = paint_link.rules_of(painting.factors, sheet.experts, sheet.parameters)
    recipe, problem = None, ""
    try:
        recipe = recipe_of(sheet, rules, painted.chain())
    except MergingError as error:
        problem = str(error)
    if rules and recipe:
        preview.show(recipe, sheet.run, "paint")
        _make_run(sheet, recipe)
    _listed(rules, painting, recipe)
    if problem:
        st.warning(f"These factors cannot be run: {text.safe_text(problem, 300)}", icon=":material/block:")
    elif not rules:
        st.caption("Every factor is 1: there is nothing to run yet.")


def _listed(rules: Sequence[FactorRule], painting: Painting, recipe: Recipe | None) -> None:
    """Draw the rules in words, simplified or as the strokes that led there, and the recipe as YAML."""
    with st.expander(f"{plural(len(rules), 'rule')} that give these factors", icon=":material/format_list_numbered:"):
        simple = st.toggle(
            "Simplify", True, key="paint_simplify", help="The fewest rules that were found, instead of every stroke."
        )
        lines = [rule.words() for rule in rules] if simple else [stroke.words for stroke in painting.done]
        empty = "Every factor is 1." if simple else "No stroke yet."
        st.markdown("\n".join(f"{i}. {text.safe_text(line, 300)}" for i, line in enumerate(lines, 1)) or empty)
        if rules and recipe:
            st.caption("Later rules paint over earlier ones. The recipe, to copy:")
            st.code(recipe.to_yaml(), language="yaml", wrap_lines=True, height=260)


def _make_run(sheet: Sheet, recipe: Recipe) -> None:
    if (query := recipes.merge_query(recipe)) is None:
        st.caption("The models of this run are not among those that Merge offers; use the recipe above.")
        return
    page.open_page(pages.MERGE, "Make it a run", "play_arrow", **query)
    if painted.chain():
        st.caption(f"Opens Merge with the chain that came from there: {text.safe_text(text.chain_words(recipe), 300)}.")
        return
    left_out = [text.method_title(step.key) for step in sheet.run.recipe.edits]
    instead = f" in place of {text.listed(left_out)}" if left_out else " in front"
    st.caption(f"Opens Merge with this run's merge, {text.method_title(recipe.merge.key)}, and these factors{instead}.")
