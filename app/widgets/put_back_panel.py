"""A panel for one change of one layer of a run: a preview on a sample, and a link to Merge with the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, recipes
from app.session import address, pages
from app.widgets import page_parts, preview_panel
from merging.base.errors import MergingError
from merging.methods.factor_rules import LARGEST
from merging.models.families import whole_name
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run, read_parameters
from viz.figure_text import clean_text, percent, plural, role_name

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.layer_changes import ChosenLayer

QUESTION = "What if this layer were put back?"
PUT_BACK, GIVE_BACK, SCALE = "put back", "give it back to an expert", "scale"
ACTIONS = (PUT_BACK, GIVE_BACK, SCALE)
SCOPES = {"this tensor": "tensor", "its block": "block", "its kind": "kind"}
GIVEN_BACK = (
    "This cannot be a factor of the merged weights, so it is another experiment: before the merge, {place} keeps only "
    "the task vector of **{expert}**, times {factor:.3g}. A merge that sums task vectors then has {has} there. "
    "One with a threshold over all scalars also changes other tensors, and what an edit prunes stays pretrained."
)
AFTERWARDS = "The merged task vector of {place} is multiplied by **{factor:g}** after the merge; nothing else moves."
PACKED = "Query, key and value are one tensor of the checkpoint, which is put back as a whole."
NO_ANSWER = "The answer is an accuracy, and images pass through CLIP towers; this run is of {}."
NO_MODELS = "The models of this run are not offered on Merge; run the recipe with `python -m merging run recipe.yaml`."


def draw_panel(run: Run, tensor: str | None, place: str) -> None:
    """Draw the panel of a chosen tensor; ``place`` makes the keys of its widgets unique in the session."""
    if run.recipe is None:
        return
    st.header(QUESTION, anchor=False)
    if run.network:
        st.caption(NO_ANSWER.format(page_text.safe_text(run.network, 60)))
        return
    rows = page_data.run_table(run.id, "tensors")
    whole = whole_name(tensor or "")
    chosen = rows[rows["tensor"] == whole]
    if tensor is None or chosen.empty:
        st.caption("Choose a tensor above: then you can put it, its block or its kind back, and see the accuracy.")
        return
    if whole != tensor:
        st.caption(PACKED)
    act, reach = _pick_action()
    try:
        recipe, words = _change_recipe(run, run.recipe, _layer(chosen.iloc[0], reach), act, rows)
        st.markdown(words)
        preview_panel.draw_preview(recipe, run, f"put_back_{place}")
        _make_it_a_run(recipe, place)
    except MergingError as error:
        st.error(page_text.safe_text(error, 600), icon=":material/error:")


def _pick_action() -> tuple[str, str]:
    """The pickers of the action and of its scope."""
    with st.container(horizontal=True, gap="medium"):
        act = st.segmented_control(
            "Do", ACTIONS, default=PUT_BACK, key=address.ACTION, bind=address.BIND, required=True
        )
        reach = st.segmented_control(
            "With", SCOPES, default=next(iter(SCOPES)), key=address.ACTION_SCOPE, bind=address.BIND, required=True
        )
    return act, SCOPES[reach]


def _layer(row: pd.Series[Any], reach: str) -> ChosenLayer:
    from merging.recipes.layer_changes import ChosenLayer

    return ChosenLayer(str(row["tensor"]), str(row["section"]), str(row["role"]), reach)


def _change_recipe(run: Run, recipe: Recipe, layer: ChosenLayer, act: str, rows: pd.DataFrame) -> tuple[Recipe, str]:
    """The changed recipe and a description of the change, in Markdown."""
    from merging.recipes import layer_changes

    scope, title = _scope_in_words(layer, rows), clean_text(run.name, 60)
    if act == GIVE_BACK:
        expert, shown = _pick_expert(run)
        changed = layer_changes.restrict_to_expert(recipe, layer, expert, f"{title}, {clean_text(scope)} as {shown}'s")
        whole = layer_changes.single_factor(recipe)
        factor = min(whole, LARGEST)
        has = "the expert's own weights" if factor == whole else f"{percent(factor / whole, 0)} of the expert's change"
        name = page_text.safe_text(shown, 60)
        return changed, GIVEN_BACK.format(place=_bold(scope), expert=name, factor=factor, has=has)
    factor = 0.0
    if act == SCALE:
        factor = st.slider("Factor", 0.0, 2.0, 0.5, 0.05, key=address.FACTOR, bind=address.BIND, width=320)
    done = "put back" if factor == 0 else f"times {factor:g}"
    changed = layer_changes.scale_layer(
        recipe, layer, factor, read_parameters(rows), f"{title}, {clean_text(scope)} {done}"
    )
    return changed, AFTERWARDS.format(place=_bold(scope), factor=factor)


def _pick_expert(run: Run) -> tuple[str, str]:
    """The picker of the expert that gets the layer back: its key and its name."""
    named = expert_names.expert_names(run.experts)
    expert = st.selectbox(
        "Expert to give it back to", run.experts, format_func=named.__getitem__, key=address.ACTION_EXPERT,
        bind=address.BIND, width=300,
    )  # fmt: skip
    return expert, named[expert]


def _scope_in_words(layer: ChosenLayer, rows: pd.DataFrame) -> str:
    """The scope of the change, in words."""
    if layer.extent == "tensor":
        return layer.tensor
    column, value = ("section", layer.section) if layer.extent == "block" else ("role", layer.role)
    count = plural(int((rows[column] == value).sum()), "tensor")
    named = f"all {role_name(value)} tensors" if layer.extent == "kind" else value
    return f"{named} ({count})"


def _bold(scope: str) -> str:
    return f"**{page_text.safe_text(scope, 120)}**"


def _make_it_a_run(recipe: Recipe, place: str) -> None:
    """A link to Merge with the recipe, and the recipe as a file."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if (query := recipes.merge_query(recipe)) is not None:
            page_parts.draw_page_link(pages.MERGE, "Make it a run", "merge", **query)
        st.download_button(
            "Recipe", recipe.to_yaml, "recipe.yaml", "text/yaml", key=f"recipe_{place}", on_click="ignore",
            type="tertiary", icon=":material/receipt_long:",
        )  # fmt: skip
    if query is None:
        st.caption(NO_MODELS)
