"""Describing a new sweep: recipes, what varies and its values, the images, and what it will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app import text
from app.reading import data, sweeps
from app.session import state
from merging.benchmarks.benchmark import SPLITS
from merging.errors import MergingError
from merging.methods.params import Bound
from merging.recipes.presets import PRESETS
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.sweeps import axis as axes
from merging.sweeps import storage, sweep
from merging.sweeps.sweep import KINDS, LINE, MOST_RECIPES, PLANE, VALUES, Axis, Sweep, resolved
from merging.sweeps.tables import budget
from viz.text import clean_text, plural

WORDS = {VALUES: "values in the chain", LINE: "pretrained to merged", PLANE: "two experts"}
FIRST = ("task_arithmetic_lwptv", "ties_lwptv")  # the presets that the form opens with
ON_REPORTING = (
    "These points are judged on the reporting half. A value that is chosen here has seen the very images that its "
    "accuracy is reported on, so that accuracy will look better than it is. Choose on the choosing half, then report."
)
KINDS_HELP = (
    "Numbers in the recipe; or the way from the pretrained model through what each recipe merges, and beyond; or the "
    "plane that the task vectors of two experts span."
)
STAY: Any = "session"  # widgets keep what was entered while other pages are looked at
HOW = "Written as 0:1:0.1 (first, last, step) or as 0, 0.2, 0.5. Takes {}."


def form(stored: Sequence[Run]) -> None:
    """The form, and the button that starts the sweep."""
    known = _sources(stored)
    with st.grid(2, min_column_width=400, gap="large"):
        with st.container():
            recipes, kind, varied = _what(known)
        with st.container():
            split, images, draw, title = _judged()
    if split != SPLITS[0]:
        st.warning(ON_REPORTING, icon=":material/warning:")
    if not recipes:
        st.info("Choose at least one recipe above.")
        return
    try:
        made = Sweep(
            recipes=tuple(resolved(recipe, Path.cwd()) for recipe in recipes), axes=varied, kind=kind, split=split,
            images=images, seed=draw, title=title,
        )  # fmt: skip
        _start(made)
    except MergingError as error:
        st.error(text.safe_text(error, 500), icon=":material/error:")


def _what(known: Mapping[str, tuple[str, Recipe]]) -> tuple[list[Recipe], str, tuple[Axis, ...]]:
    """The chosen recipes, the kind of the sweep, and what varies."""
    chosen = st.multiselect(
        "Recipes",
        list(known),
        [key for key in ("draft", *FIRST) if key in known][:2],
        format_func=lambda key: known[key][0],
        key="sweep_recipes",
        max_selections=MOST_RECIPES,
        persist_state=STAY,
        placeholder="Choose at least one recipe",
        help="The recipe on the Merge page, stored runs and presets. Several are compared along one axis.",
    )
    recipes = [known[key][1] for key in chosen]
    kind = st.segmented_control(
        "What varies",
        KINDS,
        default=VALUES,
        format_func=WORDS.__getitem__,
        key="sweep_kind",
        persist_state=STAY,
        required=True,
        help=KINDS_HELP,
    )
    return recipes, kind, _varied(kind, recipes) if recipes else ()


def _judged() -> tuple[str, int, int, str]:
    """The split, images of each task, the seed of their draw, and the title."""
    split = st.segmented_control(
        "Judged on the half of each test set that is for", SPLITS, default=SPLITS[0], key="sweep_split",
        persist_state=STAY, required=True, help="Choose values on one half, report on the other.",
    )  # fmt: skip
    images = st.number_input(
        "Images of each task (0: all)", 0, 1_000_000, sweep.IMAGES, 32, key="sweep_images", persist_state=STAY
    )
    draw = st.number_input("Seed of the draw", 0, 10_000, 0, key="sweep_draw", persist_state=STAY)
    title = st.text_input("Title", key="sweep_title", max_chars=100, placeholder="What it is called, if you like")
    return split, int(images), int(draw), title.strip()


def _sources(stored: Sequence[Run]) -> dict[str, tuple[str, Recipe]]:
    """Recipes to begin with, by a key for the picker: label and recipe."""
    pretrained, experts = data.models()
    first = next(iter(pretrained.values()))
    found: dict[str, tuple[str, Recipe]] = {}
    if (draft := state.draft()) is not None and draft.pretrained == first:
        try:
            recipe = draft.recipe(experts)
            found["draft"] = (
                f"On the Merge page: {clean_text(recipe.title or text.chain_title(recipe), 60)}",
                recipe,
            )
        except MergingError:
            pass  # its own page says what is wrong with it
    dead, large = data.carries_dead_params(first), data.is_large(first)
    for preset in PRESETS:
        found[preset.key] = (preset.title, preset.recipe(first, experts, count_dead_params=dead, large=large))
    for run in data.runs(stored):
        try:
            if run.recipe is not None and run.title not in {preset.title for preset in PRESETS}:
                found[run.id] = (text.label(run), run.recipe)
        except MergingError:
            continue  # of a version that knew other methods
    return found


def _varied(kind: str, recipes: Sequence[Recipe]) -> tuple[Axis, ...]:
    """What varies, with the values that were typed."""
    if kind == LINE:
        return (Axis("alpha", _values("alpha", "Interpolation coefficients", axes.ALPHA)),)
    if kind == PLANE:
        names = [name for name, _ in recipes[0].experts]
        pair = st.multiselect("Two experts", names, names[:2], max_selections=2, key="sweep_pair", persist_state=STAY)
        return tuple(Axis(name, _values(f"plane {name}", f"Coefficients of {name}", axes.LAMBDA)) for name in pair)
    known = {target.name: target for target in axes.targets(recipes)}
    if not known:
        st.info("These recipes have no number in common. Choose fewer of them.")
        return ()
    found = []
    for number, label in enumerate(("Value to vary", "and, for a map of two values")):
        if number and len(recipes) > 1:
            break
        options = [name for name in known if name not in {axis.target for axis in found}]
        name = st.selectbox(
            label, options, None if number else 0, format_func=lambda name: known[name].title,
            placeholder="Nothing else", key=f"sweep_axis{number}", persist_state=STAY,
        )  # fmt: skip
        if name is not None:
            found.append(Axis(name, _values(name, f"Values of {known[name].title}", known[name].bound)))
    return tuple(found)


def _values(key: str, label: str, bound: Bound) -> tuple[float, ...]:
    """A field for values, which begins with about eleven of them."""
    typed = st.text_input(
        clean_text(label, 80), axes.written(axes.offered(bound)), key=f"sweep_values {key}", max_chars=2000,
        persist_state=STAY, help=f"{bound.help} {HOW.format(bound.describe())}",
    )  # fmt: skip
    try:
        return axes.parse_values(typed, label)
    except MergingError as error:
        st.error(text.safe_text(error, 300), icon=":material/error:")
        st.stop()


def _start(made: Sweep) -> None:
    """What the sweep takes, and the button."""
    with st.spinner("Reading the checkpoints …"):
        cost = budget(made, data.store(), data.benchmark())
    missing = cost.points - cost.stored
    if missing:
        there = f", {cost.stored:,} of them computed already" if cost.stored else ""
        judged = "as earlier points took here" if cost.known else "a guess until this machine has computed some"
        st.markdown(
            f":material/timer: **{plural(cost.points, 'point')}**{there}: {plural(missing, 'point')} × "
            f"{text.duration(cost.each)}, about **{text.duration(cost.seconds)}** ({judged}). It runs in the "
            "background, and can be paused and resumed."
        )
    else:
        st.markdown(f":material/check_circle: All of its **{plural(cost.points, 'point')}** are computed already.")
    if st.button(
        "Start the sweep" if missing else "Show the sweep",
        type="primary",
        icon=":material/play_arrow:",
        key="sweep_start",
    ):
        storage.keep(made, data.store())
        if missing:
            data.runner().sweep(made.id, sweeps.title(made))
        state.pick_sweep(made.id)
        st.rerun()
