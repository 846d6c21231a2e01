"""The left-hand side of the Merge page: experts, edits, merge and adaptation, with their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from app import page_text, permissions
from app.reading import expert_names, page_data, recipes, samples
from app.session import pages, view_state
from app.session.draft import Draft, DraftStep, parse_chain, sort_names
from app.views.merge import factor_picture, network_options
from app.widgets import page_parts, parameter_controls
from merging.base.errors import CheckpointError, MergingError, RecipeError
from merging.base.modes import VisitorAction
from merging.base.text import first_few, printable
from merging.images.benchmarks.metrics import TASK_KNOWN
from merging.methods import registry
from merging.methods.edits.manual import ManualParams
from merging.methods.method import Adapt, Edit, Merge, Method, Needs
from merging.models.model_references import PRETRAINED
from merging.recipes.mergekit.config import is_config
from merging.recipes.mergekit.reading import read_mergekit
from merging.recipes.presets import find_preset, list_offered
from merging.recipes.recipe import Exemplars, Recipe, TestData
from merging.sharing.catalog.model_set_store import ModelSet
from viz.figure_text import clean_text, percent

DEFAULT_PRESET = "task_arithmetic_lwptv"  # the preset whose chain the page opens with
UNUSED_TENSORS = (
    "This checkpoint has tensors of a text encoder that no expert changed. Published code counts them when it takes "
    "the largest scalars or layers of a task vector; turn this on to compare with published figures."
)
UNUSED_TENSORS_RULE = (
    "This is off in your own chains, as on the command line and in Python; combinations from the papers turn it on. "
    "The recipe stores the choice, so it gives the same weights on every machine."
)
ACTIVATION_HELP = (
    "The files do not state which activation the models were trained with. OpenAI's models use QuickGELU, those of "
    "LAION and DataComp mostly GELU. Exemplars and evaluations depend on it."
)
ACTIVATION_TITLES = {"": "from the files, or assumed", "quick_gelu": "QuickGELU", "gelu": "GELU"}
RECIPE_HELP = "A recipe of Mergescope, or a config of mergekit whose models are pretrained and names of experts."
NOT_ADAPTED = "No adaptation"
LEARNING_NOTE = "The chain learns from images of the merged tasks, without their labels. They come from the benchmark."
SET_KEY, EXPERTS_KEY = "models_chosen", "experts_chosen"  # widget keys: the set of models, the chosen experts
MAX_CHARACTERS = 100_000  # characters of a recipe; real ones have a few hundred


def choose_models() -> ModelSet:
    """The models to merge: the benchmark's, or a set of the user's own.

    Raises:
        TaskError: there are no models.
    """
    sets = page_data.model_sets()
    set_key, missing_id = view_state.resolve_set(list(sets))
    if missing_id:
        st.warning(
            f"The set of models “{page_text.safe_text(missing_id, 20)}” is no longer available; another set is shown."
        )
    set_key = set_key if set_key in sets else next(iter(sets))
    st.session_state[SET_KEY] = set_key  # the picker follows the link
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Models", list(sets), format_func=lambda key: clean_text(sets[key].title, 60), key=SET_KEY,
            on_change=_choose_set, width=420, help="Make your own sets on Models & runs.",
        )  # fmt: skip
        page_parts.draw_page_link(pages.MODELS, "Use your own models", "add")
    return sets[set_key]


def _choose_set() -> None:
    view_state.pick_set(st.session_state[SET_KEY])


def find_current_draft(models: ModelSet) -> Draft:
    """The recipe being built: from the link, else from this session, else from a preset; always on these models."""
    current, experts = view_state.draft(), dict(models.experts)
    if link := view_state.linked_chain():
        chain, names = link
        try:
            chosen = sort_names(names, experts) or list(experts)
            current = parse_chain(chain, models.pretrained, chosen)
        except MergingError as error:
            st.warning(f"The recipe in this link cannot be used: {page_text.safe_text(error, 300)}")
    try:
        if current is not None:
            current.chain()
    except MergingError as error:  # a method of your own was edited or deleted since the draft was made
        st.warning(f"The recipe that was here cannot be used: {page_text.safe_text(error, 600)}")
        current = None
    if current is None:
        current = _make_preset_draft(DEFAULT_PRESET, models.pretrained, experts)
        current.count_dead_params = False  # to count unused text tensors; only a preset that the user chooses does so
    if current.pretrained != models.pretrained or not set(current.experts) <= set(experts):
        current.pretrained, current.experts = models.pretrained, list(experts)
        current.forget_model_choices()
    view_state.store_draft(current)
    return current


def draw_presets(current: Draft, experts: Mapping[str, str]) -> None:
    """Draw pickers of a combination from the papers, or of the user's own recipe."""
    by_key = {preset.key: preset for preset in list_offered(recipes.network_name(current.pretrained))}
    large = page_data.is_large(current.pretrained)  # papers set other values for large models
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Start from a combination in the papers", list(by_key), None,
            format_func=lambda key: by_key[key].name_in_lists(large), key="preset", on_change=_use_preset,
            args=(current, experts), placeholder="Choose a preset", width=420,
        )  # fmt: skip
        with st.popover("Load a recipe", icon=":material/upload_file:"):
            st.text_area("Recipe as YAML", key="recipe_text", max_chars=MAX_CHARACTERS, height=220, help=RECIPE_HELP)
            if permissions.is_allowed(VisitorAction.UPLOAD):
                st.file_uploader("or a file", ["yaml", "yml"], key="recipe_file", max_upload_size=1)
            st.button("Use this recipe", on_click=_use_recipe, args=(current.pretrained, experts))
    if problem := st.session_state.pop("recipe_problem", ""):
        st.error(page_text.safe_text(problem, 1000), icon=":material/error:")
    if note := st.session_state.pop("recipe_note", ""):
        st.info(page_text.safe_text(note, 400))
    if shown_preset := by_key.get(st.session_state.get("preset_shown", "")):
        st.caption(f"{shown_preset.name_in_lists(large)}: {shown_preset.source}. {shown_preset.note}")


