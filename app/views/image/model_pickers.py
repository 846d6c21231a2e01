"""The pickers of the Image page's models: pretrained, an expert, up to two runs, and the recipe being built."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import expert_names, recipes
from app.reading import page_data as reading
from app.session import address, run_choice, view_state
from app.views.image import study_tables
from app.views.image.study_tables import DRAFT, ImageStudy, ShownImage, ShownModel
from app.widgets import run_picker
from merging.base.errors import TaskError
from merging.models.model_references import EXPERTS, PRETRAINED
from merging.study.runs.run import Run
from viz.figure_text import clean_text

MAX_RUNS = 2  # runs
OWN_REFERENCE = "usual"  # each run's own reference: the image's expert in domain, else the pretrained model
DEFAULT_PRESETS = ("task_arithmetic", "task_arithmetic_lwptv")  # the presets whose runs are shown at first
DRAFT_SWITCH = "_image_with_draft"
REFERENCE_TITLES = {OWN_REFERENCE: "own expert in domain, else pretrained", PRETRAINED: "pretrained"}
DRAFT_HELP = "Merge the recipe on the Merge page in memory, including factors painted on Masks and opened there."


def pick_models(image: ShownImage, stored_runs: Sequence[Run]) -> ImageStudy:
    """Draw the pickers of the models; returns the study of the image in these models."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        runs = _pick_runs(reading.clip_runs(stored_runs))
        references = {OWN_REFERENCE: REFERENCE_TITLES[OWN_REFERENCE], PRETRAINED: REFERENCE_TITLES[PRETRAINED]} | {
            f"{EXPERTS}{task}": f"expert for {clean_text(expert_names.expert_name(task), 40)}"
            for task in reading.benchmark().experts
        }
        reference = pick_parameter("Reference", address.REFERENCE, references, OWN_REFERENCE, width=270)
        _pick_label_set(image)
        recipe, title = study_tables.read_draft_recipe()
        if recipe:
            st.toggle("With the draft", key=DRAFT_SWITCH, help=DRAFT_HELP)
    run_picker.draw_other_networks_note(stored_runs)  # runs of networks other than CLIP
    draft = recipe if recipe and st.session_state.get(DRAFT_SWITCH) else ""
    return make_study(image, runs, reference, (draft, title))


def pick_parameter(
    label: str, key: str, options: dict[str, str], default: str, *, width: int = 220, help: str | None = None
) -> str:
    """Draw a picker of one of ``options``, {value in links: label}; the page's address contains the choice."""
    value = view_state.resolve_value(key, list(options), default)
    widget_key = f"image_{key}"
    st.session_state[widget_key] = value
    st.selectbox(
        label, list(options), format_func=options.__getitem__, key=widget_key, on_change=view_state.pick_value_from,
        args=(key, widget_key), width=width, help=help,
    )  # fmt: skip
    return value


def _pick_label_set(image: ShownImage) -> None:
    """Draw the picker of the data set whose classes the models choose among."""
    tasks = {task.key: clean_text(expert_names.expert_name(task.key), 40) for task in reading.benchmark().tasks}
    own_task = image.name.partition(":")[0]
    pick_parameter(
        "Classes of", address.LABEL_SET, tasks, own_task if own_task in tasks else next(iter(tasks)), width=170,
        help="The models classify the image into the classes of this data set.",
    )  # fmt: skip


def _find_default_runs(runs: Sequence[Run]) -> list[str]:
    return [run.id for run in recipes.preset_runs(DEFAULT_PRESETS, runs) or runs[:1]]


def _pick_runs(runs: Sequence[Run]) -> list[Run]:
    """Draw the picker of runs, with a warning about linked runs that are missing on this machine."""
    by_id = {run.id: run for run in runs}
    run_ids, missing_ids = run_choice.resolve_runs(list(by_id), _find_default_runs(runs))
    if missing_ids:
        run_picker.draw_missing_runs(missing_ids)
    run_picker.draw_runs_picker(by_id, run_ids, "imaged", MAX_RUNS, "Choose up to two runs", width=490)
    if len(run_ids) > MAX_RUNS:
        st.caption(f"Shows the first {MAX_RUNS} of {len(run_ids)} chosen runs.")
    return [by_id[run_id] for run_id in run_ids[:MAX_RUNS]]


def make_study(
    image: ShownImage, runs: Sequence[Run], reference: str = OWN_REFERENCE, draft: tuple[str, str] = ("", "")
) -> ImageStudy:
    """The study of an image in these runs and their references; ``draft`` is a recipe as YAML and its title."""
    from merging.study.one_image.named_towers import expert_key, model_key, reference_key

    experts = reading.benchmark().experts
    own_expert = expert_key(image.head) if image.head in experts else ""
    expert = reference if reference.startswith(EXPERTS) else own_expert
    models = [ShownModel(PRETRAINED, "Pretrained", PRETRAINED)]
    if expert:
        title = f"Expert for {expert_names.expert_name(expert.removeprefix(EXPERTS))}"
        models.append(ShownModel(expert, title, expert))
    shown_runs = []
    for run in runs:
        try:
            key = model_key(run, image.head)
        except TaskError as error:
            st.caption(f":material/info: {page_text.safe_text(error, 300)}")
            continue
        reference_of_run = reference_key(run, image.head) if reference == OWN_REFERENCE else reference
        models.append(ShownModel(key, page_text.correct_titles(run.name), reference_of_run))
        shown_runs.append(run)
    recipe, title = draft
    if recipe:
        models.append(ShownModel(DRAFT, title, (own_expert or PRETRAINED) if reference == OWN_REFERENCE else reference))
    missing_references = {model.reference for model in models} - {model.key for model in models}
    models[1:1] = [  # experts that are only references come right after the pretrained model
        ShownModel(key, f"Expert for {expert_names.expert_name(key.removeprefix(EXPERTS))}", key)
        for key in sorted(missing_references)
    ]
    return ImageStudy(image, tuple(models), tuple(shown_runs), recipe)
