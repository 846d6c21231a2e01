"""The form for a set of models: a pretrained model, experts, a report on whether they fit, and a button for Merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.permissions import requires
from app.reading import listed_models, page_data, recipes
from app.reading.listed_models import ListedModels
from app.session import benchmark_choice, click_errors, pages, view_state
from app.views.models import benchmark_picker
from app.widgets import fit_report, page_parts
from app.widgets.jobs import refused_action
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.base.text import first_few
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    from merging.sharing.catalog.model_groups import ModelGroup
    from merging.sharing.catalog.model_listing import CatalogEntry
    from merging.sharing.catalog.model_recognition import ModelFacts

GROUP_KEY, PROBLEM_KEY, ADDED_SET_KEY = "set_group", "set_problem", "set_made"
NAMES_HELP = "Charts show these names; an expert named like a task of the benchmark is scored in domain on it."
NO_SCORES = (
    "Merges of these models are **not evaluated**: {} Merging, masks, conflicts and export still work. For "
    "scores, make a benchmark from your images on Models & runs, under **data**, or with this command:"
)
OTHER_NETWORK = (
    "These models are of {}. Merges of them are **not evaluated**, because images pass through CLIP towers. Merging, "
    "masks, conflicts and export work."
)
MAKE_COMMAND = "mergescope benchmark make mine --pretrained PRETRAINED --task cars=DATA,prompts=cars,expert=CARS"


def draw_form(models: ListedModels, groups: Sequence[ModelGroup]) -> None:
    """Draw the form: the group of models, the pretrained one, the names of the experts, and whether all fit."""
    st.header("Use these models for a merge", anchor=False)
    if added_set := st.session_state.pop(ADDED_SET_KEY, None):
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            st.markdown(f":material/check_circle: **{page_text.safe_text(added_set[0])}** is now on the Merge page.")
            page_parts.draw_page_link(pages.MERGE, "Open in Merge", "merge", models=added_set[1])
    usable_models = {item.reference: item for item, facts in models.readable if _can_merge(facts)}
    if not any(not listed_models.is_bundled(item) for item in usable_models.values()):
        st.info("None of your models is listed yet. List a folder above, then choose the models that belong together.")
        return
    group = _pick_group(groups)
    prefix = f"set_{_make_key_prefix(group)}"
    names = {reference: clean_text(item.listed_path, 100) for reference, item in usable_models.items()}
    chosen_models = _pick_models(prefix, group, names)
    if chosen_models is None:
        return
    pretrained, references = chosen_models
    experts = _edit_names(prefix, group, references, {ref: item.listed_path for ref, item in usable_models.items()})
    try:
        are_fitting = fit_report.draw_report(pretrained, experts, "shelf")
        draw_evaluation(pretrained, experts)
    except MergingError as error:
        st.error(page_text.safe_text(error, 800), icon=":material/block:")
        return
    _draw_save_button(prefix, group, pretrained, experts, are_fitting)


def _can_merge(facts: ModelFacts) -> bool:
    """Whether a file can be merged."""
    return facts.kind == "adapter" or (facts.kind == "model" and not facts.problem)


def _make_key_prefix(group: ModelGroup | None) -> str:
    """A prefix for the keys of the form's fields, different for each group."""
    if group is None:
        return "own"
    pretrained = group.pretrained.reference if group.pretrained else ""
    return fit_report.job_subject(pretrained, {name: item.reference for name, item in group.experts.items()})


