"""The lineage of a run: a chart of its checkpoints and steps, and the chart's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names
from app.widgets import chart_view
from merging.base.errors import MergingError
from merging.models.model_references import BUNDLED_PREFIXES, HUB_PREFIX, expert_key
from merging.study.runs.run import Run, have_same_models

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.recipe import Recipe

DIGEST_DIGITS = 8  # digits of a digest that are shown
MAX_OTHER_RUNS = 5  # other runs of the same experts in the chart


def draw_lineage(run: Run, stored_runs: Sequence[Run]) -> None:
    """Draw the lineage of one run, with other runs of the same experts."""
    try:
        recipe = run.recipe
    except MergingError:
        recipe = None
    if recipe is None:
        st.info("This version does not know a method of this run's recipe, so its lineage cannot be shown.")
        return
    same_expert_runs = [
        candidate
        for candidate in stored_runs
        if candidate.kind == "merge" and candidate.id != run.id and have_same_models(run, candidate)
    ]
    caption = (
        f"Lineage of **{page_text.safe_text(run.name, 60)}**. The digits below a checkpoint are the first of its "
        "digest, those below a run the first of its id."
    )
    if same_expert_runs:
        caption += " Faint boxes are other runs of the same experts."
    if len(same_expert_runs) > MAX_OTHER_RUNS:
        caption += f" {len(same_expert_runs) - MAX_OTHER_RUNS} more are in the table above."
    table = build_lineage(run, recipe, same_expert_runs[:MAX_OTHER_RUNS])
    chart_view.draw_chart("lineage", table, name=f"lineage_{run.id}", sources=[run], caption=caption)


def build_lineage(run: Run, recipe: Recipe, other_runs: Sequence[Run]) -> pd.DataFrame:
    """One row for each checkpoint, step and result: ``node``, ``kind``, ``label``, ``detail``, ``parents``."""
    import pandas as pd

    from merging.models.model_references import strip_folders  # loads torch

    pretrained_name = _checkpoint_name(strip_folders(recipe.pretrained))
    rows = [("pretrained", "pretrained", pretrained_name, run.inputs.get("pretrained", "")[:DIGEST_DIGITS], "")]
    experts = [f"expert{index}" for index in range(len(recipe.experts))]
    for node, (name, _) in zip(experts, recipe.experts, strict=True):
        rows.append(
            (
                node,
                "expert",
                expert_names.expert_name(name),
                run.inputs.get(expert_key(name), "")[:DIGEST_DIGITS],
                "pretrained",
            )
        )
    parents = " ".join(experts)
    for index, step in enumerate(recipe.steps):
        node, kind = f"step{index}", "merge" if index == len(recipe.steps) - 1 else "edit"
        parameters = page_text.step_words(step).removeprefix(page_text.method_title(step.key)).strip(" ()")
        rows.append((node, kind, page_text.method_title(step.key), parameters, parents))
        parents = node
    if recipe.adapt is not None:
        parameters = (
            page_text.step_words(recipe.adapt).removeprefix(page_text.method_title(recipe.adapt.key)).strip(" ()")
        )
        rows.append(("adapt", "adapt", page_text.method_title(recipe.adapt.key), parameters, parents))
        parents = "adapt"
    if run.per_task:
        rows += [
            (f"model{i}", "model", expert_names.expert_name(name), "one task's model", parents)
            for i, name in enumerate(run.experts)
        ]
    else:
        rows.append(("run", "run", run.name, run.id[:DIGEST_DIGITS], parents))
    rows += [
        (f"other{i}", "other", other_run.name, other_run.id[:DIGEST_DIGITS], "")
        for i, other_run in enumerate(other_runs)
    ]
    return pd.DataFrame(rows, columns=["node", "kind", "label", "detail", "parents"])


def _checkpoint_name(reference: str) -> str:
    """The name of a checkpoint without prefix and suffix."""
    for prefix in (*BUNDLED_PREFIXES, HUB_PREFIX):
        reference = reference.removeprefix(prefix)
    return reference.removesuffix(".safetensors")
