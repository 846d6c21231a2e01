"""Partners: which experts get along, what each brings, which to leave out, and what was known before the merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.recipes import list_offered_recipes
from app.session import address, view_state
from app.session.click_errors import guarded_fragment
from app.views.partners import foretold_view, loss_view, subset_view, value_view
from app.views.partners.partner_data import OFFERED, Team, list_image_counts
from app.widgets import page_parts
from app.widgets.jobs import sweep_status
from merging.base.errors import MergingError
from merging.recipes.recipe import Recipe

FORETOLD = "what foretells it"
VIEWS: dict[str, Callable[[Team], None]] = {  # name in the picker and in links -> function that draws it
    "who hurts whom": loss_view.draw_view,
    "what each brings": value_view.draw_view,
    "leave one out": subset_view.draw_view,
    FORETOLD: foretold_view.draw_view,
}
POLL_SECONDS = 4.0  # seconds between updates while subsets are measured
ALL_IMAGES = "all"
NOT_MEASURED = (
    "Nothing of this chain is measured yet. Measuring merges subsets of the experts and evaluates every one of them; "
    "the charts fill in as it goes."
)
NO_TEAM = "Partners compares experts of a team; this benchmark has fewer than two."
PICTURE_TIME = "This chain learns from images, so that every subset is merged anew and takes longer."


def pick_chain(recipes: Mapping[str, tuple[str, Recipe]]) -> Recipe | None:
    """Draw the picker of the chain, with the offered presets first; None without a chain of two experts."""
    teams = [key for key, (_, recipe) in recipes.items() if len(recipe.tasks) == len(recipe.experts) > 1]
    keys = [*(key for key in OFFERED if key in teams), *(key for key in teams if key not in OFFERED)]
    if not keys:
        st.info(NO_TEAM)
        return None
    chosen = view_state.resolve_value(address.PARTNERS_CHAIN, keys, keys[0])
    st.session_state["partners_chain_picker"] = chosen  # the picker shows the chain of the link
    st.selectbox(
        "Chain", keys, format_func=lambda key: recipes[key][0], key="partners_chain_picker", width=420,
        on_change=view_state.pick_value_from, args=(address.PARTNERS_CHAIN, "partners_chain_picker"),
        help="A chain on the experts of the benchmark, the recipe on the Merge page, or a run with its own experts.",
    )  # fmt: skip
    return recipes[chosen][1]


def draw_measuring(team: Team) -> None:
    """The progress of the measurement, or the button that starts or resumes it with its time."""
    if team.answers.complete:
        return
    if team.recipe.exemplars or team.recipe.test_data:
        st.markdown(PICTURE_TIME)
    sweep_status.draw_job(team.sweep, "Resume" if team.answers.right else "Measure", "partners")


def draw_team(recipe: Recipe, images: int, view: str) -> None:
    """The measurement and the view, again every few seconds while subsets are measured."""
    team = Team.of_chain(recipe, images)
    if view != FORETOLD:  # which needs only pairs and triples
        draw_measuring(team)
    if note := team.sweep.learning_note:
        page_parts.draw_caution(page_text.safe_text(note, 600))
    if team.answers.right or view == FORETOLD:
        VIEWS[view](team)
    elif not team.is_live:
        st.info(NOT_MEASURED)


def main() -> None:
    """The pickers, and the chosen view of the chosen team."""
    view = page_parts.pick_button("View", tuple(VIEWS), address.PARTNERS_VIEW)
    recipes = list_offered_recipes(page_data.stored_runs())
    try:
        with st.container(horizontal=True, gap="medium"):
            if (recipe := pick_chain(recipes)) is None:
                return
            counts = {str(count or ALL_IMAGES): count for count in list_image_counts(recipe)}
            label = "Images of each data set"
            images = counts[st.selectbox(label, counts, key=address.PARTNERS_IMAGES, bind=address.BIND, width=200)]
        is_live = Team.of_chain(recipe, images).is_live
        guarded_fragment(draw_team, run_every=POLL_SECONDS if is_live else None)(recipe, images, view)
    except MergingError as error:
        st.error(page_text.safe_text(error, 1000), icon=":material/error:")


page_parts.draw_heading(
    "Partners", "Which experts get along, what each brings, which to leave out, and what was known before the merge."
)
main()
