"""What foretells it on the Partners page: how well numbers that are known before a merge foretell what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st

from app import page_text
from app.reading import page_data
from app.views.partners.partner_data import OFFERED, Team
from app.widgets import chart_view, page_parts
from app.widgets.panels import foretold_panel
from app.widgets.panels.foretold_panel import Foretold
from merging.recipes.presets import find_preset
from merging.study.partners.foretell import PERMUTATIONS, SIGNIFICANT, SIZE_ALONE
from viz.hover import decimal

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

MEANING = (
    "The loss of a task is its accuracy merged with its own expert alone minus that in a team of two or three. A ridge "
    "regression foretells every loss from teams without this task and one of its partners. “All predictors” are "
    "cosines of task vectors (of all tensors and by block), norms, sign conflicts, overlaps and ranks of singular "
    "subspaces, the alignment of gradients, interference in layer inputs, the pretrained model's accuracy, and the "
    "size of the team. The control gives tasks the predictors of other tasks, {} times; leaving tasks out pulls ρ "
    "below zero, in the control, too. Predictors beat it if p is at most {:g}. Intervals are of 95 %, by a bootstrap "
    "of teams; teams share tasks, so they are too narrow."
)
NO_CHANGE = "Of a single expert, {} gives the pretrained model, so its losses are measured from there."
COLUMNS = {
    "task": "Chain", "label": "Predictors", "rho": "ρ", "low": "Low", "high": "High", "control": "Control: mean ρ",
    "p": "p", "n": "Losses", "teams": "Teams", "dropped": "Left out",
}  # fmt: skip


def draw_view(team: Team) -> None:
    """Draw the chart of all measured chains, a sentence for what foretells nothing, and what is missing."""
    chosen, images = foretold_panel.read_foretold(team.recipe, team.sweep.images), team.sweep.images
    foretold_panel.draw_missing(chosen, "foretold")
    chains = _list_chains(team.recipe)
    ready: dict[str, Foretold] = {}
    for title, recipe in chains.items():
        one = chosen if recipe is team.recipe else foretold_panel.read_foretold(recipe, images)
        ready |= {title: one} if one.is_ready else {}
    with st.spinner("Foretelling losses …"):
        tables = [one.judged.assign(task=title) for title, one in ready.items()]
    if not tables:
        return
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(run=table["name"], label=table["name"].str.capitalize())
    chart_view.draw_chart(
        "foretold_losses", table, name="foretold",
        caption=f"{MEANING.format(PERMUTATIONS, SIGNIFICANT)} {_join_notes(ready)}",
        sources=[one.few for one in ready.values()],
    )  # fmt: skip
    for sentence in describe_verdicts(table):
        st.markdown(sentence)
    if still := [title for title, one in ready.items() if _keeps_nothing_of_one(one)]:
        st.caption(NO_CHANGE.format(page_text.join_words(still)))
    if missing := [title for title in chains if title not in ready]:
        st.caption(f"Not measured yet: {page_text.join_words(missing)}. Choose a chain above to measure it.")
    with st.expander("Every set of predictors as a table", icon=":material/table:"):
        rows = table[[*COLUMNS]].round({"rho": 2, "low": 2, "high": 2, "control": 2, "p": 3})
        page_parts.draw_table(rows, "How well each set of predictors foretells losses", COLUMNS, "auto")


def _list_chains(recipe: Recipe) -> dict[str, Recipe]:
    """{title: chain} of the offered presets on the experts of this recipe, and of the recipe itself."""
    large = page_data.is_large(recipe.pretrained)
    experts = dict(recipe.experts)
    chains = {
        one.name_in_lists(large): one.recipe(recipe.pretrained, experts, large=large)
        for one in map(find_preset, OFFERED)
    }
    own = next((title for title, one in chains.items() if one.steps == recipe.steps), page_text.chain_title(recipe))
    return chains | {own: recipe}


def describe_verdicts(table: pd.DataFrame) -> list[str]:
    """A sentence for each set of predictors: the chains whose losses it does not foretell, and those that it does."""
    sentences = []
    for label, of_set in table.groupby("label", sort=False):
        rows = of_set[np.isfinite(of_set["p"])]
        is_useful = rows["beats_control"] & (rows["rho"] > 0)
        better = [
            f"{page_text.safe_text(row['task'])} (ρ = {decimal(row['rho'])}, p = {row['p']:.2g})"
            for row in rows[is_useful].to_dict("records")
        ]
        worse = [page_text.safe_text(task) for task in rows["task"][~is_useful]]
        words = [f"better than with shuffled tasks for {page_text.join_words(better)}"] if better else []
        if worse:
            words.append(
                f"**no** better{'' if better else ' than with shuffled tasks'} for {page_text.join_words(worse)}"
            )
        if words:
            sentences.append(
                f"With **{page_text.safe_text(str(label).lower())}**, losses are foretold {'; '.join(words)}."
            )
    if (table["name"] == SIZE_ALONE).any():
        sentences.append("The size of a team is the same whatever its tasks are called, so it has no control.")
    if (table["beats_control"] & (table["rho"] <= 0)).any():
        sentences.append(
            "Where ρ is not above zero, beating the control is of no use, since the order of losses stays unknown."
        )
    return sentences


def _keeps_nothing_of_one(foretold: Foretold) -> bool:
    """Whether the chain gives the pretrained model for every single expert."""
    measured = foretold.stored.measured
    return all(
        (measured.right[1 << index][task] == measured.right[0][task]).all()
        for index in range(len(measured.experts))
        for task in measured.tasks
    )


def _join_notes(ready: dict[str, Foretold]) -> str:
    return " ".join(dict.fromkeys(one.note for one in ready.values()))
