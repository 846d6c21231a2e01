"""Which models the Image page shows: pretrained, an expert, up to two runs, and the recipe that is being built."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import text
from app.reading import data as reading
from app.reading import names, recipes
from app.session import address, run_choice, state
from app.views.image import data
from app.views.image.data import DRAFT, Model, Shown, Study
from app.widgets import run_picker
from merging.base.errors import TaskError
from merging.models.references import EXPERTS, PRETRAINED
from merging.study.runs.run import Run
from viz.text import clean_text

MOST = 2  # runs
USUAL = "usual"
FIRST = ("task_arithmetic", "task_arithmetic_lwptv")  # the presets whose runs are shown at first
WITH_DRAFT = "_image_with_draft"
TITLES = {USUAL: "own expert in domain, else pretrained", PRETRAINED: "pretrained"}
DRAFT_HELP = "Merges in memory what is being built on Merge, or was painted on Masks and opened there."


def pick(image: Shown, stored: Sequence[Run]) -> Study:
    """The pickers of the models, and the study of the image in those."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        runs = _runs(reading.of_clip(stored))
        references = {USUAL: TITLES[USUAL], PRETRAINED: TITLES[PRETRAINED]} | {
            f"{EXPERTS}{task}": f"expert for {clean_text(names.expert(task), 40)}"
            for task in reading.benchmark().experts
        }
        reference = value("Reference", address.REFERENCE, references, USUAL, width=270)
        _heads(image)
        recipe, title = data.draft_recipe()
        if recipe:
            st.toggle("With the draft", key=WITH_DRAFT, help=DRAFT_HELP)
    run_picker.left_out(stored)
    draft = recipe if recipe and st.session_state.get(WITH_DRAFT) else ""
    return study(image, runs, reference, (draft, title))


def value(
    label: str, key: str, options: dict[str, str], first: str, *, width: int = 220, help: str | None = None
) -> str:
    """A picker of one of the options, {value in links: label}, whose value is in the address."""
    chosen = state.picked(key, list(options), first)
    widget = f"image_{key}"
    st.session_state[widget] = chosen
    st.selectbox(
        label, list(options), format_func=lambda one: options[one], key=widget, on_change=state.pick_value_from,
        args=(key, widget), width=width, help=help,
    )  # fmt: skip
    return chosen


def _heads(image: Shown) -> None:
    """The picker of the data set whose classes are asked for."""
    tasks = {one.key: clean_text(names.expert(one.key), 40) for one in reading.benchmark().tasks}
    own_task = image.name.partition(":")[0]
    value(
        "Classes of", address.LABEL_SET, tasks, own_task if own_task in tasks else next(iter(tasks)), width=170,
        help="The data set among whose classes the models choose.",
    )  # fmt: skip


def _first(runs: Sequence[Run]) -> list[str]:
    return [run.id for run in recipes.of_presets(FIRST, runs) or runs[:1]]


def _runs(runs: Sequence[Run]) -> list[Run]:
    """The picker of runs, with a warning about runs in the link that this machine lacks."""
    by_id = {run.id: run for run in runs}
    chosen, lost = run_choice.picked_runs(list(by_id), _first(runs))
    if lost:
        run_picker.missing_runs(lost)
    run_picker.draw_several(by_id, chosen, "imaged", MOST, "Choose up to two runs", width=490)
    if len(chosen) > MOST:
        st.caption(f"The first {MOST} of {len(chosen)} chosen runs.")
    return [by_id[run_id] for run_id in chosen[:MOST]]


def study(image: Shown, runs: Sequence[Run], reference: str = USUAL, draft: tuple[str, str] = ("", "")) -> Study:
    """The models of a page with these runs; ``draft`` is a recipe as YAML, and its title."""
    from merging.study.one_image.towers import expert_of, model_of, reference_of

    experts = reading.benchmark().experts
    own = expert_of(image.head) if image.head in experts else ""
    expert = reference if reference.startswith(EXPERTS) else own
    models = [Model(PRETRAINED, "Pretrained", PRETRAINED)]
    if expert:
        title = f"Expert for {names.expert(expert.removeprefix(EXPERTS))}"
        models.append(Model(expert, title, expert))
    shown = []
    for run in runs:
        try:
            key = model_of(run, image.head)
        except TaskError as error:
            st.caption(f":material/info: {text.safe_text(error, 300)}")
            continue
        against = reference_of(run, image.head) if reference == USUAL else reference
        models.append(Model(key, text.data_set(run.name), against))
        shown.append(run)
    recipe, title = draft
    if recipe:
        models.append(Model(DRAFT, title, (own or PRETRAINED) if reference == USUAL else reference))
    missing = {model.reference for model in models} - {model.key for model in models}
    models[1:1] = [Model(key, f"Expert for {names.expert(key.removeprefix(EXPERTS))}", key) for key in sorted(missing)]
    return Study(image, tuple(models), tuple(shown), recipe)