def _make_preset_draft(key: str, pretrained: str, experts: Mapping[str, str]) -> Draft:
    return Draft.from_recipe(find_preset(key).recipe(pretrained, experts, large=page_data.is_large(pretrained)))


def _use_preset(current: Draft, experts: Mapping[str, str]) -> None:
    if key := st.session_state["preset"]:
        chosen_experts = {name: experts[name] for name in current.experts} or dict(experts)
        view_state.store_draft(_make_preset_draft(key, current.pretrained, chosen_experts))
        st.session_state["preset_shown"] = key


def _use_recipe(pretrained: str, experts: Mapping[str, str]) -> None:
    """Callback: use a recipe if all its checkpoints are listed; pages open no other files.

    Models of a config of mergekit are names of ``experts``, or ``pretrained``.
    """
    upload = st.session_state.get("recipe_file")
    try:
        text = upload.getvalue().decode("utf-8") if upload else st.session_state["recipe_text"]
        text = text[:MAX_CHARACTERS]
        recipe = _read_config(text, pretrained, experts) if is_config(text) else Recipe.from_yaml(text)
    except UnicodeDecodeError:
        st.session_state["recipe_problem"] = "This file is not text, so it is not a recipe."
    except MergingError as error:
        st.session_state["recipe_problem"] = str(error)
    else:
        set_key = recipes.find_model_set(recipe)
        if set_key is None:
            names = first_few((name for name, _ in recipe.experts), 3)
            st.session_state["recipe_problem"] = (
                f"This recipe uses checkpoints that are not one of the sets on this page ({names}). Make a set of them "
                "on Models & runs, or run the recipe with `mergescope run recipe.yaml`."
            )
        else:
            view_state.pick_set(set_key)
            view_state.store_draft(Draft.from_recipe(recipe))
            st.session_state["preset_shown"] = ""
            st.session_state["recipe_note"] = " ".join(recipe.unused)  # settings without effect


def _read_config(text: str, pretrained: str, experts: Mapping[str, str]) -> Recipe:
    """The recipe of a config of mergekit for models of this page. Raises RecipeError for any other model."""
    from merging.recipes.mergekit.tensors import read_network_tensors  # loads torch

    named = {PRETRAINED: pretrained, **experts}

    def find(written: str) -> str:
        if written not in named:
            raise RecipeError(
                f"The config names the model {printable(written, 60)}. On this page, its models are "
                f"{first_few(named, 12)}; write these names, or run `mergescope merge --mergekit config.yml`."
            )
        return named[written]

    return read_mergekit(text, read_network_tensors, find, pretrained)


