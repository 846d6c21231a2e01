"""The form of a new sweep: recipes, what varies, its values, the images, and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app import permission, text
from app.permission import asks
from app.reading import data, samples, sweeps
from app.session import state
from app.widgets.jobs import own_machine
from merging.base.errors import MergingError
from merging.base.modes import Act
from merging.base.text import duration_text, estimated_from
from merging.images.benchmarks.benchmark import SPLITS
from merging.methods.params import Bound
from merging.recipes.presets import PRESETS
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run
from merging.study.sweeps import axis as axes
from merging.study.sweeps import storage, sweep
from merging.study.sweeps.sweep import KINDS, LINE, MOST_RECIPES, PLANE, VALUES, Axis, Sweep, resolved
from merging.study.sweeps.tables import budget
from viz.text import clean_text, plural

WORDS = {VALUES: "values in the chain", LINE: "pretrained to merged", PLANE: "two experts"}
FIRST = ("task_arithmetic_lwptv", "ties_lwptv")  # the presets that the form opens with
ON_REPORTING = (
    "These points are evaluated on the {}. A value chosen here has already seen the images on which its "
    "accuracy is reported, so that accuracy is too optimistic. {}"
)
BETTER = {
    False: "Choose values on the choosing half, then report.",
    True: "Choose values on a benchmark that keeps some images for that, then report.",
}
OTHERS = (
    "Recipes of {} are swept on a command line, and shown here: with MERGESCOPE_EVALUATOR, "
    "`python -m merging sweep RUN --vary ties.scaling=0.3:1.0:0.1`; see docs/evaluator.md."
)
KINDS_HELP = (
    "Parameters of the recipe; or the line from the pretrained model through each merged model and beyond; or the "
    "plane spanned by the task vectors of two experts."
)
STAY: Any = "session"  # widgets keep their values while other pages are open
HOW = "Written as 0:1:0.1 (first, last, step) or as 0, 0.2, 0.5. Takes {}."


def form(stored: Sequence[Run]) -> None:
    """The form, and the button that starts the sweep."""
    sources = _sources(stored)
    if others := {run.network: None for run in data.runs(stored) if run.network}:
        networks = text.listed([text.safe_text(name, 60) for name in others])
        st.caption(OTHERS.format(networks))
    with st.grid(2, min_column_width=400, gap="large"):
        with st.container():
            recipes, kind, varied = _what(sources)
        with st.container():
            split, images, draw, title = _judged()
    if split != SPLITS[0]:
        st.warning(on_reporting(), icon=":material/warning:")
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


def on_reporting() -> str:
    """What is to be known of points on images that scores are reported on."""
    return ON_REPORTING.format(samples.part(), BETTER[samples.is_whole()])


def _what(sources: Mapping[str, tuple[str, Recipe]]) -> tuple[list[Recipe], str, tuple[Axis, ...]]:
    """Pickers of the recipes, the kind of the sweep, and its axes; returns them."""
    chosen = st.multiselect(
        "Recipes",
        list(sources),
        [key for key in ("draft", *FIRST) if key in sources][:2],
        format_func=lambda key: sources[key][0],
        key="sweep_recipes",
        max_selections=MOST_RECIPES,
        persist_state=STAY,
        placeholder="Choose at least one recipe",
        help="The recipe on the Merge page, stored runs and presets. Several are compared along one axis.",
    )
    recipes = [sources[key][1] for key in chosen]
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
    """Fields for the split, the images of each task, the seed of their draw, and the title; returns them."""
    if samples.is_whole():
        split = SPLITS[1]
    else:
        split = st.segmented_control(
            "Half of each test set to evaluate on", SPLITS, default=SPLITS[0], key="sweep_split",
            persist_state=STAY, required=True, help="Choose values on one half, report on the other.",
        )  # fmt: skip
    images = st.number_input(
        "Images of each task (0: all)", 0, 1_000_000, sweep.IMAGES, 32, key="sweep_images", persist_state=STAY
    )
    draw = st.number_input("Seed of the draw", 0, 10_000, 0, key="sweep_draw", persist_state=STAY)
    title = st.text_input("Title", key="sweep_title", max_chars=100, placeholder="Optional")
    return split, int(images), int(draw), title.strip()


def _sources(stored: Sequence[Run]) -> dict[str, tuple[str, Recipe]]:
    """{key in the picker: (label, recipe)} of the recipes to choose from."""
    pretrained, experts = data.models()
    first = next(iter(pretrained.values()))
    choices: dict[str, tuple[str, Recipe]] = {}
    if (draft := state.draft()) is not None and draft.pretrained == first:
        try:
            recipe = draft.recipe(experts)
            choices["draft"] = (
                f"On the Merge page: {clean_text(recipe.title or text.chain_title(recipe), 60)}",
                recipe,
            )
        except MergingError:
            pass  # the Merge page shows what is wrong
    large = data.is_large(first)
    for preset in PRESETS:
        choices[preset.key] = (preset.name_in_lists(large), preset.recipe(first, experts, large=large))
    for run in data.of_clip(stored):
        try:
            if run.recipe is not None and run.title not in {preset.title for preset in PRESETS}:
                choices[run.id] = (text.label(run), run.recipe)
        except MergingError:
            continue  # a method of another version
    return choices


def _varied(kind: str, recipes: Sequence[Recipe]) -> tuple[Axis, ...]:
    """The axes, with their typed values."""
    if kind == LINE:
        return (Axis("alpha", _values("alpha", "Interpolation coefficients", axes.ALPHA)),)
    if kind == PLANE:
        names = [name for name, _ in recipes[0].experts]
        pair = st.multiselect("Two experts", names, names[:2], max_selections=2, key="sweep_pair", persist_state=STAY)
        return tuple(Axis(name, _values(f"plane {name}", f"Coefficients of {name}", axes.LAMBDA)) for name in pair)
    targets = {target.name: target for target in axes.targets(recipes)}
    if not targets:
        st.info("These recipes have no numeric parameter in common. Choose fewer of them.")
        return ()
    varied = []
    for number, label in enumerate(("Parameter to vary", "Second parameter, for a map")):
        if number and len(recipes) > 1:
            break
        options = [name for name in targets if name not in {axis.target for axis in varied}]
        name = st.selectbox(
            label, options, None if number else 0, format_func=lambda name: targets[name].title,
            placeholder="None", key=f"sweep_axis{number}", persist_state=STAY,
        )  # fmt: skip
        if name is not None:
            varied.append(Axis(name, _values(name, f"Values of {targets[name].title}", targets[name].bound)))
    return tuple(varied)


def _values(key: str, label: str, bound: Bound) -> tuple[float, ...]:
    """A field for values, with about eleven at first."""
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
    """The cost of the sweep, and the button."""
    with st.spinner("Reading the checkpoints …"):
        cost = budget(made, data.store(), data.benchmark())
    missing = cost.points - cost.stored
    if missing:
        there = f", {cost.stored:,} of them already computed" if cost.stored else ""
        source = estimated_from(cost.known, "point")
        st.markdown(
            f":material/timer: **{plural(cost.points, 'point')}**{there}: {plural(missing, 'point')} × "
            f"{duration_text(cost.each)}, about **{duration_text(cost.seconds)}** ({source}). It runs in the "
            "background, and can be paused and resumed."
        )
    else:
        st.markdown(f":material/check_circle: Already computed: all of its **{plural(cost.points, 'point')}**.")
    if missing and own_machine.refused(Act.SWEEP):
        return
    if st.button(
        "Start the sweep" if missing else "Show the sweep",
        type="primary",
        icon=":material/play_arrow:",
        key="sweep_start",
    ):
        if permission.allows(Act.SWEEP):
            _keep(made)
        if missing:
            data.runner().sweep(made.id, sweeps.title(made))
        state.pick_sweep(made.id)
        st.rerun()


@asks(Act.SWEEP)
def _keep(made: Sweep) -> None:
    """Store the sweep."""
    storage.keep(made, data.store())
