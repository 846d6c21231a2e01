"""The form of a new sweep: recipes, the varied parameters and their values, the images, and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app import page_text
from app.reading import page_data, samples
from app.reading.recipes import list_offered_recipes
from app.session import view_state
from app.widgets.jobs import sweep_status
from merging.base.errors import MergingError
from merging.images.benchmarks.benchmark import SPLITS
from merging.methods.params import Bound
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run
from merging.study.sweeps import sweep
from merging.study.sweeps import sweep_target as axes
from merging.study.sweeps.sweep import AXIS_KINDS, LINE, MAX_RECIPES, PLANE, VALUES, Axis, Sweep, with_absolute_paths
from viz.figure_text import clean_text

CHOOSING, REPORTING = SPLITS  # the halves of each test set
KIND_LABELS = {VALUES: "values in the chain", LINE: "pretrained to merged", PLANE: "two experts"}
DEFAULT_PRESETS = ("task_arithmetic_lwptv", "ties_lwptv")  # the presets that the form opens with
REPORTING_CAUTION = (
    "These points are evaluated on the {}. If you choose a value by these points, and then report its accuracy on the "
    "same images, the reported accuracy is too optimistic. {}"
)
ADVICE_WITH_HALVES = "Choose values on the choosing half, then report."
ADVICE_WITHOUT_HALVES = "Choose values on a benchmark with separate images for that, then report."
OTHER_NETWORKS_NOTE = (
    "Sweeps of recipes of {} start on a command line with MERGESCOPE_EVALUATOR and appear on this page: "
    "`mergescope sweep RUN --vary ties.scaling=0.3:1.0:0.1`. See docs/evaluator.md."
)
KINDS_HELP = (
    "Parameters of the recipe, or the straight line from the pretrained model through each merged model and beyond, or "
    "the plane spanned by the task vectors of two experts."
)
PERSIST_STATE: Any = "session"  # widgets then retain their values while other pages are open
VALUES_HINT = "Write 0:1:0.1 (first, last, step) or 0, 0.2, 0.5. Takes {}."


def draw_form(stored_runs: Sequence[Run]) -> None:
    """Draw the form and the button that starts the sweep."""
    offered_recipes = list_offered_recipes(stored_runs)
    if other_networks := {run.network: None for run in page_data.list_merges(stored_runs) if run.network}:
        networks = page_text.join_words([page_text.safe_text(name, 60) for name in other_networks])
        st.caption(OTHER_NETWORKS_NOTE.format(networks))
    with st.grid(2, min_column_width=400, gap="large"):
        with st.container():
            recipes, kind, sweep_axes = _draw_recipes(offered_recipes)
        with st.container():
            split, images, seed, title = _draw_images()
    if split != CHOOSING:
        st.warning(make_reporting_caution(), icon=":material/warning:")
    if not recipes:
        st.info("Choose at least one recipe above.")
        return
    try:
        new_sweep = Sweep(
            recipes=tuple(with_absolute_paths(recipe, Path.cwd()) for recipe in recipes), axes=sweep_axes, kind=kind,
            split=split,
            images=images, seed=seed, title=title,
        )  # fmt: skip
        sweep_status.draw_start(
            new_sweep, ("Start the sweep", "Show the sweep"), lambda: view_state.pick_sweep(new_sweep.id)
        )
    except MergingError as error:
        st.error(page_text.safe_text(error, 500), icon=":material/error:")


def make_reporting_caution() -> str:
    """The caution for points that are evaluated on the reporting half, or on the whole test set."""
    advice = ADVICE_WITHOUT_HALVES if samples.is_whole_test_set() else ADVICE_WITH_HALVES
    return REPORTING_CAUTION.format(samples.scored_part(), advice)


def _draw_recipes(offered_recipes: Mapping[str, tuple[str, Recipe]]) -> tuple[list[Recipe], str, tuple[Axis, ...]]:
    """Draw pickers of the recipes, the kind of the sweep and its axes; returns them."""
    recipe_keys = st.multiselect(
        "Recipes",
        list(offered_recipes),
        [key for key in ("draft", *DEFAULT_PRESETS) if key in offered_recipes][:2],
        format_func=lambda key: offered_recipes[key][0],
        key="sweep_recipes",
        max_selections=MAX_RECIPES,
        persist_state=PERSIST_STATE,
        placeholder="Choose at least one recipe",
        help="The recipe on the Merge page, stored runs and presets. Several are compared along one axis.",
    )
    recipes = [offered_recipes[key][1] for key in recipe_keys]
    kind = st.segmented_control(
        "What varies",
        AXIS_KINDS,
        default=VALUES,
        format_func=KIND_LABELS.__getitem__,
        key="sweep_kind",
        persist_state=PERSIST_STATE,
        required=True,
        help=KINDS_HELP,
    )
    return recipes, kind, _draw_axes(kind, recipes) if recipes else ()


def _draw_images() -> tuple[str, int, int, str]:
    """Draw fields for the split, the images of each task, their sampling seed and the title; returns them."""
    if samples.is_whole_test_set():
        split = REPORTING
    else:
        split = st.segmented_control(
            "Half of each test set to evaluate on", SPLITS, default=CHOOSING, key="sweep_split",
            persist_state=PERSIST_STATE, required=True, help="Choose values on one half, report on the other.",
        )  # fmt: skip
    images = st.number_input(
        "Images of each task (0: all)",
        0,
        1_000_000,
        sweep.DEFAULT_IMAGES,
        32,
        key="sweep_images",
        persist_state=PERSIST_STATE,
    )
    seed = st.number_input("Sampling seed", 0, 10_000, 0, key="sweep_draw", persist_state=PERSIST_STATE)
    title = st.text_input("Title", key="sweep_title", max_chars=100, placeholder="Optional")
    return split, int(images), int(seed), title.strip()


def _draw_axes(kind: str, recipes: Sequence[Recipe]) -> tuple[Axis, ...]:
    """Draw the pickers of the axes; returns the axes with their typed values."""
    if kind == LINE:
        return (Axis("alpha", _pick_values("alpha", "Interpolation coefficients", axes.ALPHA)),)
    if kind == PLANE:
        names = [name for name, _ in recipes[0].experts]
        pair = st.multiselect(
            "Two experts", names, names[:2], max_selections=2, key="sweep_pair", persist_state=PERSIST_STATE
        )
        return tuple(Axis(name, _pick_values(f"plane {name}", f"Coefficients of {name}", axes.LAMBDA)) for name in pair)
    targets = {target.name: target for target in axes.list_targets(recipes)}
    if not targets:
        st.info("These recipes have no numeric parameter in common. Choose fewer of them.")
        return ()
    sweep_axes = []
    for number, label in enumerate(("Parameter to vary", "Second parameter, for a map")):
        if number and len(recipes) > 1:  # several recipes are lines over one axis, so a map has only one recipe
            break
        options = [name for name in targets if name not in {axis.target for axis in sweep_axes}]
        name = st.selectbox(
            label, options, None if number else 0, format_func=lambda name: targets[name].title,
            placeholder="None", key=f"sweep_axis{number}", persist_state=PERSIST_STATE,
        )  # fmt: skip
        if name is not None:
            sweep_axes.append(Axis(name, _pick_values(name, f"Values of {targets[name].title}", targets[name].bound)))
    return tuple(sweep_axes)


def _pick_values(key: str, label: str, bound: Bound) -> tuple[float, ...]:
    """Draw a text field for the values of an axis, which opens with about eleven proposed ones; returns the values."""
    typed_text = st.text_input(
        clean_text(label, 80), axes.write_values(axes.propose_values(bound)), key=f"sweep_values {key}", max_chars=2000,
        persist_state=PERSIST_STATE, help=f"{bound.help} {VALUES_HINT.format(bound.describe())}",
    )  # fmt: skip
    try:
        return axes.parse_values(typed_text, label)
    except MergingError as error:
        st.error(page_text.safe_text(error, 300), icon=":material/error:")
        st.stop()
