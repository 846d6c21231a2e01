"""The way from a recipe to Merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import data
from app.session import address
from app.session.draft import Draft
from merging.checkpoints.families import Role
from merging.errors import TaskError
from merging.recipes.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd


def tensors_of(pretrained: str) -> pd.DataFrame:
    """A row for each tensor that a merge changes, in forward order: tensor, order, section, role, part, numel.

    Raises:
        CheckpointError: the file cannot be opened.
    """
    return _tensors_of(pretrained, data.file_state(pretrained))


@st.cache_data(max_entries=16, show_spinner=False)
def _tensors_of(pretrained: str, file: tuple[int, ...]) -> pd.DataFrame:
    import pandas as pd

    from merging.formats.opening import open_checkpoint

    opened = open_checkpoint(pretrained, "pretrained")
    merged = [parameter for parameter in opened.parameters if parameter.role != Role.BUFFER]
    rows = [(p.name, p.order, p.section, str(p.role), p.part, opened.infos[p.name].numel) for p in merged]
    return pd.DataFrame(rows, columns=["tensor", "order", "section", "role", "part", "numel"])


def by_expert(facts: pd.DataFrame, experts: Sequence[str]) -> pd.DataFrame:
    """The same rows once for every expert, expert by expert."""
    import pandas as pd

    return pd.concat([facts.assign(expert=name) for name in experts], ignore_index=True)


def set_of(recipe: Recipe) -> str | None:
    """The first set of models on Merge that holds every checkpoint of a recipe; None if there is none."""
    try:
        sets = data.model_sets()
    except TaskError:
        return None
    experts = set(recipe.experts)
    return next(
        (
            key
            for key, models in sets.items()
            if models.pretrained == recipe.pretrained and experts <= set(models.experts)
        ),
        None,
    )


def merge_query(recipe: Recipe) -> dict[str, str] | None:
    """The address of Merge with this recipe; None if no set there holds its models."""
    if (key := set_of(recipe)) is None:
        return None
    query = {address.CHAIN: Draft.of(recipe).chain()}
    if recipe.experts != tuple(data.model_sets()[key].experts):
        query[address.EXPERTS] = ",".join(name for name, _ in recipe.experts)
    return query | ({address.MODELS: key} if key else {})
