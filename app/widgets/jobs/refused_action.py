"""The text instead of a button that this server's mode forbids: the reason, and how to do it on one's own machine."""

from __future__ import annotations

import streamlit as st

from app import page_text, permissions
from app.session import benchmark_choice
from merging.base import modes
from merging.base.modes import VisitorAction
from merging.recipes.recipe import Recipe

NEEDS_IMAGES = {VisitorAction.MEASURE, VisitorAction.PREVIEW, VisitorAction.SWEEP}


def draw_refusal(action: VisitorAction) -> bool:
    """Draw the reason if visitors may not do the action, or if it needs what a pack lacks; returns whether it is so."""
    if permissions.is_allowed(action) and action in NEEDS_IMAGES and (pack := benchmark_choice.packed_name()):
        st.caption(
            f":material/package_2: {page_text.safe_text(pack, 80)} has results only. This needs weights and images, so "
            "it can be done where the benchmark itself is."
        )
        return True
    if permissions.is_allowed(action):
        return False
    st.caption(f":material/home_work: {modes.explain_refusal(action)}")
    return True


def draw_recipe_refusal(recipe: Recipe, key: str, action: VisitorAction = VisitorAction.MERGE) -> bool:
    """Draw the reason as ``draw_refusal`` does, with a button that downloads the recipe."""
    if not draw_refusal(action):
        return False
    st.download_button(
        "Recipe", recipe.to_yaml, "recipe.yaml", "text/yaml", key=f"recipe_instead_{key}", on_click="ignore",
        icon=":material/receipt_long:", help="Run it with `mergescope run recipe.yaml`.",
    )  # fmt: skip
    return True