def draw_step_controls(step: DraftStep, method: Method, current: Draft, experts: Mapping[str, str]) -> bool:
    """Draw a step's summary and parameters; returns whether they are valid."""
    st.caption(page_text.safe_text(method.summary, 300))
    params = parameter_controls.draw_parameters(method.params, step.values, f"stage{step.uid}", current.experts)
    if isinstance(params, ManualParams):
        factor_picture.draw_factors(step, params, current, experts)
    return params is not None


def draw_models(current: Draft, experts: Mapping[str, str], own_accuracies: Mapping[str, float]) -> None:
    """Draw the pretrained model and a picker of experts, each with its accuracy on its own task."""
    from merging.models.model_references import strip_folders  # loads torch

    st.markdown(f"Pretrained: **{page_text.safe_text(strip_folders(current.pretrained))}**")

    def label(name: str) -> str:
        accuracy = percent(own_accuracies[name]) if name in own_accuracies else ""
        return f"{clean_text(expert_names.expert_name(name), 40)} {accuracy}".strip()

    # The callback stored the user's choice in the draft.
    st.session_state[EXPERTS_KEY] = sort_names(current.experts, experts)
    st.multiselect(
        "Experts", list(experts), format_func=label, key=EXPERTS_KEY, on_change=_choose_experts,
        args=(current, experts),
        help=f"With each expert's accuracy on its own task, on the {samples.scored_part()}.",
        placeholder="Choose at least one expert",
    )  # fmt: skip


def _choose_experts(current: Draft, experts: Mapping[str, str]) -> None:
    current.experts = sort_names(st.session_state[EXPERTS_KEY], experts)


def draw_chain_controls(current: Draft, experts: Mapping[str, str]) -> bool:
    """Draw the chain: edits in order, the merge and the adaptation; returns whether every value is valid."""
    methods = registry.list_methods()
    edits = {method.key: method for method in methods if isinstance(method, Edit)}
    merges = {method.key: method for method in methods if isinstance(method, Merge)}
    is_valid = True
    for index, step in enumerate(current.edits):
        with st.container(border=True, key=f"box{step.uid}"):
            with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", wrap=False):
                st.markdown(f"**{index + 1}. {page_text.title_with_owner(edits[step.key])}**", width="stretch")
                is_last = index == len(current.edits) - 1
                _draw_icon_button("arrow_upward", step, "Earlier in the chain", index == 0, current.move, step.uid, -1)
                _draw_icon_button("arrow_downward", step, "Later in the chain", is_last, current.move, step.uid, 1)
                _draw_icon_button("close", step, "Remove this edit", False, current.remove, step.uid)
            is_valid &= draw_step_controls(step, edits[step.key], current, experts)
    st.selectbox(
        "Add an edit", list(edits), None, key="new_edit",
        format_func=lambda key: page_text.title_with_owner(edits[key]), on_change=_add_edit, args=(current,),
        placeholder="Add an edit to the chain", label_visibility="collapsed",
    )  # fmt: skip
    with st.container(border=True):
        keys, merge = list(merges), current.merge
        merge_key = st.selectbox(
            "Then merge with",
            keys,
            keys.index(merge.key),
            lambda key: page_text.title_with_owner(merges[key]),
            key=f"merge{merge.uid}",
        )
        if merge_key != merge.key:
            current.merge = DraftStep(merge_key)
            st.rerun()
        is_valid &= draw_step_controls(current.merge, merges[merge_key], current, experts)
    is_clip = not recipes.network_name(current.pretrained, current.family)
    if current.adapt is not None or is_clip:
        is_valid &= _draw_adapt(current, [method for method in methods if isinstance(method, Adapt)], experts)
    if page_data.has_unused_tensors(current.pretrained):
        current.count_dead_params = st.toggle(
            "Count the unused text tensors",
            current.count_dead_params,
            key=f"dead{current.merge.uid}",
            help=UNUSED_TENSORS,
        )
        st.caption(UNUSED_TENSORS_RULE)
    if current.activation or (
        is_clip and _lacks_activation(current.pretrained, page_data.file_state(current.pretrained))
    ):
        current.activation = st.selectbox(
            "Activation", list(ACTIVATION_TITLES), list(ACTIVATION_TITLES).index(current.activation),
            format_func=ACTIVATION_TITLES.__getitem__,
            key=f"activation{current.merge.uid}", help=ACTIVATION_HELP,
        )  # fmt: skip
    return is_valid & _draw_data_fields(current, experts, is_clip)


