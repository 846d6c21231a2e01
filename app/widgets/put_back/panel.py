"""What if this layer were put back? One change of one layer of a run, previewed on a sample, and carried to Merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading import data
from app.session import address, pages
from app.session.draft import Draft
from app.widgets import page, preview
from merging.checkpoints.families import Parameter, Role
from merging.errors import MergingError, TaskError
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from viz.text import clean_text, plural, role_name

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.layer_changes import ChosenLayer

QUESTION = "What if this layer were put back?"
PUT_BACK, GIVE_BACK, SCALE = "put back", "give it back to an expert", "scale"
ACTS = (PUT_BACK, GIVE_BACK, SCALE)
REACHES = {"this tensor": "tensor", "its block": "block", "its kind": "kind"}
GIVEN_BACK = (
    "This cannot be a factor of the merged weights, so it is another experiment: before the merge, {place} keeps only "
    "the task vector of **{expert}**, times {factor:.3g}. A merge that sums then has the expert's own weights there. "
    "One with a threshold over all scalars also changes other tensors, and what an edit prunes stays pretrained."
)
AFTERWARDS = "The merged task vector of {place} is multiplied by **{factor:g}** after the merge; nothing else moves."
NO_MODELS = "The models of this run are not offered on Merge; run the recipe with `python -m merging run recipe.yaml`."


def show(run: Run, tensor: str | None, place: str) -> None:
    """Draw the panel of a chosen tensor; ``place`` tells it from others in the session."""
    if run.recipe is None:
        return
    st.subheader(QUESTION, anchor=False)
    rows = data.table(run.id, "tensors")
    chosen = rows[rows["tensor"] == tensor]
    if tensor is None or chosen.empty:
        st.caption("Choose a tensor above: then it, its block or its kind can be put back, and the accuracy answers.")
        return
    act, reach = _pickers()
    try:
        recipe, words = _changed(run, run.recipe, _layer(chosen.iloc[0], reach), act, rows)
        st.markdown(words)
        preview.show(recipe, run, f"put_back_{place}")
        _make_it_a_run(recipe, place)
    except MergingError as error:
        st.error(text.safe_text(error, 600), icon=":material/error:")


def _pickers() -> tuple[str, str]:
    """What is done, and how far it reaches."""
    with st.container(horizontal=True, gap="medium"):
        act = st.segmented_control("Do", ACTS, default=PUT_BACK, key=address.ACT, bind=address.BIND, required=True)
        reach = st.segmented_control(
            "With", REACHES, default=next(iter(REACHES)), key=address.REACH, bind=address.BIND, required=True
        )
    return act, REACHES[reach]


def _layer(row: pd.Series[Any], reach: str) -> ChosenLayer:
    from merging.recipes.layer_changes import ChosenLayer

    return ChosenLayer(str(row["tensor"]), str(row["section"]), str(row["role"]), reach)


def _changed(run: Run, recipe: Recipe, layer: ChosenLayer, act: str, rows: pd.DataFrame) -> tuple[Recipe, str]:
    """The changed recipe and what the change does, in Markdown."""
    from merging.recipes import layer_changes

    place, title = _place(layer, rows), clean_text(run.title, 60)
    if act == GIVE_BACK:
        expert = st.selectbox("Expert to give it back to", run.experts, key=address.GIVEN, bind=address.BIND, width=300)
        changed = layer_changes.given_back(recipe, layer, expert, f"{title}, {clean_text(place)} as {expert}'s")
        factor = layer_changes.single_factor(recipe)
        return changed, GIVEN_BACK.format(place=_bold(place), expert=text.safe_text(expert, 60), factor=factor)
    factor = 0.0
    if act == SCALE:
        factor = st.slider("Factor", 0.0, 2.0, 0.5, 0.05, key=address.FACTOR, bind=address.BIND, width=320)
    done = "put back" if factor == 0 else f"times {factor:g}"
    changed = layer_changes.scaled(recipe, layer, factor, _parameters(rows), f"{title}, {clean_text(place)} {done}")
    return changed, AFTERWARDS.format(place=_bold(place), factor=factor)


def _place(layer: ChosenLayer, rows: pd.DataFrame) -> str:
    """What the change reaches, in words."""
    if layer.reach == "tensor":
        return layer.tensor
    column, value = ("section", layer.section) if layer.reach == "block" else ("role", layer.role)
    count = plural(int((rows[column] == value).sum()), "tensor")
    named = f"all {role_name(value)} tensors" if layer.reach == "kind" else value
    return f"{named} ({count})"


def _bold(place: str) -> str:
    return f"**{text.safe_text(place, 120)}**"


def _parameters(rows: pd.DataFrame) -> Sequence[Parameter]:
    """The tensors of a run as the edit sees them."""
    return [
        Parameter(
            str(row["tensor"]), Role(str(row["role"])), str(row["part"]), str(row["section"]),
            int(str(row["section"]).removeprefix("block ")) if str(row["section"]).startswith("block ") else None,
            int(row["order"]),
        )
        for row in rows.to_dict("records")
    ]  # fmt: skip


def _make_it_a_run(recipe: Recipe, place: str) -> None:
    """A link to Merge with the recipe, and the recipe as a file."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if (models := _models(recipe)) is not None:
            experts = [name for name, _ in recipe.experts]
            query = {address.CHAIN: Draft.of(recipe).chain()}
            query |= {address.EXPERTS: ",".join(experts)} if len(experts) < models[1] else {}
            query |= {address.MODELS: models[0]} if models[0] else {}
            page.open_page(pages.MERGE, "Make it a run", "merge", **query)
        st.download_button(
            "Recipe", recipe.to_yaml, "recipe.yaml", "text/yaml", key=f"recipe_{place}", on_click="ignore",
            type="tertiary", icon=":material/receipt_long:",
        )  # fmt: skip
    if models is None:
        st.caption(NO_MODELS)


def _models(recipe: Recipe) -> tuple[str, int] | None:
    """The set of models on Merge that a recipe merges from, and how many experts it has; None if none has them."""
    try:
        sets = data.model_sets()
    except TaskError:
        return None
    for key, models in sets.items():
        if models.pretrained == recipe.pretrained and set(recipe.experts) <= set(models.experts):
            return key, len(models.experts)
    return None
