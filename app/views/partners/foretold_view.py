"""What foretells it on the Partners page: how well numbers that are known before a merge foretell what it costs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

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
from merging.study.partners.foretell import PERMUTATIONS, SIGNIFICANT, SIZE_ALONE, find_noise_share
from viz.figure_text import plural
from viz.hover import decimal

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe

MEANING = (
    "The loss of a task is its accuracy merged with its own expert alone minus that in a team of two or three. A ridge "
    "regression foretells every loss from teams without this task and one of its partners. “All predictors” are "
    "cosines of task vectors (of all tensors and by block), norms, sign conflicts, overlaps and ranks of singular "
    "subspaces, the alignment of gradients, interference in layer inputs, the pretrained model's accuracy, and the "
    "size of the team. The control gives tasks the predictors of other tasks, {} times; leaving tasks out pulls ρ "
    "below zero, in the control, too. Predictors beat it if p is at most {:g}. {} Intervals are of 95 %, by a "
    "bootstrap of teams; teams share tasks, so they are too narrow. An error is the root mean square of what is "
    "foretold minus what is measured; a constant foretells the mean loss of the same teams for every row."
)
NO_CHANGE = (
    "Merging a single expert with {} returns the pretrained model, so that these losses are relative to the pretrained "
    "model."
)
COLUMNS = {
    "task": "Chain", "label": "Predictors", "rho": "ρ", "low": "Low", "high": "High", "control": "Control: mean ρ",
    "p": "p", "error": "Error (points)", "constant_error": "Error of a constant (points)", "n": "Losses",
    "teams": "Teams", "dropped": "Left out",
}  # fmt: skip
NOISY = 0.5  # share of the variance of losses that sampling explains, above which a sentence says so


def draw_view(team: Team) -> None:
    """Draw the chart of all measured chains, a sentence for what foretells nothing, and what is missing."""
    chosen, images = foretold_panel.read_foretold(team.recipe, team.sweep.images), team.sweep.images
    foretold_panel.draw_missing(chosen, "foretold")
    chains = _list_chains(team.recipe)
    ready: dict[str, Foretold] = {}
    for title, recipe in chains.items():
        one = chosen if recipe is team.recipe else foretold_panel.read_foretold(recipe, images)
        ready |= {title: one} if one.is_ready else {}
    tables = []
    for number, (title, one) in enumerate(ready.items(), 1):
        with st.spinner(f"Foretelling losses of {page_text.safe_text(title)}, {number} of {len(ready)} chains …"):
            tables.append(one.verdicts.assign(task=title))
    if not tables:
        return
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(run=table["name"], label=table["name"].str.capitalize())
    chart_view.draw_chart(
        "foretold_losses", table, name="foretold",
        caption=f"{MEANING.format(PERMUTATIONS, SIGNIFICANT, describe_chance(table))} {_join_notes(ready)}",
        sources=[one.few for one in ready.values()],
    )  # fmt: skip
    for sentence in (*describe_verdicts(table), describe_noise(ready)):
        st.markdown(sentence)
    if still := [title for title, one in ready.items() if one.stored_subsets.answers.is_pretrained_alone]:
        st.caption(NO_CHANGE.format(page_text.join_words(still)))
    if missing := [title for title in chains if title not in ready]:
        st.caption(f"Not measured yet: {page_text.join_words(missing)}. Choose a chain above to measure it.")
    with st.expander("Every set of predictors as a table", icon=":material/table:"):
        points = {name: 100 * table[name] for name in ("error", "constant_error")}
        digits = {"rho": 2, "low": 2, "high": 2, "control": 2, "p": 3, "error": 2, "constant_error": 2}
        rows = table.assign(**points)[[*COLUMNS]].round(digits)
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
            f"{page_text.safe_text(row['task'])} (ρ = {decimal(row['rho'])}, p = {row['p']:.2g}, "
            f"{_compare_errors(row)})"
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
                f"With **{page_text.safe_text(str(label).lower())}**, the order of losses is foretold "
                f"{'; '.join(words)}."
            )
    if sentences and (table["name"] == SIZE_ALONE).any():
        sentences.append("The size of a team is the same whatever its tasks are called, so it has no control.")
    if (table["beats_control"] & (table["rho"] <= 0)).any():
        sentences.append(
            "Where ρ is not above zero, beating the control is of no use, since the order of losses stays unknown."
        )
    return sentences


def _compare_errors(row: dict[Hashable, Any]) -> str:
    """The error of predictors in points, and whether that of a constant is larger."""
    side = "below" if row["error"] < row["constant_error"] else "not below"
    return f"error {100 * row['error']:.2f} points, {side} the {100 * row['constant_error']:.2f} of a constant"


def describe_chance(table: pd.DataFrame) -> str:
    """How many sets of predictors beat their control, and how many would by chance; empty without any control."""
    tests = int(np.isfinite(table["p"]).sum())
    if not tests:
        return ""
    return (
        f"{int(table['beats_control'].sum())} of {plural(tests, 'set')} (of all chains) beat their control; about "
        f"{SIGNIFICANT * tests:.2g} would by chance ({100 * SIGNIFICANT:g}\u00a0%) if none foretold anything."
    )


def describe_noise(ready: Mapping[str, Foretold]) -> str:
    """A sentence about the chains of which most differences between losses are noise of sampled images, or none."""
    measured = {title: one.stored_subsets.answers for title, one in ready.items()}
    shares = {title: find_noise_share(one) for title, one in measured.items()}
    noisy = [
        f"{page_text.safe_text(title)} (about {100 * share:.0f}\u00a0%)"
        for title, share in shares.items()
        if share > NOISY
    ]
    if not noisy:
        return ""
    images = max(one.count_images(task) for one in measured.values() for task in one.tasks)
    return (
        f"On {images} images, sampling alone explains most of the variance of losses of {page_text.join_words(noisy)}, "
        "which leaves little to foretell."
    )


def _join_notes(ready: dict[str, Foretold]) -> str:
    return " ".join(dict.fromkeys(one.note for one in ready.values()))
