"""What stands in place of a button that this server's mode does not have: why, and the way on one's own machine."""

from __future__ import annotations

import streamlit as st

from app import permission
from merging.base import modes
from merging.base.modes import Act
from merging.recipes.recipe import Recipe


def refused(act: Act) -> bool:
    """Draw why visitors may not do that here, if they may not; whether they may not."""
    if permission.allows(act):
        return False
    st.caption(f":material/home_work: {modes.refusal(act)}")
    return True


def recipe_instead(recipe: Recipe, key: str, act: Act = Act.MERGE) -> bool:
    """The same, with a button that downloads the recipe."""
    if not refused(act):
        return False
    st.download_button(
        "Recipe", recipe.to_yaml, "recipe.yaml", "text/yaml", key=f"recipe_instead_{key}", on_click="ignore",
        icon=":material/receipt_long:", help="Run it with `python -m merging run recipe.yaml`.",
    )  # fmt: skip
    return True