def _draw_data_fields(current: Draft, experts: Mapping[str, str], is_clip: bool) -> bool:
    """Draw fields for the images or files that the chain needs besides checkpoints; returns whether all are valid."""
    is_valid = True
    if not is_clip:
        is_valid &= network_options.draw_file_fields(current, experts)
    elif current.needs_exemplars:
        with st.container(border=True):
            st.markdown("**Exemplars**")
            labels = "with" if Needs.LABELED_EXEMPLARS in current.chain_needs else "without"
            st.caption(f"Training images that the chain uses, {labels} their labels. They come from the benchmark.")
            is_valid &= (
                parameter_controls.draw_parameters(Exemplars, current.exemplars, f"exemplars{current.merge.uid}")
                is not None
            )
    if is_clip and current.needs_test_data:
        with st.container(border=True, key="test_data"):
            st.markdown("**Images to learn from**")
            st.caption(LEARNING_NOTE)
            is_valid &= _draw_test_data(current)
    return is_valid


def _draw_adapt(current: Draft, adapts: Sequence[Adapt], experts: Mapping[str, str]) -> bool:
    """Draw the optional third part of the chain, an adaptation; returns whether its values are valid."""
    if not adapts:
        return True
    by_key = {adapt.key: adapt for adapt in adapts}
    with st.container(border=True, key="adapt_box"):
        keys, current_key = [None, *by_key], current.adapt.key if current.adapt else None
        picked_key = st.selectbox(
            "Then adapt it with", keys, keys.index(current_key),
            lambda key: page_text.title_with_owner(by_key[key]) if key else NOT_ADAPTED,
            key=f"adapt{current.adapt.uid if current.adapt else current.merge.uid}",
        )  # fmt: skip
        if picked_key != current_key:
            current.adapt = DraftStep(picked_key) if picked_key else None
            st.rerun()
        if current.adapt is None:
            return True
        is_valid = draw_step_controls(current.adapt, by_key[current.adapt.key], current, experts)
        if by_key[current.adapt.key].needs_task:
            st.caption(f"Marked ‡. {TASK_KNOWN}")
        return is_valid


def _draw_test_data(current: Draft) -> bool:
    """Draw fields for the images that the chain learns from; returns whether their values are valid."""
    test_data = parameter_controls.draw_parameters(
        TestData, current.test_data, f"test_data{current.merge.uid}", titles=page_text.TEST_DATA_WORDS
    )
    if test_data is None:
        return False
    st.caption(page_text.ADAPTING_WORDS.get(test_data.values()["split"], ""))
    return True


@st.cache_data(max_entries=100, show_spinner=False)
def _lacks_activation(pretrained: str, file: tuple[int, ...]) -> bool:
    """Whether a checkpoint does not state its activation; False if it cannot be read."""
    from merging.models.architecture import architecture_in_metadata
    from merging.models.formats.model_sources import ModelRef

    try:
        return "quick_gelu" not in architecture_in_metadata(ModelRef(pretrained).open("pretrained"))
    except (CheckpointError, OSError):
        return False


def _draw_icon_button(
    icon: str, step: DraftStep, help_text: str, disabled: bool, action: Callable[..., None], *args: int
) -> None:
    """Draw a small button in the heading of a step."""
    st.button(
        "", icon=f":material/{icon}:", key=f"{icon}{step.uid}", type="tertiary", disabled=disabled, help=help_text,
        on_click=action, args=args,
    )  # fmt: skip


def _add_edit(current: Draft) -> None:
    if key := st.session_state["new_edit"]:
        current.edits.append(DraftStep(key))
        st.session_state["new_edit"] = None


def draw_builder(current: Draft, experts: Mapping[str, str], own_accuracies: Mapping[str, float]) -> bool:
    """Draw all controls of the left-hand side; returns whether every value is valid."""
    st.header("Models", anchor=False)
    draw_models(current, experts, own_accuracies)
    network_options.pick_family(current)
    network_options.pick_vocabulary(current)
    st.header("Chain", anchor=False)
    return draw_chain_controls(current, experts)
