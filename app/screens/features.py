"""Features: how merging changes the features of images out of domain and in domain."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import measurements, page_data, recipes
from app.session import address, run_choice
from app.views.features import feature_charts, feature_maps, joint_tables
from app.views.features import feature_tables as feature_data
from app.widgets import page_parts, run_picker
from app.widgets.jobs import measure_button
from merging.base.errors import TaskError
from merging.study.analysis.measurement_registry import name_in_domain
from merging.study.runs.run import Run

MAPS = "maps"
PERPLEXITIES = "perplexities"
SEPARABILITY = "separability"
DISTANCE = "distance to pretrained"
SALIENCY_BY_LAYER_KIND = "saliency by layer kind"
MAX_RUNS = 4  # runs shown with the pretrained model
WHAT_IS_OFFERED = "Features shows merges into one model for all tasks."
OUT_OF_DOMAIN, IN_DOMAIN = "out of domain", "in domain"
NOT_EXTRACTED = "Features {} have not been extracted for"
NO_PRETRAINED = (
    "The pretrained model has not been evaluated on this benchmark, so distances to it, and predictions before the "
    "merge, are left out."
)
NO_MODULE = "These images belong to no merged task, so no module applies: features of {} are the merged model's own."
FEWER_EXPERTS = (
    "These images are of all experts' tasks, of which some are out of domain for models with fewer experts: {}."
)


def choose_first_runs(runs: Sequence[Run]) -> list[str]:
    """Ids of the runs shown if neither link nor session names any."""
    return [run.id for run in recipes.preset_runs(feature_data.FIRST_PRESETS, runs) or runs[:2]]


def pick_runs(runs: Sequence[Run]) -> list[Run]:
    """The picker of runs, with a warning about runs in the link that this machine lacks."""
    by_id = {run.id: run for run in runs}
    chosen, missing = run_choice.resolve_runs(list(by_id), choose_first_runs(runs))
    if missing:
        run_picker.draw_missing_runs(missing, offers=WHAT_IS_OFFERED)
    run_picker.draw_runs_picker(by_id, chosen, "features_runs", MAX_RUNS)
    if len(chosen) > MAX_RUNS:
        st.caption(f"Showing {MAX_RUNS} of the {len(chosen)} chosen runs; no more fit.")
    return [by_id[run_id] for run_id in chosen[:MAX_RUNS]]


def pick_reference_models(references: dict[str, Run]) -> list[Run]:
    """The pretrained model, and the chosen expert if there is one."""
    titles = measurements.titles_by_task()
    experts = {titles[key]: run for key, run in references.items() if run.kind == "expert" and key in titles}
    models = [references["pretrained"]] if "pretrained" in references else []
    if experts:
        chosen = st.selectbox(
            "Compare with an expert", experts, None, key=address.COMPARED_EXPERT, bind=address.BIND, placeholder="None",
            width=240,
        )  # fmt: skip
        models += [experts[chosen]] if chosen else []
    return models


def draw_download(models: Sequence[feature_data.Model]) -> None:
    """The download of the features."""
    st.download_button(
        "Features (npz)", lambda: feature_data.make_npz(models), "features.npz", "application/octet-stream",
        on_click="ignore", type="tertiary", icon=":material/download:",
        help="Raw features of all models shown, with names, data sets and classes of the images.",
    )  # fmt: skip


def draw_module_note(runs: Sequence[Run], domain: str) -> None:
    """A note on runs for which some images of the domain are not what others take them for."""
    few = [run for run in runs if set(page_data.benchmark().experts) - set(run.experts)]
    noted, note = (few, FEWER_EXPERTS) if domain == IN_DOMAIN else ([r for r in runs if r.needs_task], NO_MODULE)
    if titles := [page_text.title_with_note(run) for run in noted]:
        st.caption(note.format(page_text.safe_text(page_text.join_words(titles), 300)))


def draw_view(view: str, chosen: Sequence[Run], references: Sequence[Run], domain: str) -> None:
    """The chosen view of the models with features, and the offer to extract the features of the others."""
    key = name_in_domain(measurements.FEATURES) if domain == IN_DOMAIN else measurements.FEATURES
    runs = [*references, *chosen]
    models, without_features = feature_data.find_models_with_features(runs, key)
    order = joint_tables.name_joint_map(runs, key) if view == MAPS and without_features else None
    if without_features:
        stored = [model.measurement for model in models]
        measure_button.draw_missing(key, without_features, NOT_EXTRACTED.format(domain), stored, together=order)
    if not models or (order and measure_button.find_live_job(*order)):
        return
    if view == MAPS:
        feature_maps.draw_side_by_side(models)
    elif view == PERPLEXITIES:
        feature_maps.draw_perplexities(models)
    elif view == SEPARABILITY:
        feature_charts.draw_separability(models)
    else:
        feature_charts.draw_distance(models)
    draw_download(models)


def main() -> None:
    """The chosen view."""
    stored = page_data.stored_runs()
    runs = [run for run in page_data.clip_runs(stored) if not run.per_task]
    if not runs:
        page_parts.draw_no_runs()
        return
    view = st.segmented_control(
        "View", (MAPS, PERPLEXITIES, SEPARABILITY, DISTANCE, SALIENCY_BY_LAYER_KIND), default=MAPS,
        key=address.FEATURES_VIEW, bind=address.BIND, required=True,
    )  # fmt: skip
    chosen = pick_runs(runs)
    run_picker.draw_other_networks_note(stored)
    if view == SALIENCY_BY_LAYER_KIND:
        feature_charts.draw_saliency_by_layer_kind(chosen, runs)
        return
    with st.container(horizontal=True, gap="medium"):
        domain = st.segmented_control(
            "Domain", (OUT_OF_DOMAIN, IN_DOMAIN), default=OUT_OF_DOMAIN, key=address.IMAGE_DOMAIN, bind=address.BIND,
            required=True,
        )  # fmt: skip
        references = pick_reference_models(dict(feature_data.find_references(stored)))
    draw_module_note(chosen, domain)
    if not any(run.kind == "pretrained" for run in references):
        st.info(NO_PRETRAINED)
    groups = run_picker.group_by_models(chosen)
    try:
        draw_view(view, groups[0] if groups else [], references, domain)
        run_picker.draw_other_groups(groups)
    except TaskError as error:
        st.info(page_text.safe_text(error, 600))


page_parts.draw_heading("Features", "What merging does to the features of images, out of domain and in domain.")
main()
