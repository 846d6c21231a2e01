"""The form of a new sweep: recipes, the varied parameters and their values, the images, and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, samples
from app.reading.recipes import list_offered_recipes
from app.session import view_state
from app.views.sweeps import tuning_form
from app.views.sweeps.tuning_form import TUNING
from app.widgets.jobs import sweep_status
from merging.base.errors import MergingError
from merging.images.benchmarks.benchmark import SPLITS
from merging.methods.params import Bound
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run
from merging.study.sweeps import sweep
from merging.study.sweeps import sweep_target as axes
from merging.study.sweeps.sweep import (
    AXIS_KINDS,
    LINE,
    MAX_RECIPES,
    MERGED,
    MODEL_COUNTS,
    PLANE,
    VALUES,
    Axis,
    Sweep,
    with_absolute_paths,
)
from viz.figure_text import clean_text

CHOOSING, REPORTING = SPLITS  # the halves of each test set
KIND_LABELS = {VALUES: "values in the chain", LINE: "line through two models", PLANE: "plane through three models",
               TUNING: "search for the best values"}  # fmt: skip
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
    "Parameters of the recipe, or the straight line through two models and beyond, or the plane through three models. "
    "A search asks for the points that promise most, and is shown beside random search and a grid."
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
            recipes, kind, sweep_axes, through = _draw_recipes(offered_recipes)
            if kind == TUNING:
                entries = tuning_form.pick_space(recipes)
        with st.container():
            if kind == TUNING:
                tuning_form.draw_start(recipes, entries)
                return
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
            images=images, seed=seed, title=title, through=through,
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


def _draw_recipes(
    offered_recipes: Mapping[str, tuple[str, Recipe]],
) -> tuple[list[Recipe], str, tuple[Axis, ...], tuple[str, ...]]:
    """Draw pickers of the recipes, the kind, the axes and the models of the sweep; returns them in this order."""
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
    labels, recipes = [offered_recipes[key][0] for key in recipe_keys], [offered_recipes[key][1] for key in recipe_keys]
    kind = st.segmented_control(
        "What varies",
        (*AXIS_KINDS, TUNING),
        default=VALUES,
        format_func=KIND_LABELS.__getitem__,
        key="sweep_kind",
        persist_state=PERSIST_STATE,
        required=True,
        help=KINDS_HELP,
    )
    through: tuple[str, ...] = ()
    if kind in MODEL_COUNTS and recipes:
        recipes, through = _pick_models(kind, recipes, labels)
    return recipes, kind, _draw_axes(kind, recipes) if recipes and kind != TUNING else (), through


def _pick_models(kind: str, recipes: Sequence[Recipe], labels: Sequence[str]) -> tuple[list[Recipe], tuple[str, ...]]:
    """Draw the picker of the models of a line or a plane; returns the recipes that it needs, and the models' names."""
    names = {PRETRAINED: "Pretrained"}
    shared = [dict(recipe.experts) for recipe in recipes]  # the first recipe in use names the experts
    shared_names = [name for name, file in shared[0].items() if all(other.get(name) == file for other in shared)]
    names |= {name: f"Expert {expert_names.expert_name(name)}" for name in shared_names}
    merges = {f"{MERGED} {number}": recipe for number, recipe in enumerate(recipes, 1)}
    names |= {name: f"Merge: {label}" for name, label in zip(merges, labels, strict=True)}
    count = MODEL_COUNTS[kind]
    chosen = st.multiselect(
        "Models", names, list(names)[:3] if kind == PLANE else None, max_selections=count,
        format_func=lambda name: clean_text(names[name], 80), key=f"sweep_models_{kind}", persist_state=PERSIST_STATE,
        placeholder="From the pretrained model to each merge" if kind == LINE else f"Choose {count} models",
        help="In order: the first is at 0, each other one at 1 of its axis.",
    )  # fmt: skip
    if not chosen:
        return list(recipes), ()
    used = [name for name in merges if name in chosen]
    renamed = {name: MERGED if number == 1 else f"{MERGED} {number}" for number, name in enumerate(used, 1)}
    return [merges[name] for name in used] or [recipes[0]], tuple(renamed.get(name, name) for name in chosen)


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
        return (Axis("alpha", _pick_values("alpha", "Interpolation coefficients", axes.POSITION)),)
    if kind == PLANE:
        plane_values = _pick_values("plane", "Coefficients of both axes", axes.POSITION, axes.PLANE_VALUES)
        return Axis("alpha", plane_values), Axis("beta", plane_values)
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


def _pick_values(key: str, label: str, bound: Bound, proposed: Sequence[float] = ()) -> tuple[float, ...]:
    """Draw a text field for the values of an axis, which opens with about eleven proposed ones; returns the values."""
    takes = VALUES_HINT.format(bound.describe())
    typed_text = st.text_input(
        clean_text(label, 80), axes.write_values(proposed or axes.propose_values(bound)), key=f"sweep_values {key}",
        max_chars=2000,
        persist_state=PERSIST_STATE, help=page_text.safe_text(f"{bound.help} {takes}", 800),
    )  # fmt: skip
    try:
        return axes.parse_values(typed_text, label)
    except MergingError as error:
        st.error(page_text.safe_text(error, 300), icon=":material/error:")
        st.stop()
