"""A panel for one change of one layer of a run: a preview on a sample, and a link to Merge with the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, recipes
from app.session import address, pages, selection
from app.widgets import page_parts, selection_pickers
from app.widgets.panels import preview_panel
from merging.base.errors import MergingError
from merging.methods.factor_rules import MAX_FACTOR
from merging.models.families import stored_tensor_name
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run, read_parameters
from viz.figure_text import clean_text, percent, plural, role_name

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.layer_changes import ChosenLayer

QUESTION = "What if this layer were put back?"
PUT_BACK, GIVE_BACK, SCALE = "put back", "give it back to an expert", "scale"
ACTIONS = (PUT_BACK, GIVE_BACK, SCALE)
GIVE_BACK_NOTE = (
    "This cannot be a factor of the merged weights, so it is another experiment: before the merge, {scope} keeps only "
    "the task vector of **{expert}**, times {factor:.3g}. A merge that sums task vectors then has {result} there. "
    "One with a threshold over all scalars also changes other tensors, and what an edit prunes stays pretrained."
)
SCALE_NOTE = "The merged task vector of {scope} is multiplied by **{factor:g}** after the merge; nothing else changes."
PACKED_NOTE = "Query, key and value are one tensor of the checkpoint, which is put back as a whole."
NOT_CLIP_NOTE = "The answer is an accuracy, and images pass through CLIP towers; this run is of {}."
NO_MODELS_NOTE = "The models of this run are not offered on Merge; run the recipe with `mergescope run recipe.yaml`."


def draw_panel(run: Run, tensor: str | None, key_suffix: str) -> None:
    """Draw the panel of a chosen tensor; ``key_suffix`` makes the keys of its widgets unique in the session."""
    if run.recipe is None:
        return
    st.header(QUESTION, anchor=False)
    if run.network:
        st.caption(NOT_CLIP_NOTE.format(page_text.safe_text(run.network, 60)))
        return
    rows = page_data.run_table(run.id, "tensors")
    packed_name = stored_tensor_name(tensor or "")
    chosen = rows[rows["tensor"] == packed_name]
    if tensor is None or chosen.empty:
        st.caption("Choose a tensor above: then you can put it, its block or its kind back, and see the accuracy.")
        return
    if packed_name != tensor:
        st.caption(PACKED_NOTE)
    action, extent = _pick_action()
    try:
        recipe, words = _change_recipe(run, run.recipe, _make_layer(chosen.iloc[0], extent), action, rows)
        st.markdown(words)
        preview_panel.draw_preview(recipe, run, f"put_back_{key_suffix}")
        _draw_recipe_links(recipe, key_suffix)
    except MergingError as error:
        st.error(page_text.safe_text(error, 600), icon=":material/error:")


def _pick_action() -> tuple[str, str]:
    """The pickers of the action and of its scope."""
    with st.container(horizontal=True, gap="medium"):
        action = st.segmented_control(
            "Do", ACTIONS, default=PUT_BACK, key=address.ACTION, bind=address.BIND, required=True
        )
        scope = selection.chosen_scope()
        key = selection.picker_key(address.ACTION_SCOPE, scope)
        scope = st.segmented_control(
            "With", selection.SCOPE_EXTENTS, default=scope, key=key, required=True,
            on_change=selection_pickers.choose_picked, args=(address.ACTION_SCOPE, key),
        )  # fmt: skip
    return action, selection.SCOPE_EXTENTS[scope]


def _make_layer(row: pd.Series[Any], extent: str) -> ChosenLayer:
    from merging.recipes.layer_changes import ChosenLayer

    return ChosenLayer(str(row["tensor"]), str(row["section"]), str(row["role"]), extent, str(row["part"]))


def _change_recipe(run: Run, recipe: Recipe, layer: ChosenLayer, action: str, rows: pd.DataFrame) -> tuple[Recipe, str]:
    """The changed recipe and a description of the change, in Markdown."""
    from merging.recipes import layer_changes

    scope, title = _scope_in_words(layer, rows), clean_text(run.name, 60)
    parameters = read_parameters(rows)
    if action == GIVE_BACK:
        expert, expert_title = _pick_expert(run)
        changed = layer_changes.restrict_to_expert(
            recipe, layer, expert, parameters, f"{title}, {clean_text(scope)} as {expert_title}'s"
        )
        full_factor = layer_changes.single_factor(recipe)  # with it the layer gets the expert's own weights
        factor = min(full_factor, MAX_FACTOR)
        result = (
            "the expert's own weights"
            if factor == full_factor
            else f"{percent(factor / full_factor, 0)} of the expert's change"
        )
        name = page_text.safe_text(expert_title, 60)
        return changed, GIVE_BACK_NOTE.format(scope=_bold(scope), expert=name, factor=factor, result=result)
    factor = 0.0
    if action == SCALE:
        factor = st.slider("Factor", 0.0, 2.0, 0.5, 0.05, key=address.FACTOR, bind=address.BIND, width=320)
    change = "put back" if factor == 0 else f"times {factor:g}"
    changed = layer_changes.scale_layer(recipe, layer, factor, parameters, f"{title}, {clean_text(scope)} {change}")
    return changed, SCALE_NOTE.format(scope=_bold(scope), factor=factor)


def _pick_expert(run: Run) -> tuple[str, str]:
    """The picker of the expert that gets the layer back: its key and its name."""
    names = expert_names.expert_names(run.experts)
    expert = st.selectbox(
        "Expert to give it back to", run.experts, format_func=names.__getitem__, key=address.ACTION_EXPERT,
        bind=address.BIND, width=300,
    )  # fmt: skip
    return expert, names[expert]


def _scope_in_words(layer: ChosenLayer, rows: pd.DataFrame) -> str:
    """The scope of the change, in words."""
    if layer.extent == "tensor":
        return layer.tensor
    words = {
        "block": ("section", layer.section, layer.section), "layer": ("part", layer.part, f"all {layer.part} layers"),
        "kind": ("role", layer.role, f"all {role_name(layer.role)} tensors"),
    }  # fmt: skip
    column, value, tensors = words[layer.extent]
    return f"{tensors} ({plural(int((rows[column] == value).sum()), 'tensor')})"


def _bold(scope: str) -> str:
    return f"**{page_text.safe_text(scope, 120)}**"


def _draw_recipe_links(recipe: Recipe, key_suffix: str) -> None:
    """Draw a link to Merge with the recipe, and the recipe as a file."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if (query := recipes.merge_query(recipe)) is not None:
            page_parts.draw_page_link(pages.MERGE, "Make it a run", "merge", **query)
        st.download_button(
            "Recipe", recipe.to_yaml, "recipe.yaml", "text/yaml", key=f"recipe_{key_suffix}", on_click="ignore",
            type="tertiary", icon=":material/receipt_long:",
        )  # fmt: skip
    if query is None:
        st.caption(NO_MODELS_NOTE)
