"""The form of a new tuning: its space, objectives, sampler and budget, with the estimated time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import page_data
from app.session import view_state
from app.views.sweeps import tuning_data
from app.views.sweeps.tuning_data import OBJECTIVE_TITLES
from app.widgets.jobs import refused_action
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.base.text import duration_text, estimate_basis
from merging.recipes.recipe import Recipe
from merging.study.sweeps.sweep import DEFAULT_IMAGES, with_absolute_paths
from merging.study.sweeps.sweep_tables import estimate_point
from merging.study.sweeps.sweep_target import EXPERTS, list_targets
from merging.study.tuning.space import COEFFICIENTS, EDITS, KINDS
from merging.study.tuning.tuning import MAX_MINUTES, MAX_POINTS, SAMPLERS, Tuning, store_tuning
from merging.study.tuning.tuning_session import TuningSession
from viz.figure_text import plural

TUNING = "tune"
KEEP: Any = "session"  # widgets then retain their values while other pages are open
AUTOMATIC = "automatic"
SPACE_HELP = "Write a range as 0.1:0.9 or choices as 0.1|0.2. Empty: all of the parameter's range, or its choices."
EDITS_HELP = "Write choices of edits such as none|lwptv|magnitude:prune_ratio=0.2."
COEFFICIENTS_HELP = "A factor for each expert, such as 0:1.5. Empty: 0 to 2."
UNITS = ("points of each search", "minutes of all")


def pick_space(recipes: Sequence[Recipe]) -> tuple[tuple[str, str], ...]:
    """Draw the picker of what varies in the first recipe, and a field for each; returns the entries of the space."""
    if not recipes:
        return ()
    if len(recipes) > 1:
        st.caption("A search takes one recipe: the first.")
    targets = {one.name: one.title for one in list_targets([recipes[0]], KINDS) if one.name != EXPERTS}
    names = targets | {EDITS: "Choice of edits", COEFFICIENTS: "A coefficient for each expert"}
    chosen = st.multiselect(
        "What the search varies", names, list(targets)[:1], format_func=names.__getitem__, key="tune_space",
        persist_state=KEEP, help="Coefficients of single blocks can be searched with `mergescope tune`.",
    )  # fmt: skip
    helps = {EDITS: EDITS_HELP, COEFFICIENTS: COEFFICIENTS_HELP}
    return tuple(
        (name, st.text_input(names[name], "none|lwptv" if name == EDITS else "", key=f"tune_values {name}",
                             max_chars=500, persist_state=KEEP, help=helps.get(name, SPACE_HELP)).strip())
        for name in chosen
    )  # fmt: skip


def draw_start(recipes: Sequence[Recipe], entries: tuple[tuple[str, str], ...]) -> None:
    """Draw the settings of the search, its cost, and the button that starts it."""
    settings = _draw_settings()
    if not recipes:
        st.info("Choose at least one recipe above.")
        return
    try:
        tuning = Tuning(recipe=with_absolute_paths(recipes[0], Path.cwd()), space=entries, **settings)
        session = TuningSession(tuning, page_data.store(), page_data.benchmark())
        _draw_cost(session)
    except MergingError as error:
        st.error(page_text.safe_text(error, 500), icon=":material/error:")
        return
    if refused_action.draw_refusal(VisitorAction.SWEEP):
        return
    if st.button("Start the search", type="primary", icon=":material/play_arrow:", key="tune_start"):
        if permissions.is_allowed(VisitorAction.SWEEP):
            _store(tuning)
        page_data.job_queue().tune(tuning.id, tuning_data.tuning_title(tuning))
        view_state.pick_sweep(tuning.id)
        st.rerun()


def _draw_settings() -> dict[str, Any]:
    """Draw the fields of the search; returns the fields of a tuning."""
    objectives = st.multiselect(
        "Objectives", OBJECTIVE_TITLES, ["h"], format_func=OBJECTIVE_TITLES.__getitem__, max_selections=3,
        key="tune_objectives", persist_state=KEEP,
        help="Two or three give a front of points, none of which is worse by all.",
    )  # fmt: skip
    sampler = st.selectbox(
        "Sampler", (AUTOMATIC, *SAMPLERS), key="tune_sampler", persist_state=KEEP,
        help="Automatic: TPE for one objective, NSGA-II for several. CMA-ES moves numbers only.",
    )  # fmt: skip
    unit = st.segmented_control(
        "Budget in", UNITS, default=UNITS[0], key="tune_unit", persist_state=KEEP, required=True
    )
    in_points = unit == UNITS[0]
    budget = st.number_input(
        "Budget", 2 if in_points else 1, MAX_POINTS if in_points else MAX_MINUTES, 60 if in_points else 30,
        key=f"tune_budget {UNITS.index(unit)}", persist_state=KEEP,
    )  # fmt: skip
    images = st.number_input(
        "Images of each task (0: all)", 0, 1_000_000, DEFAULT_IMAGES, 32, key="tune_images", persist_state=KEEP
    )
    seed = st.number_input("Seed", 0, 10_000, 0, key="tune_seed", persist_state=KEEP)
    title = st.text_input("Title", key="tune_title", max_chars=100, placeholder="Optional", persist_state=KEEP)
    return {
        "objectives": tuple(objectives), "sampler": "" if sampler == AUTOMATIC else sampler, "images": int(images),
        "points": int(budget) if in_points else 0, "minutes": 0 if in_points else int(budget), "seed": int(seed),
        "title": title.strip(),
    }  # fmt: skip


def _draw_cost(session: TuningSession) -> None:
    tuning = session.tuning
    if not tuning.points:
        st.markdown(f":material/timer: About **{duration_text(60 * tuning.minutes)}**, a third of it for the search.")
        return
    seconds, is_known = estimate_point(session.session, tuning.recipe, session.store)
    st.markdown(
        f":material/timer: **{plural(3 * tuning.points, 'point')}**, {tuning.points:,} each of the search, of random "
        f"search and of a grid: about **{duration_text(3 * tuning.points * seconds)}** "
        f"({estimate_basis(is_known, 'point')}). It runs in the background, and can be paused and resumed."
    )


@requires(VisitorAction.SWEEP)
def _store(tuning: Tuning) -> None:
    """Store the tuning."""
    store_tuning(tuning, page_data.store())