def _pick_group(groups: Sequence[ModelGroup]) -> ModelGroup | None:
    """Draw the picker of the group that fills the form; returns the group, None for the user's own choice."""
    if not groups:
        return None
    titles = [f"{clean_text(one.title, 60)}  ·  {plural(len(one.experts), 'expert')}" for one in groups]
    titles.append("My own choice")
    picked_index = st.selectbox(
        "Models that belong together",
        [*range(len(groups)), -1],  # -1 is the user's own choice
        format_func=lambda index: titles[index],
        key=GROUP_KEY,
    )
    if picked_index < 0:
        return None
    group = groups[picked_index]
    notes = [f"{group.layout}; {plural(len(group.experts), 'expert')}"]
    notes += [f"{plural(len(group.heads), 'zero-shot head')} for a benchmark"] if group.heads else []
    if group.is_guessed:
        notes.append("the pretrained model is a guess: of the listed models, it is the nearest to all experts")
    if group.unrelated_names:
        names = page_text.join_words([clean_text(name, 40) for name in group.unrelated_names[:5]])
        notes.append(f"left out, because they seem to come from another pretrained model: {names}")
    st.caption(page_text.safe_text(f"{'. '.join(note[0].upper() + note[1:] for note in notes)}.", 500))
    return group


def _pick_models(prefix: str, group: ModelGroup | None, names: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """Draw pickers; returns the references of the pretrained model and of the experts, None until both are chosen."""
    references = list(names)
    default = references.index(group.pretrained.reference) if group and group.pretrained else None
    pretrained = st.selectbox(
        "Pretrained model", references, default, format_func=names.__getitem__, key=f"{prefix}_pretrained",
        placeholder="Choose the model that the experts were trained from",
    )  # fmt: skip
    experts = st.multiselect(
        "Experts", references, [item.reference for item in group.experts.values()] if group else [],
        format_func=names.__getitem__, key=f"{prefix}_experts", placeholder="Choose at least one expert",
    )  # fmt: skip
    if pretrained is None or not experts:
        st.caption("Choose a pretrained model and experts to see whether they fit.")
        return None
    return pretrained, experts


def _edit_names(
    prefix: str, group: ModelGroup | None, references: Sequence[str], paths: Mapping[str, str]
) -> dict[str, str]:
    """{name: reference} of the experts; the names can be edited."""
    from merging.sharing.catalog.model_set_store import MAX_NAME_CHARACTERS, choose_free_name, make_usable_name

    group_names = {item.reference: name for name, item in group.experts.items()} if group else {}
    experts: dict[str, str] = {}
    with st.expander("Names of the experts", icon=":material/label:"):
        st.caption(NAMES_HELP)
        with st.grid(3, min_column_width=170):
            for reference in references:
                name = make_usable_name(group_names.get(reference) or _make_default_name(paths[reference]))
                typed_name = st.text_input(
                    page_text.safe_text("/".join(paths[reference].split("/")[-2:]), 50),
                    name,
                    max_chars=MAX_NAME_CHARACTERS,
                    key=f"{prefix}_name_{reference}",
                )
                experts[choose_free_name(typed_name.strip() or name, experts)] = reference
    return experts


def _make_default_name(path: str) -> str:
    """The default name of an expert: its file, or its folder if the file has a generic name."""
    *folders, file_name = path.split("/")
    stem, dot, _ = file_name.rpartition(".")
    stem = stem if dot else file_name
    return folders[-1] if folders and stem in {"model", "finetuned", "checkpoint", "adapter_model"} else stem


def draw_evaluation(pretrained: str, experts: Mapping[str, str]) -> None:
    """Draw why merges of these models cannot be evaluated and what to do, or that no expert has a task."""
    if network := recipes.network_name(pretrained):
        st.markdown(f":material/info: {OTHER_NETWORK.format(page_text.safe_text(network, 60))}")
    elif reason := page_data.why_not_evaluated(pretrained):
        st.markdown(f":material/info: {NO_SCORES.format(page_text.safe_text(reason, 300))}")
        st.code(MAKE_COMMAND, language=None, wrap_lines=True)
    elif not set(experts) & set(tasks := page_data.benchmark().experts):
        task_names = page_text.safe_text(first_few(tasks), 300)
        st.markdown(
            ":material/info: None of these experts is named like a task of the benchmark, so all its data sets count "
            f"as out of domain. Its tasks are {task_names}."
        )


def _draw_save_button(
    prefix: str, group: ModelGroup | None, pretrained: str, experts: Mapping[str, str], are_fitting: bool
) -> None:
    """Draw the field for the title, and the button that adds the set to the Merge page."""
    if refused_action.draw_refusal(VisitorAction.MERGE):
        return
    from merging.sharing.catalog.model_set_store import MAX_NAME_CHARACTERS, make_usable_name

    with st.container(horizontal=True, vertical_alignment="bottom"):
        default_title = make_usable_name(group.title) if group else "My models"
        title = st.text_input(
            "Title of the set", default_title, max_chars=MAX_NAME_CHARACTERS, key=f"{prefix}_title", width=320
        )
        st.button(
            "Add to the Merge page", type="primary", icon=":material/playlist_add:", key="keep_set",
            on_click=_store_set, args=(title, pretrained, dict(experts)), disabled=not are_fitting,
        )  # fmt: skip
    if problem := st.session_state.pop(PROBLEM_KEY, ""):
        st.error(page_text.safe_text(problem, 400), icon=":material/error:")


@click_errors.guard_callback
@requires(VisitorAction.MERGE)
def _store_set(title: str, pretrained: str, experts: Mapping[str, str]) -> None:
    """Callback: store the set."""
    from merging.sharing.catalog.model_set_store import (
        choose_free_name,
        list_model_sets,
        make_model_set,
        store_model_set,
    )

    root = page_data.store().root
    try:
        model_set = make_model_set(title, pretrained, experts)
        other_titles = [stored.title for stored in list_model_sets(root) if stored.id != model_set.id]
        model_set = make_model_set(choose_free_name(model_set.title, other_titles), pretrained, experts)
        store_model_set(root, model_set)
    except MergingError as error:
        st.session_state[PROBLEM_KEY] = str(error)
    else:
        st.session_state[ADDED_SET_KEY] = model_set.title, model_set.id
        view_state.pick_set(model_set.id)


def draw_saved_sets() -> None:
    """Draw the stored sets, each with a link to the Merge page and a button that removes it."""
    from merging.sharing.catalog.model_set_store import list_model_sets

    if not (model_sets := list_model_sets(page_data.store().root)):
        return
    st.header("Sets on the Merge page", anchor=False)
    for model_set in model_sets:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            names = page_text.join_words([clean_text(name, 30) for name, _ in model_set.experts[:6]])
            more = f" and {len(model_set.experts) - 6} more" if len(model_set.experts) > 6 else ""
            st.markdown(
                f"**{page_text.safe_text(model_set.title)}**  \n:small[:gray[{page_text.safe_text(names + more, 300)}]]"
            )
            page_parts.draw_page_link(pages.MERGE, "Open in Merge", "merge", models=model_set.id)
            if listed_models.is_local():
                st.button(
                    "Forget", key=f"forget_{model_set.id}", type="tertiary", on_click=_delete_set, args=(model_set.id,),
                    help="Removes the set from the Merge page. Its files and runs stay.",
                )  # fmt: skip


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete_set(set_id: str) -> None:
    """Callback: remove a set from the Merge page."""
    from merging.sharing.catalog.model_set_store import delete_model_set

    delete_model_set(page_data.store().root, set_id)


def draw_folders(models: ListedModels) -> None:
    """Draw the listed benchmark folders, each with a button that switches to it."""
    for item in models.benchmarks:
        if item.path.resolve() == benchmark_choice.benchmark_folder():
            continue
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f":material/dataset: **{page_text.safe_text(item.listed_path, 100)}** is a benchmark folder.")
            st.button("Switch to it", key=f"use_{item.key}", type="tertiary", on_click=_switch_to, args=(item,))


def _switch_to(item: CatalogEntry) -> None:
    """Callback: switch to a listed benchmark folder."""
    benchmark_choice.switch_benchmark(benchmark_picker.remember_folder(item))
