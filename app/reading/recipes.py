"""Recipes and stored models: the link from a recipe to Merge, its costs, and the runs of presets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import address, view_state
from app.session.draft import Draft
from merging.base.errors import MergingError, RecipeError, TaskError
from merging.images.benchmarks.image_draws import REPORTING
from merging.models.families import CLIP_KEY, UNMERGED, Role
from merging.recipes.presets import PRESETS, find_preset
from merging.recipes.recipe import Recipe
from merging.study.runs import edit_pairs
from merging.study.runs.run import Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

    from merging.models.checkpoint import Checkpoint
    from merging.study.runs.estimate import Estimate
    from merging.study.sweeps.sweep import Sweep


def list_offered_recipes(stored_runs: Sequence[Run]) -> dict[str, tuple[str, Recipe]]:
    """{key in the picker: (label, recipe)} of the recipe on the Merge page, all presets, and stored runs."""
    from app.reading.runs import run_names

    pretrained, experts = page_data.models()
    pretrained_model = next(iter(pretrained.values()))
    choices: dict[str, tuple[str, Recipe]] = {}
    if (draft := view_state.draft()) is not None and draft.pretrained == pretrained_model:
        try:
            recipe = draft.recipe(experts)
            choices["draft"] = (
                f"On the Merge page: {clean_text(recipe.title or page_text.chain_title(recipe), 60)}",
                recipe,
            )
        except MergingError:
            pass  # the Merge page shows what is wrong
    large = page_data.is_large(pretrained_model)
    for preset in PRESETS:
        choices[preset.key] = (preset.name_in_lists(large), preset.recipe(pretrained_model, experts, large=large))
    runs = page_data.clip_runs(stored_runs)
    labels = run_names.label_runs(runs)
    for run in runs:
        try:
            if run.recipe is not None and run.title not in {preset.title for preset in PRESETS}:
                choices[run.id] = (labels[run.id], run.recipe)
        except MergingError:
            continue  # the recipe has a method that only another version knows
    return choices


def chain_query(wanted: Recipe) -> dict[str, str]:
    """The query of Partners with a chain, whatever its title; empty if the page does not offer it."""
    offered, wanted = list_offered_recipes(page_data.stored_runs()), replace(wanted, title="")
    keys = [key for key, (_, recipe) in offered.items() if replace(recipe, title="") == wanted]
    return {address.PARTNERS_CHAIN: keys[-1]} if keys else {}  # a preset or a run rather than what is on Merge now


def partners_query(sweep: Sweep) -> dict[str, str]:
    """The query of Partners with the chain and the images of a sweep of subsets, or with its report."""
    chain = chain_query(sweep.recipes[0])
    if sweep.split == REPORTING:
        return chain | {address.PARTNERS_VIEW: "leave one out"}
    return chain | {address.PARTNERS_IMAGES: str(sweep.images or "all")}


def merged_tensors(pretrained: str) -> pd.DataFrame:
    """A row for each tensor that a merge changes, in forward order: tensor, order, section, role, part, numel.

    Raises:
        CheckpointError: the file cannot be opened.
    """
    return _list_tensors(pretrained, page_data.file_state(pretrained))


@st.cache_data(max_entries=16, show_spinner=False)
def _list_tensors(pretrained: str, file: tuple[int, ...]) -> pd.DataFrame:
    import pandas as pd

    from merging.models.formats.model_sources import ModelRef

    opened = ModelRef(pretrained).open("pretrained")
    merged = [parameter for parameter in opened.parameters if parameter.role not in UNMERGED]
    rows = [(p.name, p.order, p.section, str(p.role), p.part, opened.infos[p.name].numel) for p in merged]
    return pd.DataFrame(rows, columns=["tensor", "order", "section", "role", "part", "numel"])


def repeat_for_experts(facts: pd.DataFrame, experts: Sequence[str]) -> pd.DataFrame:
    """The rows repeated for every expert, expert by expert."""
    import pandas as pd

    return pd.concat([facts.assign(expert=name) for name in experts], ignore_index=True)


def find_model_set(recipe: Recipe) -> str | None:
    """The first set of models on Merge that contains every checkpoint of a recipe; None if there is none."""
    try:
        sets = page_data.model_sets()
    except TaskError:
        return None
    experts = set(recipe.experts)
    return next(
        (
            key
            for key, models in sets.items()
            if models.pretrained == recipe.pretrained and experts <= set(models.experts)
        ),
        None,
    )


def merge_query(recipe: Recipe) -> dict[str, str] | None:
    """The query of Merge with this recipe; None if no set of models there contains its checkpoints."""
    if (key := find_model_set(recipe)) is None:
        return None
    query = {address.CHAIN: Draft.from_recipe(recipe).chain()}
    if recipe.experts != tuple(page_data.model_sets()[key].experts):
        query[address.EXPERTS] = ",".join(name for name, _ in recipe.experts)
    return query | ({address.MODELS: key} if key else {})


def estimate_recipe(recipe: Recipe, stored: Sequence[Run]) -> Estimate:
    """Time and memory that a recipe will take; raises CheckpointError if a file cannot be opened."""
    return estimate_recipes([recipe], stored)[0]


def estimate_recipes(recipes: Sequence[Recipe], stored: Sequence[Run]) -> list[Estimate]:
    """``estimate_recipe`` for several recipes; shared files are opened once."""
    runs_known = ",".join(run.id for run in stored)
    benchmark_digest = page_data.current_digest()
    device = page_data.job_queue().device
    files: dict[object, str] = {}  # their states by references, each as one text, which a cache hashes at once
    estimates = []
    for recipe in recipes:
        models = recipe.pretrained, recipe.experts
        if models not in files:
            files[models] = str([page_data.file_state(path) for path in (models[0], *dict(models[1]).values())])
        misfit = page_data.why_not_evaluated(recipe.pretrained)
        estimates.append(_estimate_cached(recipe, files[models], benchmark_digest, runs_known, device, misfit, stored))
    return estimates


@st.cache_resource(  # a view may need dozens; valid for a minute, because digests of files may become known meanwhile
    max_entries=4 * page_data.MAX_CACHED, ttl=60, show_spinner=False, hash_funcs={Recipe: hash}
)
def _estimate_cached(
    recipe: Recipe, files: str, benchmark_digest: str, runs_known: str, device: str, misfit: str, _stored: Sequence[Run]
) -> Estimate:
    from merging.study.runs.estimate import estimate_run
    from merging.study.runs.opened_recipe import attach_checkpoints

    images = None if misfit else page_data.benchmark()
    pretrained, experts = _open_models(recipe.pretrained, recipe.experts, recipe.family, files)
    return estimate_run(attach_checkpoints(recipe, pretrained, experts, images), images, _stored, device)


@st.cache_resource(max_entries=4, ttl=60, show_spinner=False)
def _open_models(
    pretrained: str, experts: tuple[tuple[str, str], ...], family: str, files: str
) -> tuple[Checkpoint, dict[str, Checkpoint]]:
    """The opened checkpoints of many recipes; read only their headers."""
    from merging.models.formats.model_sources import open_models

    return open_models(pretrained, dict(experts), family)


def preset_runs(keys: Sequence[str], runs: Sequence[Run]) -> list[Run]:
    """The stored runs of these presets on the models of the library; runs of the library come before others.

    Runs of one subject merge the same checkpoints. For large models papers set some parameters differently.
    """
    groups = edit_pairs.group_by_subject(sorted(runs, key=lambda run: not page_data.library_title(run)))
    group = next(
        (candidates for candidates in groups if page_data.library_title(candidates[0])), groups[0] if groups else []
    )
    if (model := next((recipe for run in group if (recipe := edit_pairs.read_recipe(run))), None)) is None:
        return []
    large, tower = page_data.is_large(model.pretrained), (model.activation, model.architecture)
    recipes = []
    for key in keys:
        with suppress(RecipeError):  # most presets refuse several checkpoints of one expert
            preset_recipe = find_preset(key).recipe(model.pretrained, dict(model.experts), large=large)
            recipes.append(preset_recipe.with_architecture(*tower))
    return [run for recipe in recipes if (run := edit_pairs.find_run(recipe, group))]


def open_network_name() -> str:
    """The name of the network of the models chosen on Merge; empty for CLIP, and without models."""
    try:
        sets = page_data.model_sets()
    except TaskError:
        return ""
    chosen, _ = view_state.resolve_set(list(sets))
    return network_name(sets[chosen].pretrained) if chosen else ""


def network_name(pretrained: str, family: str = "") -> str:
    """The name of a network other than CLIP; empty for CLIP, and for unreadable files."""
    return _inspect_network(pretrained, family, page_data.file_state(pretrained))[0]


def has_vocabulary(pretrained: str, family: str = "") -> bool:
    """Whether a network other than CLIP has tables with a row for each token."""
    return _inspect_network(pretrained, family, page_data.file_state(pretrained))[1]


def contains_clip(pretrained: str) -> bool:
    """Whether a network other than CLIP contains a whole CLIP image encoder, which can be merged alone."""
    return (
        bool(network_name(pretrained)) and _inspect_network(pretrained, CLIP_KEY, page_data.file_state(pretrained))[2]
    )


@st.cache_data(max_entries=200, show_spinner=False)
def _inspect_network(pretrained: str, family: str, file: tuple[int, ...]) -> tuple[str, bool, bool]:
    """The network's name, whether it has tables of tokens, and whether it is readable as this family."""
    from merging.models.formats.model_sources import ModelRef

    try:
        opened = ModelRef(pretrained).open("pretrained", family=family)
        network = opened.network
        return network, bool(network) and any(p.role == Role.VOCABULARY for p in opened.parameters), True
    except (MergingError, OSError):
        return "", False, False
